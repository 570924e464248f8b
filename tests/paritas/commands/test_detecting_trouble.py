"""What the detection loop says of itself: its trouble by name, and its lag."""

from collections import Counter
from threading import Event

import pytest
from detection_loops import Controller, finish, make_log, make_loop, stale_records

from paritas.clock import ManualClock
from paritas.commands.detect_health import DetectTrouble, Stage
from paritas.commands.loop_reading import loop_reading
from paritas.controller.refusals import RefusalError, Refused
from paritas.records import State


@pytest.fixture(scope="module")
def records():
    return stale_records()


class Stopping:
    """Ends a loop after so many turns; counts them."""

    def __init__(self, turns):
        self.turns, self.stop, self.seen = turns, Event(), []

    def watch(self, loop):
        def on_turn():
            self.seen.append(loop.state.trouble)
            if len(self.seen) > self.turns:
                self.stop.set()

        loop.on_turn = on_turn
        loop.run(self.stop)
        return self.seen


def test_a_controller_that_is_away_is_named_until_it_is_back(records, tmp_path, caplog):
    controller, clock = Controller(refusals=3), ManualClock()
    with make_log(tmp_path / "log", records) as log, make_loop(log, tmp_path, controller, clock) as loop:
        seen = Stopping(30).watch(loop)
    troubles = [trouble for trouble in seen if trouble is not None]
    assert troubles == [DetectTrouble.CONTROLLER_UNREACHABLE] * 3
    assert seen[-1] is None
    assert loop.failures == 3
    assert [r.getMessage() for r in caplog.records] == ["Detection waits."], "said once, not three times"
    assert loop.state.stage is Stage.DRAINING


def test_a_refused_publish_waits_for_a_token_but_not_where_somebody_waits_for_the_end(records, tmp_path):
    def refuse(_):
        raise RefusalError("nobody knows you", reason=Refused.FORBIDDEN)

    controller, clock = Controller(), ManualClock()
    controller.publish = refuse
    with make_log(tmp_path / "log", records) as log:
        with make_loop(log, tmp_path / "a", controller, clock) as loop:
            seen = Stopping(30).watch(loop)
            assert seen[-1] is DetectTrouble.PUBLISH_REFUSED
            assert loop.published == 0
        with (
            pytest.raises(RefusalError, match="nobody knows you"),
            make_loop(log, tmp_path / "b", controller, clock, to_end=True) as loop,
        ):
            loop.run(Event())


def test_a_refusal_that_no_waiting_mends_ends_the_loop(records, tmp_path):
    def refuse(_):
        raise RefusalError("events[0]: no", reason=Refused.INVALID)

    controller = Controller()
    controller.publish = refuse
    with (
        make_log(tmp_path / "log", records) as log,
        pytest.raises(RefusalError, match="no"),
        make_loop(log, tmp_path, controller, ManualClock()) as loop,
    ):
        loop.run(Event())


def test_a_disk_that_refuses_the_state_is_named(records, tmp_path):
    controller, clock = Controller(), ManualClock()
    with make_log(tmp_path / "log", records) as log:
        loop = make_loop(log, tmp_path / "s", controller, clock).__enter__()
        (tmp_path / "s" / "state").mkdir(parents=True)  # where the file is to be
        assert Stopping(3).watch(loop)[-1] is DetectTrouble.STATE_NOT_SAVED


def test_the_lag_counts_what_was_not_judged(records, tmp_path):
    controller, clock = Controller(), ManualClock()
    with (
        make_log(tmp_path / "log", records) as log,
        make_loop(log, tmp_path, controller, clock, batch=10) as loop,
    ):
        assert loop_reading(loop).lag == len(records)
        loop.step()
        assert loop_reading(loop).lag == len(records) - 10
        finish(loop, clock)
        read = loop_reading(loop)
    assert (read.lag, read.records, read.published) == (0, len(records), len(controller.events))
    assert read.newest_s == ManualClock().now_ns() / 1e9
    found = Counter((v.clause, v.family, v.state.value) for v in loop.detector.verdicts())
    assert {key: n for key, n in read.verdicts.items() if n} == found
    assert sum(n for (*_, state), n in found.items() if state == "violated") > 1
    assert {state for *_, state in read.verdicts} == {state.value for state in State}
