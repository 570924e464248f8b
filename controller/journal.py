"""Log first, then tell: every write reaches the store before the hub, and both in one order."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from paritas.clock import Clock
from paritas.controller.hub import Hub
from paritas.controller.model import Appended, Draft, EventKind
from paritas.controller.silences import SilenceBook
from paritas.controller.store import Store
from paritas.controller.store_thread import StoreThread
from paritas.controller.wire import silence_of
from paritas.errors import ParitasError
from paritas.proto.v1 import escalation_pb2 as pb

__all__ = ["Journal"]


class Journal:
    """The only writer of the log.

    Parameters
    ----------
    store, hub, silences : StoreThread, Hub, SilenceBook
        What is written, in this order.
    clock : Clock
        Stamps entries on arrival.
    report : async callable of bool
        Told whether the log can be written, whenever that changes.

    Attributes
    ----------
    counts : Counter of str
        ``appended`` and ``duplicates``; ``refused``: batches that the service did not admit.
    """

    def __init__(
        self,
        store: StoreThread,
        hub: Hub,
        *,
        silences: SilenceBook,
        clock: Clock,
        report: Callable[[bool], Awaitable[None]],
    ) -> None:
        self._store = store
        self._hub = hub
        self._silences = silences
        self._clock = clock
        self._report = report
        self._writable = True
        self._order = asyncio.Lock()
        self._running: set[asyncio.Task[Appended]] = set()
        self.counts: Counter[str] = Counter()

    @property
    def is_writable(self) -> bool:
        """Whether the last write went well."""
        return self._writable

    async def append(self, drafts: Sequence[Draft]) -> Appended:
        """Add `drafts` and fan them out.

        A caller that gives up does not stop it half-way: what is in the log is also told.
        """
        task = asyncio.ensure_future(self._append(drafts))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _append(self, drafts: Sequence[Draft]) -> Appended:
        async with self._order:
            appended = await self._write(drafts)
            for event in appended.events:
                if event.kind is EventKind.SILENCE:
                    self._silences.put(silence_of(pb.Silence.FromString(event.payload)))
            self._hub.publish(appended.events)
        self.counts["appended"] += len(appended.events)
        self.counts["duplicates"] += appended.duplicates
        return appended

    async def _write(self, drafts: Sequence[Draft]) -> Appended:
        try:
            appended = await self._store.run(Store.append, drafts, now_ns=self._clock.now_ns())
        except ParitasError:
            await self._say(writable=False)
            raise
        await self._say(writable=True)
        return appended

    async def compact(self) -> None:
        """Forget what retention no longer covers; also finds out that the disk is back."""
        now_ns = self._clock.now_ns()
        self._silences.forget_ended(now_ns=now_ns)
        await self._store.run(Store.compact, now_ns=now_ns)
        await self._say(writable=True)

    async def _say(self, *, writable: bool) -> None:
        if writable is not self._writable:
            self._writable = writable
            await self._report(writable)

    async def idle(self) -> None:
        """Wait for writes that have begun."""
        await asyncio.gather(*self._running, return_exceptions=True)
