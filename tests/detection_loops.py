"""A detection loop on a real event log of a shipped recording, and a list that stands for its controller."""

from pathlib import Path

from command_runs import recording

from paritas.agent.eventlog import Cursor, EmbeddedLog, LogSettings, SyncMode
from paritas.clock import ManualClock
from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.commands.detecting import DetectionLoop, LoopSettings
from paritas.commands.ingest import alternate
from paritas.contracts.load import load_named
from paritas.errors import TransientError
from paritas.tokens import TokenHasher
from paritas.wire import Origin, encode, stamp

CONTRACT = load_named("dense-bf16")


def stale_records():
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


def told_undisturbed(records, folder):
    """What is told where nothing interrupts."""
    controller, clock = Controller(), ManualClock()
    with make_log(folder / "log", records) as log, make_loop(log, folder, controller, clock) as loop:
        finish(loop, clock)
        result = told(controller, loop)
    assert len(result[0]) > 3
    return result
