"""`paritas ingest --every`: recordings as traffic that never ends, into an agent of its own or a running instance."""

import signal
import subprocess
import sys
import threading
from itertools import groupby, islice
from pathlib import Path

import pytest
from command_runs import recording, run, service, until

from paritas.agent.eventlog import EmbeddedReader
from paritas.clock import ManualClock
from paritas.collectors.dumps import ReadOptions
from paritas.commands.ingest_passes import Passes, PatientSender, paced
from paritas.commands.places import DataFolder
from paritas.detectors.decode import Decoder
from paritas.errors import TransientError
from paritas.tokens import TokenHasher
from paritas.wire.sender import Sender

HEALTHY = (recording("healthy.serve"), recording("healthy.train"))
OPTIONS = ReadOptions(TokenHasher(b"an example key, not a secret one"), step_ns=10_000_000)


def appended(log):
    with EmbeddedReader(log) as reader:
        return sum(reader.end_offsets().values())


def traces(log):
    """Every trace that a log holds."""
    decoder, found = Decoder(), []
    with EmbeddedReader(log) as reader:
        for partition, start in reader.start_offsets().items():
            for stored in reader.read(partition, start, limit=10_000):
                found.extend(decoder.take(stored.record.value).traces)
    return found


def test_each_pass_is_new_sequences_of_its_own_moment():
    clock, stop = ManualClock(), threading.Event()
    paths = tuple(Path(path) for path in HEALTHY)
    start_ns = clock.now_ns()
    items = list(paced(Passes(20.0, (paths,), 3), OPTIONS, clock=clock, stop=stop))
    assert len(items) == 3 * 96
    names = {(item.sequence_id, item.kernel.role) for item in items}
    assert len(names) == 3 * 96
    assert [items[96 * n].event_ns - start_ns for n in range(3)] == [0, 20 * 10**9, 40 * 10**9]
    by_name = {}
    for item in items:
        by_name.setdefault(item.sequence_id, set()).add(item.event_ns)
    assert all(len(times) == 1 for times in by_name.values())  # both kernels of a pair: one time


def test_a_stop_ends_a_pass_in_its_middle():
    clock, stop = ManualClock(), threading.Event()
    items = paced(Passes(20.0, ((Path(HEALTHY[0]),),)), OPTIONS, clock=clock, stop=stop)
    next(items)
    stop.set()
    assert list(items) == []


def test_a_stop_ends_passes_that_hold_nothing():
    stop = threading.Event()
    stop.set()
    assert list(paced(Passes(1.0, ((),)), OPTIONS, clock=ManualClock(), stop=stop)) == []


def test_acts_take_turns_for_ever_and_one_alone_ends():
    one, other = (Path("a"), Path("b")), (Path("a"), Path("c"))
    turns = list(islice(Passes(1.0, (one, other), 2).plan(), 7))
    assert turns == [(0, one), (0, one), (1, other), (1, other), (2, one), (2, one), (3, other)]
    assert list(Passes(1.0, (one,), 2).plan()) == [(0, one)] * 2
    assert list(islice(Passes(1.0, (one,)).plan(), 5)) == [(0, one)] * 5


def test_each_turn_of_an_act_is_a_version_of_the_weights():
    clock, acts = ManualClock(), ((Path(HEALTHY[1]),), (Path(recording("stale.train")),))
    items = paced(Passes(1.0, acts, 2), OPTIONS, clock=clock, stop=threading.Event())
    versions = [item.weights_version for item in islice(items, 48 * 5)]
    assert [len(list(group)) for _, group in groupby(versions)] == [96, 96, 48]
    assert versions == sorted(versions)
    once = paced(Passes(1.0, acts[:1], 1), OPTIONS, clock=clock, stop=threading.Event())
    assert {item.weights_version for item in once} == {""}


class Refusing:
    """A receiver's front that refuses the first records, as an agent that starts again does; nothing real can be told when."""

    def __init__(self, refusals):
        self.refusals, self.taken = refusals, []

    def send(self, record):
        if self.refusals:
            self.refusals -= 1
            raise TransientError("away")
        self.taken.append(record)


def test_a_record_is_sent_until_it_is_taken():
    receiver, stop = Refusing(3), threading.Event()
    clock = ManualClock()
    start_ns = clock.monotonic_ns()
    PatientSender(receiver, clock=clock, stop=stop).send("record")
    assert receiver.taken == ["record"]
    assert clock.monotonic_ns() - start_ns == 3 * 500_000_000


def test_whoever_is_told_to_stop_does_not_wait_for_the_receiver():
    receiver, stop = Refusing(10**9), threading.Event()
    stop.set()
    PatientSender(receiver, clock=ManualClock(), stop=stop).send("record")
    assert receiver.taken == []


def test_two_passes_over_the_agents_socket_are_judged_as_new_traffic(tmp_path):
    with service(tmp_path / "d"):
        socket = DataFolder(tmp_path / "d").socket
        told = ("--data", tmp_path / "own", "--agent", f"unix:{socket}", "--every", "100ms", "--passes", "2")
        done = run("ingest", *told, *HEALTHY)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "sent 96 inference sequences, 96 train sequences in 192 records\n"
        until(lambda: appended(tmp_path / "d" / "log") >= 192)
    found = traces(tmp_path / "d" / "log")
    assert len({trace.sequence_id for trace in found}) == 96
    assert (tmp_path / "own" / "token.key").stat().st_mode & 0o077 == 0


def test_it_goes_on_until_it_is_told_to_stop(tmp_path):
    with service(tmp_path / "d"):
        command = [str(Path(sys.executable).with_name("paritas")), "ingest", "--data", str(tmp_path / "d")]
        process = subprocess.Popen(
            [*command, "--every", "50ms", *HEALTHY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            until(lambda: appended(tmp_path / "d" / "log") >= 3 * 96)
            process.send_signal(signal.SIGTERM)
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert (process.returncode, stderr) == (0, "")
    assert stdout.startswith("sent ")


def test_no_agent_there_is_one_clear_error(tmp_path):
    done = run("ingest", "--data", tmp_path, "--agent", f"unix:{tmp_path}/none.sock", HEALTHY[0])
    assert (done.returncode, done.stderr) == (
        64,
        f"[usage] nobody listens on unix:{tmp_path}/none.sock\n  hint: is the agent up?\n",
    )
    with pytest.raises(Exception, match="nobody listens"), Sender(tmp_path / "none.sock"):
        pass


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ("--every", "soon"),
            "[usage] --every 'soon' is no duration\n  hint: write 15s or 1m\n",
        ),
        (("--passes", "2"), "[usage] --passes and --then need --every\n  hint: such as --every 15s\n"),
        (
            ("--every", "1s", "--then", HEALTHY[0]),
            "[usage] --then needs --passes\n  hint: the first recordings would never end\n",
        ),
        (
            ("--every", "0s"),
            "[usage] --every and --passes must be above 0\n  hint: such as --every 15s --passes 4\n",
        ),
        (
            ("--every", "1s", "--follow"),
            "[usage] --every and --follow exclude each other\n  hint: a growing file has no end to repeat\n",
        ),
        (
            ("--agent", "agent:4318"),
            "[usage] --agent is 'agent:4318'\n  hint: ",
        ),
    ],
)
def test_options_that_make_no_sense_are_told(tmp_path, options, says):
    done = run("ingest", HEALTHY[0], "--data", tmp_path, *options)
    assert done.returncode == 64
    assert done.stderr.startswith(says)
