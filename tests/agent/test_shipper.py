"""Shipping, step by step, under a clock that a test moves."""

from random import Random

import pytest
from agent_scenes import AGENT, DOWN, Place, holds, record, spool_at

from paritas.agent.config import ShippingSettings
from paritas.agent.eventlog import SegmentReader
from paritas.agent.eventlog.records import unpack
from paritas.agent.retry import Backoff
from paritas.agent.shipper import IDLE_S, Pause, Shipper, Wait
from paritas.clock import ManualClock
from paritas.errors import UsageError


class Scene:
    """A spool, a shipper and a destination that does what it is told."""

    def __init__(self, path, **settings):
        self.clock, self.place, self.opened = ManualClock(), Place(), 0
        self.spool = spool_at(path, self.clock)
        self.settings = ShippingSettings(**{"gather_s": 0.0, **settings})

    def __enter__(self):
        self.spool.__enter__()
        self.shipper = Shipper(self.spool, self.open, self.settings, clock=self.clock, random=Random(1))
        return self

    def __exit__(self, *_):
        self.shipper.close()
        self.spool.close()

    def open(self):
        self.opened += 1
        return self.place

    def append(self, *numbers, size=10):
        self.spool.append([record(n, size) for n in numbers])

    def run(self, most=100):
        """Step until there is something to wait for; returns that pause."""
        for _ in range(most):
            pause = self.shipper.step()
            holds(self.spool)
            if pause.wait is not Wait.NOTHING:
                return pause
        raise AssertionError("never waits")


@pytest.fixture
def scene(tmp_path):
    with Scene(tmp_path) as scene:
        yield scene


def test_records_arrive_in_order_stamped_and_are_counted(scene):
    scene.append(*range(10))
    assert scene.run().wait is Wait.RECORDS
    assert scene.place.numbers() == list(range(10))
    assert [(origin.agent, origin.seq) for origin in scene.place.origins()] == [(AGENT, n) for n in range(10)]
    told = holds(scene.spool)
    assert (told.delivered, told.queued) == (10, 0)


def test_why_records_wait_is_said_once_for_each_reason(scene, caplog):
    scene.append(0)
    for failing in (DOWN, DOWN, UsageError("/nope: no such file", hint="name it"), DOWN, None, DOWN):
        scene.place.failing = failing
        scene.append(1)
        scene.clock.advance(seconds=scene.run().seconds)
    said = [(line.message, line.error) for line in caplog.records]
    assert said == [
        ("Shipping waits.", str(e)) for e in (DOWN, UsageError("/nope: no such file"), DOWN, DOWN)
    ]


def test_a_failure_is_tried_again_after_a_growing_wait_and_never_given_up(scene):
    scene.append(0)
    scene.place.failing = DOWN
    waits = []
    for _ in range(200):
        pause = scene.run()
        assert pause.wait is Wait.TIME
        waits.append(pause.seconds)
        scene.clock.advance(seconds=pause.seconds)
    assert max(waits) <= 30.0
    assert max(waits) > 20.0
    assert waits[0] <= 0.5
    scene.place.failing = None
    scene.run()
    assert scene.place.numbers() == [0]
    assert scene.shipper.state().retried == 200
    assert scene.shipper.state().failures == 0


def test_only_what_was_not_acknowledged_is_sent_again(scene):
    scene.append(*range(10))
    scene.place.failing, scene.place.takes = DOWN, 4
    scene.run()
    assert holds(scene.spool).delivered == 4
    scene.place.failing = None
    scene.run()
    assert scene.place.numbers() == list(range(10))


def test_a_refused_record_becomes_a_dead_letter_and_blocks_nobody(scene):
    scene.place.refuses = {3}
    scene.append(*range(6))
    scene.run()
    told = holds(scene.spool)
    assert scene.place.numbers() == [0, 1, 2, 4, 5]
    assert (told.delivered, told.dropped, scene.spool.counters().dead_letters) == (5, {"rejected": 1}, 1)
    with SegmentReader(scene.spool.settings.path / "dead") as dead:
        [(_, frame)] = dead.read(0, limit=9).frames
    kept = unpack(frame.payload)
    assert kept.value == record(3).value
    assert dict(kept.headers)["paritas-refused"] == b"never"
    assert dict(kept.headers)["paritas-seq"] == b"3"


