"""The detection loop on a real event log: nothing lost, nothing doubled, whatever interrupts it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from command_runs import recording

from paritas.agent.claim import Lost
from paritas.agent.eventlog import Cursor, EmbeddedLog, EmbeddedReader, LogSettings, Saved, SyncMode
from paritas.agent.own_spans import gap_record, health_record
from paritas.agent.reasons import DropReason
from paritas.clock import ManualClock
from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.commands.detect_health import DetectTrouble, Stage
from paritas.commands.detecting import DetectionLoop, LoopSettings, watched
from paritas.commands.ingest import alternate
from paritas.commands.loop_reading import loop_reading
from paritas.contracts.load import load_named
from paritas.controller.refusals import RefusalError, Refused
from paritas.errors import TransientError, UsageError
from paritas.records import Phase, Reason, State
from paritas.tokens import TokenHasher
from paritas.wire import Origin, WireRecord, encode, stamp

CONTRACT = load_named("dense-bf16")


@pytest.fixture(scope="module")
def records():
    """The stale recording as stamped wire records."""
    options = ReadOptions(TokenHasher(b"k" * 16), base_ns=10**18, step_ns=10_000_000)
    paths = [Path(recording(name)) for name in ("healthy.serve", "stale.train")]
    traces = alternate([read_dump(path, options) for path in paths])
    plain = [r for trace in traces for r in encode([trace], resource={})]
    return [stamp(r, Origin("test", 1, i)) for i, r in enumerate(plain)]


class Controller:
    """A real list instead of a controller: keeps what was published, may refuse at first."""

    def __init__(self, refusals=0):
        self.events = {}
        self.refusals = refusals

    def publish(self, escalations):
        if self.refusals:
            self.refusals -= 1
            raise TransientError("not now")
        for event in escalations:
            self.events.setdefault(event.event_id, event)


def make_log(folder, records):
    log = EmbeddedLog(folder, LogSettings(partitions=1, sync=SyncMode.NONE), clock=ManualClock())
    for record in records:
        log.append(record, partition_key=record.key)
    return log


def make_loop(log, folder, controller, clock, batch=64, *, contract=CONTRACT, to_end=False):
    folder.mkdir(exist_ok=True)
    return DetectionLoop(
        contract,
        log,
        Cursor(folder / "state"),
        publish=controller.publish,
        clock=clock,
        settings=LoopSettings(batch=batch, save_s=0.0, to_end=to_end),
    )


def finish(loop, clock):
    """Step to the end of the log, then let the last cohort close."""
    while loop.step():
        pass
    clock.advance(seconds=2)
    loop.step()
    loop.step()


def step_until_refused(loop, clock):
    for _ in range(100):
        clock.advance(seconds=2)
        loop.step()


def told(controller, loop):
    return [repr(e) for e in controller.events.values()], repr(loop.detector.verdicts())


@pytest.fixture(scope="module")
def undisturbed(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    controller, clock = Controller(), ManualClock()
    with make_log(folder / "log", records) as log, make_loop(log, folder, controller, clock) as loop:
        finish(loop, clock)
        result = told(controller, loop)
    assert len(result[0]) > 3
    return result


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


def test_the_state_of_another_contract_judges_the_log_again(records, tmp_path):
    controller, clock = Controller(), ManualClock()
    with make_log(tmp_path / "log", records) as log:
        with make_loop(log, tmp_path, controller, clock) as loop:
            finish(loop, clock)
        other = load_named("fp16")
        with DetectionLoop(
            other, log, Cursor(tmp_path / "state"), publish=controller.publish, clock=clock
        ) as loop:
            finish(loop, clock)
            assert loop.decoder.received == len(records)


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


# ---- another contract while it runs

STRICTER = replace(CONTRACT, version="2.0.0", digest="2" * 32)


def test_another_contract_judges_the_log_again_as_a_restart_with_it_would(records, undisturbed, tmp_path):
    restarted, taken = Controller(), Controller()
    with make_log(tmp_path / "log", records) as log:
        clock = ManualClock()
        with make_loop(log, tmp_path / "restarted", restarted, clock) as loop:
            finish(loop, clock)
        with make_loop(log, tmp_path / "restarted", restarted, clock, contract=STRICTER) as loop:
            finish(loop, clock)
            expected = told(restarted, loop)
        clock = ManualClock()
        with make_loop(log, tmp_path / "running", taken, clock) as loop:
            finish(loop, clock)
            assert told(taken, loop) == undisturbed
            loop.take_over(STRICTER)
            assert (loop.contract.version, loop.detector.contract.version) == ("2.0.0", "2.0.0")
            finish(loop, clock)
            assert repr(loop.detector.verdicts()) == expected[1]
            assert set(taken.events) == set(restarted.events)
        with make_loop(log, tmp_path / "running", taken, clock, contract=STRICTER) as loop:
            assert loop.step() == 0, "its state was saved under the new contract"


def test_what_the_old_contract_had_to_say_is_still_said(records, tmp_path):
    controller, clock = Controller(refusals=1), ManualClock()
    with make_log(tmp_path / "log", records) as log, make_loop(log, tmp_path, controller, clock) as loop:
        with pytest.raises(TransientError, match="not now"):
            step_until_refused(loop, clock)
        loop.take_over(STRICTER)
        loop.step()
        assert {e.contract_version for e in controller.events.values()} >= {"1.0.0"}


def test_a_log_that_cannot_say_where_it_begins_keeps_the_old_contract(records, tmp_path):
    class Away(EmbeddedReader):
        def start_offsets(self):
            if getattr(self, "is_away", False):
                raise TransientError("away")
            return super().start_offsets()

    with make_log(tmp_path / "log", records):
        pass
    controller, clock = Controller(), ManualClock()
    with Away(tmp_path / "log") as log, make_loop(log, tmp_path, controller, clock) as loop:
        log.is_away = True
        with pytest.raises(TransientError, match="away"):
            loop.take_over(STRICTER)
        assert loop.contract == CONTRACT


# ---- what it says of itself


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
