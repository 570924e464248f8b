"""Runs of a real agent process with faults in them, and the account at the end.

As a program it is the agent of a configuration file under a wall clock that a test can move:
``python agent_faults.py CONFIG OFFSET_FILE``.
"""

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from paritas.agent.eventlog import EmbeddedReader, SegmentReader
from paritas.agent.eventlog.frames import frame_header
from paritas.agent.own_spans import GAP_SPAN
from paritas.agent.sender import Sender
from paritas.clock import SystemClock
from paritas.errors import ParitasError
from paritas.wire import WireRecord, origin_of

AGENT = "pod-7"
DEADLINE_S = 60
HOUR_NS = 3_600 * 10**9
METRIC = re.compile(r'^paritas_agent_([a-z_]+)(?:\{[a-z]+="([a-z_]+)"\})? (\S+)$', re.MULTILINE)


class OffsetClock(SystemClock):
    """The machine's clocks, with a wall clock that is off by what a file says."""

    def __init__(self, path):
        self._path = path

    def now_ns(self):
        return super().now_ns() + int(self._path.read_text() or 0)


def until(condition, what, deadline_s=DEADLINE_S):
    """Wait for a condition; returns its first true value."""
    clock, never = SystemClock(), threading.Event()
    end_ns = clock.monotonic_ns() + deadline_s * 10**9
    while clock.monotonic_ns() < end_ns:
        if value := condition():
            return value
        clock.wait(never, timeout_s=0.02)
    raise AssertionError(f"not within {deadline_s} s: {what}")


def request(number, size_bytes, scope="load"):
    """A request about one span that carries its number."""
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add()
    spans.scope.name = scope
    span = spans.spans.add(name="load", trace_id=(number + 1).to_bytes(16, "big"), span_id=b"8 bytes!")
    span.attributes.add(key="number").value.int_value = number
    span.attributes.add(key="filling").value.bytes_value = bytes(size_bytes)
    return message.SerializeToString()


@dataclass
class Load:
    """A client that sends each number once; what was not answered may or may not have arrived."""

    socket: Path
    random: Random
    hurry_until: int = 1 << 60
    tried: int = 0
    acknowledged: set = field(default_factory=set)
    refused: Counter = field(default_factory=Counter)

    @contextmanager
    def running(self):
        """Send from a thread during the block, whatever happens to the agent."""
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,))
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()

    def _run(self, stop):
        while not stop.is_set():
            try:
                with Sender(self.socket, timeout_s=10.0) as sender:
                    while not stop.is_set():
                        self.send(sender)
                        if self.tried >= self.hurry_until:  # a trickle, while the fault happens
                            SystemClock().wait(stop, timeout_s=0.01)
            except (ParitasError, OSError) as error:
                self.refused[type(error).__name__] += 1
                SystemClock().wait(stop, timeout_s=0.01)

    def send(self, sender):
        """Send the next number; remember it if the agent says that it has it."""
        number, self.tried = self.tried, self.tried + 1
        size_bytes = self.random.choice((10, 500, 5_000, 20_000))
        scope = self.random.choice(("paritas", "load"))
        sender.send(WireRecord(b"", request(number, size_bytes, scope)))
        self.acknowledged.add(number)


