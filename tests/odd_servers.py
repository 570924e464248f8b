"""Servers that answer every connection with the same bytes, HTTP or not, at once or drop by drop."""

import contextlib
import itertools
import socket
import threading

# What an HTTP client has no answer in: another protocol, and one that breaks off.
NO_HTTP = (b"SSH-2.0-somewhere\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n")


@contextlib.contextmanager
def speaking(words):
    """Give the address of a server that says `words` and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_speak, args=(listening, words))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _speak(listening, words):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(words)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1 << 16)  # until the peer has read it all


class Dripping:
    """Answers every connection byte by byte and never to the end; a context manager.

    What it says is HTTP: that the true answer is still to come.  So a limit of each read never ends it.
    """

    def __init__(self):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/hook"
        self._threads = [threading.Thread(target=self._accept)]
        self._stopped, self._met, self.connections = threading.Event(), threading.Condition(), 0

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Break off, and take no more; twice is fine."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._listening.shutdown(socket.SHUT_RDWR)
            for thread in self._threads:  # the first adds no more once it has ended
                thread.join()
            self._listening.close()

    def wait_for(self, connections, *, timeout_s):
        """Tell whether so many connections have come within that time."""
        with self._met:
            return self._met.wait_for(lambda: self.connections >= connections, timeout=timeout_s)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                thread = threading.Thread(target=self._drip, args=(connection,))
                self._threads.append(thread)
                thread.start()
                with self._met:
                    self.connections += 1
                    self._met.notify_all()

    def _drip(self, connection):
        with connection, contextlib.suppress(OSError):
            connection.recv(1 << 16)
            for byte in itertools.cycle(b"HTTP/1.1 100 Continue\r\n\r\n"):
                if self._stopped.wait(0.01):
                    return
                connection.sendall(bytes([byte]))
