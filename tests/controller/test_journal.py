"""Logged first, told after, in the same order."""

import asyncio

import pytest
from escalation_examples import DEADLINE_S, escalation

from paritas.clock import ManualClock
from paritas.contracts.model import Operator, Requirement
from paritas.controller.admission import admit
from paritas.controller.compaction import Retention
from paritas.controller.config import Limits
from paritas.controller.convert import escalation_to
from paritas.controller.hub import Hub, Outbox
from paritas.controller.journal import Journal
from paritas.controller.model import Draft, EventKind, Subject
from paritas.controller.silences import Silence, SilenceBook
from paritas.controller.store import Store
from paritas.controller.store_thread import StoreThread
from paritas.controller.wire import silence_to
from paritas.errors import TransientError


def drafts(*numbers, **changes):
    return admit([escalation_to(escalation(n, **changes)) for n in numbers], limits=Limits())


class Parts:
    """A journal with one live stream that wants everything."""

    def __init__(self, store):
        self.store, self.reported = store, []
        self.hub = Hub(head=0, max_subscribers=1)
        self.outbox = Outbox(capacity=1000, wants=lambda _event: True)
        self.hub.join("all", self.outbox)
        self.hub.attach(self.outbox)
        self.silences = SilenceBook()
        clock = ManualClock(start_ns=0)
        self.journal = Journal(store, self.hub, silences=self.silences, clock=clock, report=self.report)

    async def report(self, writable):
        self.reported.append(writable)

    async def told(self, count):
        taken = []
        for _ in range(count):
            taken.append((await self.outbox.first()).event_id)
            self.outbox.drop_first()
        return taken


def run(tmp_path, scenario):
    async def bounded():
        async with asyncio.timeout(DEADLINE_S):
            async with StoreThread(tmp_path / "log.db", retention=Retention()) as store:
                await scenario(Parts(store))

    asyncio.run(bounded())


def test_what_is_logged_is_told_in_the_same_order(tmp_path):
    async def scenario(parts):
        batches = [drafts(n, incident_id=f"i{n % 7}") for n in range(1, 60)]
        await asyncio.gather(*(parts.journal.append(batch) for batch in batches))
        logged = await parts.store.run(Store.read, after=0, limit=99)
        assert await parts.told(59) == [event.event_id for event in logged]
        assert [event.seq for event in logged] == list(range(1, 60))

    run(tmp_path, scenario)


def test_a_publisher_that_gives_up_does_not_make_a_gap(tmp_path):
    async def scenario(parts):
        call = asyncio.create_task(parts.journal.append(drafts(1)))
        await asyncio.sleep(0)  # let it begin
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await parts.journal.append(drafts(2))
        assert await parts.told(2) == ["incident-1/1", "incident-1/2"]
        await parts.journal.idle()

    run(tmp_path, scenario)


def test_repeats_are_counted_and_not_told(tmp_path):
    async def scenario(parts):
        await parts.journal.append(drafts(1))
        await parts.journal.append(drafts(1, 2))
        assert await parts.told(2) == ["incident-1/1", "incident-1/2"]
        assert len(parts.outbox) == 0
        assert parts.journal.counts == {"appended": 2, "duplicates": 1}

    run(tmp_path, scenario)


def test_a_silence_is_in_the_book_before_anybody_is_told(tmp_path):
    async def scenario(parts):
        matcher = Requirement("clause", Operator.IN, ("token-tv",))
        silence = Silence("s1", (matcher,), starts_ns=0, ends_ns=9, author="ana", comment="swap")
        payload = silence_to(silence).SerializeToString()
        draft = Draft(EventKind.SILENCE, "silence-s1", payload, silence_id="s1", ends_ns=9)
        waiting = asyncio.create_task(parts.outbox.first())
        await parts.journal.append([draft])
        assert (await waiting).event_id == "silence-s1"
        assert parts.silences.suppression(Subject(clause="token-tv"), now_ns=5).silence_id == "s1"

    run(tmp_path, scenario)


def test_a_log_that_cannot_be_written_is_reported_once_and_so_is_its_return(tmp_path):
    async def scenario(parts):
        await parts.journal.append(drafts(1))
        pages = await parts.store.run(lambda s: s._db.execute("PRAGMA page_count").fetchone()[0])
        await parts.store.run(lambda s: s._db.execute(f"PRAGMA max_page_count = {pages}"))
        for _ in range(2):
            with pytest.raises(TransientError, match="database or disk is full"):
                await parts.journal.append(drafts(2, summary="x" * 100_000))
        assert parts.reported == [False]
        await parts.store.run(lambda s: s._db.execute("PRAGMA max_page_count = 10000"))
        await parts.journal.compact()
        assert parts.reported == [False, True]

    run(tmp_path, scenario)
