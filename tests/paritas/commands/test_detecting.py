"""The detection loop on a real event log: nothing lost, nothing doubled, whatever interrupts it."""

from collections import Counter

import pytest
from detection_loops import (
    Controller,
    finish,
    make_log,
    make_loop,
    stale_records,
    step_until_refused,
    told,
    told_undisturbed,
)

from paritas.agent.claim import Lost
from paritas.agent.eventlog import Cursor, EmbeddedReader, Saved
from paritas.agent.own_spans import gap_record, health_record
from paritas.agent.reasons import DropReason
from paritas.clock import ManualClock
from paritas.commands.detecting import watched
from paritas.errors import TransientError, UsageError
from paritas.records import Phase, Reason, State
from paritas.wire import Origin, WireRecord, stamp


@pytest.fixture(scope="module")
def records():
    return stale_records()


@pytest.fixture(scope="module")
def undisturbed(records, tmp_path_factory):
    return told_undisturbed(records, tmp_path_factory.mktemp("undisturbed"))


def test_agents_that_report_without_a_pause_do_not_keep_a_cohort_open(records, undisturbed, tmp_path):
    """Traffic ends and the reports go on, as those of sixty agents do every second."""
    controller, clock = Controller(), ManualClock()
    with (
        make_log(tmp_path / "log", records) as log,
        make_loop(log, tmp_path, controller, clock, batch=1000) as loop,
    ):
        for number in range(8):
            report = health_record("pod-7", {}, now_ns=number)
            log.append(stamp(report, Origin("pod-7", 1, number)), partition_key=report.key)
            assert loop.step()
            clock.advance(seconds=0.5)
        assert told(controller, loop)[0] == undisturbed[0]


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_batch_size_changes_nothing(records, undisturbed, tmp_path, batch):
    controller, clock = Controller(), ManualClock()
    with (
        make_log(tmp_path / "log", records) as log,
        make_loop(log, tmp_path, controller, clock, batch) as loop,
    ):
        finish(loop, clock)
        assert told(controller, loop) == undisturbed


@pytest.mark.parametrize("every", [1, 5, 40])
def test_a_process_killed_at_any_record_changes_nothing(records, undisturbed, tmp_path, every):
    """Abandon the loop without closing it after every few records, at positions between two saves too."""
    controller, clock = Controller(), ManualClock()
    with make_log(tmp_path / "log", records) as log:
        for round_number in range(len(records) // every + 2):
            loop = make_loop(log, tmp_path, controller, clock, batch=every).__enter__()
            loop.step()
            if round_number % 3 == 2:  # this one dies after publishing, before its state is saved
                state = Cursor(tmp_path / "state").load()
                loop.step()
                Cursor(tmp_path / "state").save(state)
        with make_loop(log, tmp_path, controller, clock) as loop:
            finish(loop, clock)
            assert told(controller, loop) == undisturbed


def test_repeated_records_change_nothing(records, undisturbed, tmp_path):
    controller, clock = Controller(), ManualClock()
    doubled = [r for record in records for r in (record, record)]
    with make_log(tmp_path / "log", doubled) as log, make_loop(log, tmp_path, controller, clock) as loop:
        finish(loop, clock)
        assert told(controller, loop) == undisturbed
        assert loop.detector.repeated_records == len(records)


def test_a_refusing_controller_is_asked_again_and_nothing_is_lost(records, undisturbed, tmp_path):
    controller, clock = Controller(refusals=5), ManualClock()
    with make_log(tmp_path / "log", records) as log, make_loop(log, tmp_path, controller, clock) as loop:
        for _ in range(5):
            with pytest.raises(TransientError, match="not now"):
                step_until_refused(loop, clock)
        finish(loop, clock)
        assert told(controller, loop) == undisturbed


def test_garbage_in_the_log_is_counted_and_passed_over(records, undisturbed, tmp_path):
    controller, clock = Controller(), ManualClock()
    garbage = WireRecord(b"0" * 32, b"\xff\xff not protobuf", ())
    mixed = [r for record in records for r in (record, garbage)]
    with make_log(tmp_path / "log", mixed) as log, make_loop(log, tmp_path, controller, clock) as loop:
        finish(loop, clock)
        assert told(controller, loop) == undisturbed
        assert loop.decoder.refused == {"not_otlp": len(records)}


def test_the_state_of_another_log_is_refused(records, tmp_path):
    Cursor(tmp_path / "state").save(Saved("f" * 32, {0: 3}, b""))
    with make_log(tmp_path / "log", records[:2]) as log:
        loop = make_loop(log, tmp_path, Controller(), ManualClock())
        with pytest.raises(UsageError) as caught:
            loop.__enter__()
    assert str(caught.value) == f"{tmp_path}/state: the state belongs to another event log"
    assert caught.value.hint == "move it away to judge this log from its start"


def gap(n):
    """What an agent says when it has lost `n` records."""
    return gap_record("pod-7", "pod-7", Lost(range(5, 5 + n), DropReason.OVERFLOW), now_ns=1)


def test_what_an_agent_lost_is_missing_and_said(records, undisturbed, tmp_path):
    controller, clock = Controller(), ManualClock()
    told_health = health_record("pod-7", {"health": "not ready: target_refuses"}, now_ns=1)
    with (
        make_log(tmp_path / "log", [*records, gap(40), told_health]) as log,
        make_loop(log, tmp_path, controller, clock) as loop,
    ):
        finish(loop, clock)
        reasons = {v.reason for v in loop.detector.verdicts() if v.state is not State.VIOLATED}
        assert Reason.GAP in reasons
        assert not any(v.state is State.CONFORMING for v in loop.detector.verdicts() if v.units)
        said = "; 1 agent heard, 1 not ready (pod-7); records lost on the way: 40 overflow"
        assert watched(loop) == said


def damage(folder, value):
    """Turn a byte over where a value is stored."""
    [segment] = [path for path in folder.rglob("*.seg") if value in path.read_bytes()]
    content = bytearray(segment.read_bytes())
    content[content.index(value) + 20] ^= 0xFF
    segment.write_bytes(content)


def test_what_the_log_itself_lost_is_missing_too(records, tmp_path):
    """A byte turned over in a segment: the frame is skipped, and the detector knows."""
    controller, clock = Controller(), ManualClock()
    with make_log(tmp_path / "log", records) as log:
        log.flush()
    damage(tmp_path / "log", records[3].value)
    with EmbeddedReader(tmp_path / "log") as log, make_loop(log, tmp_path, controller, clock) as loop:
        finish(loop, clock)
        assert loop.skipped == {"corrupt": 1}
        assert loop.detector.gaps.lost == {"corrupt": 1}
        assert loop.detector.gaps.streams == {"log/0": 1}
        assert watched(loop) == "; records lost on the way: 1 corrupt"


def doubled(controller):
    """Events that tell a transition for the second time."""
    seen = Counter()
    for event in controller.events.values():
        seen[event.incident_id, event.transition] += 1
        if seen[event.incident_id, event.transition] > 1:
            yield event


def test_what_still_fires_is_renewed_before_it_would_be_old_news(records, tmp_path):
    controller, clock = Controller(), ManualClock()
    with make_log(tmp_path / "log", records) as log, make_loop(log, tmp_path, controller, clock) as loop:
        finish(loop, clock)
        assert list(doubled(controller)) == []
        clock.advance(seconds=240)
        loop.step()
        renewed = list(doubled(controller))
    assert {event.after for event in renewed} <= {Phase.FIRING, Phase.RECOVERING}
    assert renewed
    assert {event.valid_until_ns for event in renewed} == {clock.now_ns() + 600 * 10**9}
