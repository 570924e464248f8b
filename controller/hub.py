"""Fan-out: one bounded queue per subscriber, so that a slow one harms nobody else.

All of this runs on the event loop; nothing here waits for I/O.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from paritas.controller.model import LoggedEvent
from paritas.controller.refusals import RefusalError, Refused

__all__ = ["End", "EndReason", "Hub", "Outbox"]


class EndReason(StrEnum):
    """Why a stream ends."""

    OVERFLOW = "overflow"
    OUT_OF_RANGE = "out_of_range"
    DRAINING = "draining"
    REPLACED = "replaced"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"  # the log cannot be used just now
    STOPPED = "stopped"  # the client asked for it
    GONE = "gone"  # the client left without a word


@dataclass(frozen=True, slots=True)
class End:
    """The reason, and the text the client reads."""

    reason: EndReason
    detail: str


class Outbox:
    """What one subscriber still has to be sent, at most `capacity` events.

    Parameters
    ----------
    capacity : int
        Events held; one more ends the stream with OVERFLOW.
    wants : callable
        Tells whether the subscriber wants an event; what it does not want takes no room.

    Attributes
    ----------
    offered : int
        Number of the last event offered, wanted or not.
    """

    def __init__(self, *, capacity: int, wants: Callable[[LoggedEvent], bool]) -> None:
        self._capacity = capacity
        self._wants = wants
        self._queue: deque[LoggedEvent] = deque()
        self._filled = asyncio.Event()
        self._ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._live = False
        self.offered = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def caught_up(self) -> bool:
        """Whether everything offered has been taken (a stream not yet live never is)."""
        return self._live and not self._queue

    def go_live(self, head: int) -> None:
        """Take every event after number `head` from now on."""
        self._live, self.offered = not self._ended.done(), head

    def offer(self, event: LoggedEvent) -> None:
        """Queue `event` if it is wanted; end the stream if there is no room."""
        if not self._live:
            return
        if self._wants(event):
            if len(self._queue) >= self._capacity:
                self.end(End(EndReason.OVERFLOW, f"too slow: {self._capacity} events were waiting"))
                return
            self._queue.append(event)
            self._filled.set()
        self.offered = event.seq

    async def first(self) -> LoggedEvent:
        """Wait for the oldest event; it stays queued until `drop_first`, so that it is counted as unsent."""
        while not self._queue:
            self._filled.clear()
            await self._filled.wait()
        return self._queue[0]

    def drop_first(self) -> None:
        """Forget the oldest event: it was sent."""
        if self._queue:  # an end in between has emptied it
            self._queue.popleft()

    def end(self, end: End) -> None:
        """End the stream; the first reason stays."""
        if not self._ended.done():
            self._ended.set_result(end)
        self._live = False
        self._queue.clear()

    async def ended(self) -> End:
        """Wait for the end."""
        return await asyncio.shield(self._ended)


class Hub:
    """The subscribers of this process.

    Attributes
    ----------
    head : int
        Number of the last event that was fanned out.
    counts : Counter of str
        Streams ended, by reason.
    """

    def __init__(self, *, head: int, max_subscribers: int) -> None:
        self.head = head
        self.counts: Counter[str] = Counter()
        self._max_subscribers = max_subscribers
        self._outboxes: dict[tuple[str, str], Outbox] = {}  # by owner and name
        self._empty = asyncio.Event()
        self._empty.set()
        self._closing: End | None = None

    def __len__(self) -> int:
        return len(self._outboxes)

    def waiting(self) -> list[int]:
        """Events that wait to be sent, for each subscriber; parts of this process have no name and are left out."""
        return [len(outbox) for (_, name), outbox in self._outboxes.items() if name]

    def join(self, subscriber_id: str, outbox: Outbox, *, owner: str = "") -> None:
        """Register a stream that may be ended from now on; it replaces an older one of its owner and name.

        Raises
        ------
        RefusalError
            EXHAUSTED when there are too many subscribers.
        """
        old = self._outboxes.get((owner, subscriber_id))
        if old is None and len(self._outboxes) >= self._max_subscribers:
            message = f"start: {self._max_subscribers} subscribers are connected, no more are taken"
            raise RefusalError(message, reason=Refused.EXHAUSTED)
        if old is not None:
            old.end(End(EndReason.REPLACED, f"another stream of subscriber {subscriber_id!r} has started"))
        self._outboxes[owner, subscriber_id] = outbox
        self._empty.clear()
        if self._closing:
            outbox.end(self._closing)

    def leave(self, subscriber_id: str, outbox: Outbox, *, owner: str = "") -> None:
        """Forget a stream, unless a newer one has taken its name."""
        if self._outboxes.get((owner, subscriber_id)) is outbox:
            del self._outboxes[owner, subscriber_id]
        if not self._outboxes:
            self._empty.set()

    def attach(self, outbox: Outbox) -> None:
        """Let `outbox` take everything after `head`; call it without awaiting after checking `head`."""
        outbox.go_live(self.head)

    def publish(self, events: Iterable[LoggedEvent]) -> None:
        """Offer `events`, which follow `head` without a hole, to everybody."""
        for event in events:
            self.head = event.seq
            for outbox in self._outboxes.values():
                outbox.offer(event)

    async def drain(self, end: End, *, timeout_s: float) -> None:
        """End every stream, now and from now on, and wait until they have left."""
        self._closing = end
        for outbox in self._outboxes.values():
            outbox.end(end)
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            self.counts["drain_timeout"] += len(self._outboxes)
