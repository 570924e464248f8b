"""What one stream's client has handled: cumulative, kept in the log, and a brake on sending."""

import asyncio
from collections import deque

from paritas.controller import tokens
from paritas.controller.core import Core
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.store import Store

__all__ = ["Acks"]


class Acks:
    """The acks of one stream.

    Parameters
    ----------
    subscriber_id : str
        What they are kept under.
    core : Core
        The server's shared parts.
    max_outstanding : int
        Events sent and not acked at most; 0 is no limit.
    """

    def __init__(self, subscriber_id: str, core: Core, *, max_outstanding: int) -> None:
        self._subscriber_id = subscriber_id
        self._core = core
        self._max_outstanding = max_outstanding
        self._unacked: deque[int] = deque()
        self._told = 0  # the highest number the client holds a token of
        self._acked = 0
        self._kept = 0  # what the store knows of `_acked`
        self._came = asyncio.Event()
        self._room = asyncio.Event()

    def tell(self, seq: int) -> None:
        """The client is about to get a token of `seq`."""
        self._told = max(self._told, seq)

    def send(self, seq: int) -> None:
        """Count event `seq`, which is about to be sent, as outstanding."""
        self.tell(seq)
        if self._max_outstanding:
            self._unacked.append(seq)

    async def room(self) -> None:
        """Wait until another event may be outstanding."""
        while self._max_outstanding and len(self._unacked) >= self._max_outstanding:
            self._room.clear()
            await self._room.wait()

    def take(self, raw: bytes) -> None:
        """Take an ack that came.

        Raises
        ------
        RefusalError
            INVALID for garbage, and for what was not sent: keeping it would lose events.
        """
        token = tokens.decode(raw, field="ack.token")
        if token.epoch != self._core.store.epoch:
            return  # of a log that is gone; there is nothing to keep
        if token.seq > self._told:
            raise RefusalError("ack.token: is ahead of what was sent", reason=Refused.INVALID)
        self._acked = max(self._acked, token.seq)
        while self._unacked and self._unacked[0] <= token.seq:
            self._unacked.popleft()
        self._room.set()
        self._came.set()

    async def keep_all(self) -> None:
        """Keep acks as they come; those that come during a write share the next one."""
        while True:
            await self._came.wait()
            self._came.clear()
            await self.keep()

    async def keep(self) -> None:
        """Keep the newest ack if it is not kept yet."""
        seq = self._acked
        if seq > self._kept:
            now_ns = self._core.clock.now_ns()
            await self._core.store.run(Store.ack, self._subscriber_id, seq=seq, now_ns=now_ns)
            self._kept = seq
