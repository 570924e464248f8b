"""The detection loop on a real event log: nothing lost, nothing doubled, whatever interrupts it."""

from pathlib import Path

import pytest
from command_runs import recording

from paritas.agent.eventlog import Cursor, EmbeddedLog, LogSettings, Saved, SyncMode
from paritas.clock import ManualClock
from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.commands.detecting import DetectionLoop, LoopSettings
from paritas.commands.ingest import alternate
from paritas.contracts.load import load_named
from paritas.errors import TransientError, UsageError
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


def make_loop(log, folder, controller, clock, batch=64):
    return DetectionLoop(
        CONTRACT,
        log,
        Cursor(folder / "state"),
        publish=controller.publish,
        clock=clock,
        settings=LoopSettings(batch=batch, save_s=0.0),
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
