"""A router is kept at the wish: tried again, read back, put right when somebody else changes it.

The routers here are in memory; one of them refuses and forgets on purpose.
"""

import asyncio

import pytest
from routing_scenes import START_NS, fleet

from paritas.clock import ManualClock
from paritas.controller.drivers.driver import Applied, Outcome
from paritas.controller.drivers.memory import MemoryRouter
from paritas.controller.routing.audit import AuditKind
from paritas.controller.routing.drive import Drive
from paritas.controller.routing.model import Route, RouteKey, Why
from paritas.errors import PermanentError, TransientError

KEY = RouteKey("qwen3-8b")
MOVED = Route(KEY, {"inference": 0.5, "reference": 0.5}, why=Why.INCIDENT, incidents=("i1",), revision=2)


class Moody(MemoryRouter):
    """Answers what it is told to; `None` lets it really do so."""

    def __init__(self, of, *answers):
        super().__init__(of)
        self.answers, self.applies, self.is_away = list(answers), 0, False

    async def apply(self, routes):
        self.applies += 1
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        done = await super().apply(routes) if answer in (None, Outcome.ACCEPTED) else None
        return done if answer is None else [Applied(r.key, answer, "so") for r in routes]

    async def observe(self):
        if self.is_away:
            raise TransientError("moody: away")
        return await super().observe()


class Driven:
    def __init__(self, *answers):
        self.audit, self.router = [], Moody(fleet(), *answers)
        self.drive = Drive(fleet(), self.router, record=self.record, clock=ManualClock(START_NS))

    async def record(self, entries):
        self.audit += entries

    def said(self):
        return [(e.kind, e.detail) for e in self.audit]


def turns(driven, count, *wish):
    async def scenario():
        if wish:
            driven.drive.want(wish)
        return [await driven.drive.turn() for _ in range(count)]

    return asyncio.run(scenario())


def test_applied_and_read_back_is_told_once():
    driven = Driven()
    assert turns(driven, 3, MOVED) == [20.0, 20.0, 20.0]  # a third of the lease
    assert driven.said() == [(AuditKind.APPLIED, "memory: applied")]
    assert (driven.audit[0].revision, driven.audit[0].incidents, driven.audit[0].dry_run) == (
        2,
        ("i1",),
        False,
    )
    assert driven.drive.shown.is_confirmed


def test_a_refusal_is_told_and_tried_again_with_growing_waits():
    driven = Driven(*[Outcome.FAILED] * 4)
    waits = turns(driven, 5, MOVED)
    assert all(0.1 * 2**n <= wait <= 0.2 * 2**n for n, wait in enumerate(waits[:4]))
    assert waits[4] == 20.0
    assert driven.said() == [
        (AuditKind.APPLIED, "memory: failed: so"),
        (AuditKind.APPLIED, "memory: applied"),
    ]


def test_what_it_says_it_did_and_does_not_show_is_only_accepted():
    driven = Driven(Outcome.APPLIED)  # says so, and has done nothing
    turns(driven, 1, MOVED)
    assert driven.drive.shown.applied[KEY].outcome is Outcome.ACCEPTED
    assert driven.drive.shown.drift == (
        "slice all: inference gets 1, should get 0.5",
        "slice all: reference gets 0, should get 0.5",
        "f1 is out of rotation and should be in",
    )
    turns(driven, 1)
    assert driven.drive.shown.is_confirmed


def test_what_it_took_and_shows_is_applied():
    driven = Driven(Outcome.ACCEPTED)
    turns(driven, 1, MOVED)
    assert driven.said() == [(AuditKind.APPLIED, "memory: applied: so")]


def test_what_a_router_cannot_do_is_not_tried_again():
    driven = Driven(*[Outcome.UNSUPPORTED] * 9)
    assert turns(driven, 2, MOVED) == [20.0, 20.0]
    assert driven.said() == [(AuditKind.APPLIED, "memory: unsupported: so")]


def test_drift_is_told_and_put_right():
    driven = Driven()
    turns(driven, 1, MOVED)
    driven.router.table({KEY: {"r1": 1, "f1": 0}})
    turns(driven, 1)
    kind, detail = driven.said()[1]
    assert kind is AuditKind.DRIFTED
    assert detail.startswith("memory shows: slice all: inference gets 1, should get 0.5; ")
    assert driven.drive.shown.is_confirmed
    assert driven.drive.counts["drifts"] == 1


def test_a_router_that_cannot_be_asked_says_so():
    driven = Driven()
    driven.router.is_away = True
    turns(driven, 1, MOVED)
    assert (driven.drive.shown.observed, driven.drive.shown.fault) == (None, "moody: away")


def test_an_error_of_a_driver_is_an_outcome():
    driven = Driven(PermanentError("no such cluster"))
    turns(driven, 2, MOVED)
    assert [detail for _, detail in driven.said()] == ["memory: failed: no such cluster", "memory: applied"]


def test_a_fault_of_a_driver_does_not_end_the_driving():
    driven = Driven(ValueError("a bug"))

    async def scenario():
        driven.drive.want([MOVED])
        running = asyncio.create_task(driven.drive.run())
        while not driven.drive.shown.is_confirmed:  # noqa: ASYNC110  # memory tells no one
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 30))
    assert driven.drive.counts["faults"] == 1


def test_a_new_wish_is_told_at_once_and_a_renewal_is_not():
    driven = Driven()

    async def scenario():
        driven.drive.want([MOVED])
        running = asyncio.create_task(driven.drive.run())
        while not driven.drive.shown.is_confirmed:  # noqa: ASYNC110  # memory tells no one
            await asyncio.sleep(0)
        driven.drive.want([MOVED])
        for _ in range(20):
            await asyncio.sleep(0)
        assert driven.router.applies == 1
        driven.drive.want([Route(KEY, {"reference": 1.0}, revision=3)])
        while driven.router.applies < 2:  # noqa: ASYNC110  # memory tells no one
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_nothing_is_done_before_there_is_a_wish():
    driven = Driven()
    turns(driven, 1)
    assert (driven.router.applies, driven.said()) == (0, [])


def test_what_could_not_be_written_down_is_written_down_later():
    driven = Driven()
    refusals = [TransientError("the log is full")]

    async def record(entries):
        if refusals:
            raise refusals.pop()
        driven.audit += entries

    driven.drive._record = record
    with pytest.raises(TransientError, match="full"):
        turns(driven, 1, MOVED)
    turns(driven, 1)
    assert driven.said() == [(AuditKind.APPLIED, "memory: applied")]
    assert driven.drive.told == {Outcome.APPLIED: 1}
