"""Runs of a real agent process with faults in them, and the account at the end."""

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from system.agent_process import AgentProcess, until
from system.fault_places import Arrived, arrived

from paritas.agent.eventlog import SegmentReader
from paritas.agent.eventlog.frames import frame_header
from paritas.clock import SystemClock
from paritas.errors import ParitasError
from paritas.wire import WireRecord
from paritas.wire.sender import Sender

HOUR_NS = 3_600 * 10**9


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
    trickle_s: float = 0.01
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
                            SystemClock().wait(stop, timeout_s=self.trickle_s)
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


class Campaign:
    """Rounds of one agent with one fault each; every choice comes from the seed."""

    FAULTS = ("kill", "torn", "corrupt", "outage", "clock", "resize", "stop")

    def __init__(self, folder, place, seed, spool=None):
        self.random, self.place = Random(seed), place
        self.agent = AgentProcess(folder, place, spool)
        self.load = self.make_load(seed)
        self.faults, self._deck = Counter(), []

    def make_load(self, seed):
        return Load(self.agent.socket, Random(seed))

    def round(self, fault=None):
        """Start the agent, load it, let the fault happen."""
        fault = fault or self.draw()
        self.faults[fault] += 1
        getattr(self, f"_{fault}")()
        return fault

    def draw(self):
        """A fault that has not been there yet; from the start when all have."""
        if not self._deck:
            self._deck = self.random.sample(self.FAULTS, len(self.FAULTS))
        return self._deck.pop()

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
        assert f"stopped: {told.accepted:.0f} accepted" in farewell
        found = arrived(self.place, self.make_arrived())
        self.check_account(told, found)
        return told, found

    def make_arrived(self):
        return Arrived()

    def check_account(self, told, found):
        """Accepted is what is there and what is told as lost; nothing else is missing."""
        self.check_copies(found)
        lost = self.load.acknowledged - set(found.numbers)
        # Delivered, not yet saved as delivered when it was killed, and then damaged on disk.
        both = sum((origin.agent, origin.seq) in found.gaps for origin in found.bulk())
        assert told.accepted == len(found.bulk()) + sum(told.dropped.values()) - both
        assert set(told.dropped) <= {"corrupt"}
        assert len(lost) <= told.dropped.get("corrupt", 0) <= self.faults["corrupt"]
        assert Counter(found.gaps.values()) == Counter({k: int(n) for k, n in told.dropped.items()})

    def check_copies(self, found):
        """Each number was sent once, so it is there once."""
        assert set(found.numbers.values()) <= {1}, "a number arrived under two origins"
        assert set(found.numbers) <= set(range(self.load.tried))


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
