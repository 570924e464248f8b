"""Agents that a plugin must survive: one that answers garbage or never, one that dies."""

import socket
import threading
from contextlib import suppress

from emitter_scenes import Agent


class Garbage(threading.Thread):
    """A socket that answers every connection with bytes that are no HTTP, or lets it wait for ever."""

    def __init__(self, path, *, answers):
        super().__init__(daemon=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(1)
        self._answers, self.kept = answers, []

    def run(self):
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            self.kept.append(peer)
            if self._answers:
                with suppress(OSError):  # who asked waits for a moment only, and has gone
                    peer.sendall(b"\x00garbage\r\n\r\n" * 100)
                peer.close()

    def close(self):
        self._socket.close()
        for peer in self.kept:
            peer.close()


class Mortal(Agent):
    """An agent that dies with its first record."""

    def _append(self, record):
        super()._append(record)
        if len(self.records) == 1:
            threading.Thread(target=self.__exit__, daemon=True).start()