class AgentProcess:
    """The agent of one configuration file, started again and again."""

    def __init__(self, folder, destination, spool=None, extra=""):
        self.folder, self.destination = folder, destination
        self.spool = spool or folder / "spool"
        self.socket, self.offset, self.log = folder / "s", folder / "offset", folder / "agent.log"
        self.config, self.extra = folder / "agent.yaml", extra
        self.offset.write_text("0")
        self.configure()
        self.health = ""
        self._process = None

    def configure(self, **spool):
        told = {
            "path": str(self.spool),
            "segment_bytes": 262144,
            "limit_bytes": 1 << 28,
            "max_age": "1h",
            **spool,
        }
        fields = ", ".join(f"{name}: {value}" for name, value in told.items())
        self.config.write_text(
            f"name: {AGENT}\nspool: {{{fields}}}\nreceivers: {{unix: {{path: {self.socket}}}}}\n"
            f"destination: {self.destination.config()}\nhealth: {{listen: '127.0.0.1:0', report: 1s}}\n"
            f"shipping: {{retry_first: 50ms, retry_most: 200ms}}\n{self.extra}"
        )

    def start(self):
        with self.log.open("ab") as log:
            command = [sys.executable, __file__, str(self.config), str(self.offset)]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        for line in self._process.stdout:
            if line.startswith("  health:"):
                self.health = line.split()[1].removesuffix("/readyz")
            if line == "ready\n":
                return
        raise AssertionError(f"the agent did not start:\n{self.log.read_text()[-4000:]}")

    def kill(self):
        self._process.kill()
        self._end()

    def stop(self):
        """End it in order; returns its farewell."""
        self._process.send_signal(signal.SIGTERM)
        return self._end()

    def reload(self):
        self._process.send_signal(signal.SIGHUP)

    def _end(self):
        text, _ = self._process.communicate(timeout=DEADLINE_S)
        return text

    @property
    def pid(self):
        return self._process.pid

    def end(self):
        """Make sure that nothing is left running."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def metrics(self):
        """One scrape; the invariant is checked in each."""
        with urllib.request.urlopen(f"{self.health}/metrics", timeout=DEADLINE_S) as answer:
            found = {
                (name, label): float(value) for name, label, value in METRIC.findall(answer.read().decode())
            }
        told = Account(
            accepted=found["records_accepted_total", ""],
            delivered=found["records_delivered_total", ""],
            queued=found["records_queued", ""],
            dropped={label: n for (name, label), n in found.items() if name == "records_dropped_total" and n},
            all=found,
        )
        assert told.accepted == told.delivered + sum(told.dropped.values()) + told.queued, told
        return told

    def ready(self):
        """The text of /readyz."""
        try:
            with urllib.request.urlopen(f"{self.health}/readyz", timeout=DEADLINE_S) as answer:
                return answer.read().decode().strip()
        except urllib.error.HTTPError as error:
            return error.read().decode().strip()

    def drained(self):
        """Wait until nothing is queued; returns that scrape."""

        def empty():
            told = self.metrics()
            return told if not told.queued and not told.all["own_records_queued", ""] else None

        return until(empty, "everything delivered")


@dataclass(frozen=True)
class Account:
    """One scrape."""

    accepted: float
    delivered: float
    queued: float
    dropped: dict
    all: dict


class EmbeddedPlace:
    """An embedded event log, and its outage: somebody else holds its lock."""

    def __init__(self, folder):
        self.path = folder

    def config(self):
        return f"{{embedded: {{path: {self.path}, partitions: 2}}}}"

    @contextmanager
    def outage(self):
        """Keep an agent that starts now from opening the log."""
        self.path.mkdir(exist_ok=True)
        with (self.path / "lock").open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield

    def records(self):
        with EmbeddedReader(self.path) as log:
            for partition in range(log.partitions):
                offset = 0
                while (batch := log.read(partition, offset, limit=500)).next_offset > offset:
                    assert not batch.skipped
                    yield from (stored.record for stored in batch)
                    offset = batch.next_offset


class KafkaPlace:
    """A topic of a real broker, and its outage: the broker stands still."""

    def __init__(self, broker, topic):
        from paritas.agent.eventlog.kafka_settings import KafkaSettings, TopicSettings
        from paritas.agent.eventlog.kafka_topic import ensure_topic

        self.broker, self.topic = broker, topic
        self.settings = KafkaSettings(bootstrap=(broker.bootstrap,), topic=topic)
        ensure_topic(self.settings, TopicSettings(partitions=2))

    def config(self):
        times = "connect_timeout: 2s, request_timeout: 2s, delivery_timeout: 4s"
        return f"{{kafka: {{bootstrap: ['{self.broker.bootstrap}'], topic: {self.topic}, {times}}}}}"

    @contextmanager
    def outage(self):
        """Keep the broker from answering."""
        self.broker.pause()
        try:
            yield
        finally:
            self.broker.resume()

    def records(self):
        from paritas.agent.eventlog.kafka_reader import KafkaReader

        with KafkaReader(self.settings, clock=SystemClock()) as log:
            for partition, end in log.end_offsets().items():
                offset = log.start_offsets()[partition]
                while offset < end:
                    batch = log.read(partition, offset, limit=500)
                    yield from (stored.record for stored in batch)
                    offset = batch.next_offset


@dataclass
class Arrived:
    """What the destination holds after readers dropped repeated origins."""

    numbers: Counter = field(default_factory=Counter)
    origins: set = field(default_factory=set)
    gaps: dict = field(default_factory=dict)
    repeated: int = 0

    def take(self, record):
        origin = origin_of(record.headers)
        if origin in self.origins:
            self.repeated += 1
            return
        self.origins.add(origin)
        for source in ExportTraceServiceRequest.FromString(record.value).resource_spans:
            for scope in source.scope_spans:
                for span in scope.spans:
                    self._take(span, {one.key: one.value for one in span.attributes})

    def _take(self, span, told):
        if span.name == "load":
            self.numbers[told["number"].int_value] += 1
        elif span.name == GAP_SPAN:
            first, last = (told[f"paritas.gap.{end}_seq"].int_value for end in ("first", "last"))
            for seq in range(first, last + 1):
                self.gaps[told["paritas.gap.stream"].string_value, seq] = told[
                    "paritas.gap.reason"
                ].string_value

    def bulk(self):
        """Origins of records that came in, without the agent's own."""
        return {origin for origin in self.origins if not origin.agent.endswith("/own")}


