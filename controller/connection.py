"""One connection of a subscription: a call, what it sends, and a watch over its heartbeats."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import grpc

from paritas.clock import Clock
from paritas.proto.v1 import escalation_pb2 as pb

__all__ = ["Connection"]

_MISSED = 3  # heartbeats; one may be late, three in a row are not
_FAREWELL_S = 1.0
_FIRST_INTERVAL_S = 10.0  # until the server has said its own


class Connection:
    """Runs from entering to leaving the context; iterate to receive.

    Parameters
    ----------
    stub : EscalationServiceStub
        Where to call.
    start : ClientMsg.Start
        The first message.
    clock : Clock
        Its waits must take real time.
    """

    def __init__(self, stub: Any, start: pb.ClientMsg.Start, *, clock: Clock) -> None:
        self._clock = clock
        self._outgoing: SimpleQueue[pb.ClientMsg | None] = SimpleQueue()
        self._outgoing.put(pb.ClientMsg(start=start))
        self._call = stub.Subscribe(iter(self._outgoing.get, None))
        self._over = threading.Event()
        self._wake = threading.Event()  # the watch has something new to look at
        self._heard = threading.Event()
        self._receiving = threading.Event()
        self._turn = threading.Lock()  # gRPC lets one thread receive at a time
        self._interval_s = _FIRST_INTERVAL_S
        self._watch = threading.Thread(target=self._cancel_when_quiet, name="subscription-watch", daemon=True)
        self._is_leaving = False
        self.stalled = False

    def __enter__(self) -> Self:
        # A call that is over at once runs the callback here and now.
        if not self._call.add_callback(self._finish):
            self._finish()
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[pb.ServerMsg]:
        """Yield what the server sends.

        Raises
        ------
        grpc.RpcError
            The call failed.
        """
        while (message := self._receive()) is not None:
            self._heard.set()
            if message.WhichOneof("body") == "created":
                self._interval_s = message.created.heartbeat_interval_s or _FIRST_INTERVAL_S
                self._wake.set()
            yield message

    def _receive(self) -> pb.ServerMsg | None:
        with self._turn:
            self._receiving.set()
            try:
                return next(self._call, None)
            finally:
                self._receiving.clear()

    def send(self, message: pb.ClientMsg) -> None:
        """Queue `message`; it is lost if the connection is."""
        self._outgoing.put(message)

    def cancel(self) -> None:
        """End the call at once."""
        self._call.cancel()

    def close(self) -> None:
        """Ask the server to keep the acks and end; insist after a second.  Twice is fine."""
        if not self._over.is_set():
            self._leave()
        self._call.cancel()
        self._finish()
        self._outgoing.put(None)  # lets gRPC's sending thread end
        if self._watch.is_alive():
            self._watch.join()

    def _finish(self) -> None:
        self._over.set()
        self._wake.set()

    def _leave(self) -> None:
        """Read on while waiting: the end of the stream comes behind what is not read yet, and heartbeats no more."""
        self._is_leaving = True
        self._wake.set()
        self.send(pb.ClientMsg(stop=pb.ClientMsg.Stop()))
        drain = threading.Thread(target=self._drain, name="subscription-drain", daemon=True)
        drain.start()
        self._clock.wait(self._over, timeout_s=_FAREWELL_S)
        self._call.cancel()
        drain.join()

    def _drain(self) -> None:
        # A reader that was interrupted has left its receive in gRPC, which refuses a second with a ValueError.
        with suppress(grpc.RpcError, ValueError):
            while self._receive() is not None:
                pass

    def _cancel_when_quiet(self) -> None:
        """Cancel the call when a receiving reader has heard nothing for three intervals; who leaves waits otherwise."""
        quiet = 0
        while not (self._over.is_set() or self._is_leaving):
            woken = self._clock.wait(self._wake, timeout_s=self._interval_s)
            self._wake.clear()
            waiting = self._receiving.is_set() and not self._heard.is_set()
            quiet = quiet + 1 if waiting and not woken else 0
            self._heard.clear()
            if quiet >= _MISSED:
                self.stalled = True
                self._call.cancel()
                return