def test_a_destination_that_needs_a_person_keeps_the_data_and_is_opened_afresh(scene):
    scene.append(0)
    scene.place.failing = UsageError("no such topic")
    scene.run()
    assert (scene.shipper.state().is_refused, scene.shipper.state().error) == (True, "no such topic")
    assert scene.place.closed == 1
    assert holds(scene.spool).queued == 1
    scene.place.failing = None
    scene.run()
    assert scene.opened == 2
    assert not scene.shipper.state().is_refused
    assert scene.place.numbers() == [0]


def test_an_opener_that_fails_is_a_failure_like_another(scene):
    scene.append(0)
    open_, scene.shipper._opener = scene.open, lambda: (_ for _ in ()).throw(DOWN)
    assert scene.run().wait is Wait.TIME
    scene.shipper._opener = open_
    scene.run()
    assert scene.place.numbers() == [0]


def test_the_position_is_saved_when_nothing_waits_and_once_a_second_while_busy(tmp_path):
    with Scene(tmp_path, batch_records=1) as scene:
        saved = []
        scene.spool.commit = lambda: saved.append(scene.clock.monotonic_ns())
        scene.append(*range(40))
        for _ in range(20):
            scene.shipper.step()
            scene.clock.advance(seconds=0.1)
        assert len(saved) == 2
        while scene.run() != Pause(Wait.RECORDS, IDLE_S):
            scene.clock.advance(seconds=0.11)
        count = len(saved)
        assert count >= 3
        scene.clock.advance(seconds=5)
        scene.run()
        assert len(saved) == count  # nothing new, nothing to save


def test_the_rate_cap_spreads_a_backlog(tmp_path):
    with Scene(tmp_path, batch_records=10, max_records_per_s=20.0) as scene:
        scene.append(*range(100))
        began_ns = scene.clock.monotonic_ns()
        while (pause := scene.run()).wait is Wait.TIME:
            scene.clock.advance(seconds=pause.seconds)
        took_s = (scene.clock.monotonic_ns() - began_ns) / 1e9
        assert scene.place.numbers() == list(range(100))
        assert 3.0 < took_s <= 5.0


def test_another_destination_gets_what_the_old_one_did_not_take(scene):
    scene.append(0, 1, 2)
    scene.place.failing, scene.place.takes = DOWN, 1
    scene.run()
    other = Place()
    scene.shipper.reconfigure(lambda: other, ShippingSettings(backoff=Backoff(0.1, 1.0)))
    scene.run()
    assert scene.place.closed == 1
    assert (scene.place.numbers(), other.numbers()) == ([0], [1, 2])


def test_what_is_given_back_is_taken_again(scene):
    scene.append(0, 1)
    scene.place.failing = DOWN
    scene.run()
    scene.shipper.give_back()
    assert holds(scene.spool).queued == 2
    scene.place.failing = None
    scene.run()
    assert scene.place.numbers() == [0, 1]


def test_memory_only_records_that_were_not_acknowledged_at_the_end_are_counted(tmp_path, monkeypatch):
    scene = Scene(tmp_path)
    with scene:
        monkeypatch.setattr(scene.spool._bulk, "append", lambda _: (_ for _ in ()).throw(DOWN))
        scene.append(0, 1, 2)
        scene.place.failing, scene.place.takes = DOWN, 1
        scene.run()
    told = holds(scene.spool)
    assert (told.accepted, told.delivered, told.dropped) == (3, 1, {"shutdown": 2})


def test_a_few_records_gather_and_many_or_the_first_leave_at_once(tmp_path):
    with Scene(tmp_path, batch_records=40, gather_s=0.5) as scene:
        scene.append(0)
        assert scene.run().wait is Wait.RECORDS
        scene.append(1)
        pause = scene.run()
        assert (pause.wait, scene.place.numbers()) == (Wait.TIME, [0])
        scene.append(*range(2, 9))
        scene.clock.advance(seconds=pause.seconds)
        scene.run()
        assert (scene.place.numbers(), scene.place.calls) == (list(range(9)), 2)
        scene.append(*range(9, 19))  # a quarter of a batch
        scene.run()
        assert (scene.place.numbers(), scene.place.calls) == (list(range(19)), 3)


def test_gap_and_health_records_go_first(scene):
    scene.append(0)
    scene.spool.tell(record(7))
    scene.run()
    assert scene.place.numbers() == [7, 0]
    assert [origin.agent for origin in scene.place.origins()] == [f"{AGENT}/own", AGENT]
    assert scene.spool.counters().own.delivered == 1
    assert holds(scene.spool).delivered == 1