def arrived(place):
    """Read the whole destination."""
    found = Arrived()
    for record in place.records():
        found.take(record)
    return found


class Campaign:
    """Rounds of one agent with one fault each; every choice comes from the seed."""

    FAULTS = ("kill", "torn", "corrupt", "outage", "clock", "resize", "stop")

    def __init__(self, folder, place, seed):
        self.random, self.place = Random(seed), place
        self.agent = AgentProcess(folder, place)
        self.load = Load(self.agent.socket, Random(seed))
        self.faults = Counter()

    def round(self, fault=None):
        """Start the agent, load it, let the fault happen."""
        fault = fault or self.random.choice(self.FAULTS)
        self.faults[fault] += 1
        getattr(self, f"_{fault}")()
        return fault

    def _loaded(self):
        """Load a started agent for a random while."""
        target = self.load.hurry_until = self.load.tried + self.random.randrange(5, 150)
        with self.load.running():
            until(lambda: self.load.tried >= target, "the load is sent")
            self.agent.metrics()
            yield

    @contextmanager
    def loaded(self):
        self.agent.start()
        yield from self._loaded()

    def _kill(self):
        with self.loaded():
            self.agent.kill()

    def _stop(self):
        with self.loaded():
            self.agent.stop()

    def _torn(self):
        """A frame that was begun when the power went."""
        self._kill()
        bulk, payload = self.agent.spool / "bulk", bytes(1000)
        with SegmentReader(bulk) as reader:
            frame = frame_header(payload, seq=reader.end_seq(), wall_ns=1) + payload
        with max(bulk.glob("*.seg")).open("ab") as file:
            file.write(frame[: self.random.randrange(1, len(frame))])

    def _corrupt(self):
        """A byte turned over in what waits on disk."""
        with self.place.outage():
            self._kill()
        segment = self.random.choice(sorted((self.agent.spool / "bulk").glob("*.seg")))
        content = bytearray(segment.read_bytes())
        if len(content) > 64:
            content[self.random.randrange(64, len(content))] ^= 0xFF
            segment.write_bytes(content)

    def _outage(self):
        with self.place.outage():
            self._kill()

    def _clock(self):
        """The wall clock jumps a day while records wait: none is too old, none is lost."""
        with self.place.outage(), self.loaded():
            jump_ns = self.random.choice((-24, 24)) * HOUR_NS
            self.agent.offset.write_text(str(jump_ns))
            assert "expired" not in self.agent.metrics().dropped
            self.agent.offset.write_text("0")
            self.agent.kill()

    def _resize(self):
        """Other limits while it runs."""
        self.agent.configure(segment_bytes=self.random.choice((100_000, 400_000)))
        self.agent.start()
        for _ in self._loaded():
            self.agent.configure()
            self.agent.reload()
            until(lambda: self.agent.metrics().all["config_reloads_total", "applied"] >= 1, "reloaded")
            self.agent.metrics()
        self.agent.kill()

    def finish(self):
        """Deliver the rest, and hold the account against what arrived."""
        self.agent.start()
        told = self.agent.drained()
        farewell = self.agent.stop()
        found = arrived(self.place)
        lost = self.load.acknowledged - set(found.numbers)
        assert f"stopped: {told.accepted:.0f} accepted" in farewell
        assert set(found.numbers.values()) <= {1}, "a number arrived under two origins"
        assert set(found.numbers) <= set(range(self.load.tried))
        # Delivered, not yet saved as delivered when it was killed, and then damaged on disk.
        both = sum((origin.agent, origin.seq) in found.gaps for origin in found.bulk())
        assert told.accepted == len(found.bulk()) + sum(told.dropped.values()) - both
        assert set(told.dropped) <= {"corrupt"}
        assert len(lost) <= told.dropped.get("corrupt", 0) <= self.faults["corrupt"]
        assert Counter(found.gaps.values()) == Counter({k: int(n) for k, n in told.dropped.items()})
        return told, found


class KafkaCampaign(Campaign):
    """The same, and the broker may die too."""

    FAULTS = (*Campaign.FAULTS, "broker")

    def _broker(self):
        """The broker is killed under load and started again; the agent stays."""
        with self.loaded():
            self.place.broker.kill()
            self.agent.metrics()
            self.place.broker.start()
            self.agent.stop()


def main():
    from paritas.commands.agent import serve

    return serve(Path(sys.argv[1]), clock=OffsetClock(Path(sys.argv[2])))


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main())
    os._exit(1)
