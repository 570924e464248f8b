"""Runs of the whole chain, recorded traces → agent → topic → detector → controller, with faults in them.

At the end three detectors must say the same: the one that was killed again and again, one that
reads the same topic undisturbed, and one at the end of a chain in which nothing happened.
"""

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from system.agent_faults import HOUR_NS, KafkaCampaign, Load
from system.agent_process import AgentProcess, until
from system.chain_process import ControlProcess, DetectorProcess
from system.fault_places import Arrived, KafkaPlace, arrived
from system.fault_volume import full
from system.recorded_pairs import COPY_NS, RUNS, recorded_pair

from paritas.clock import SystemClock
from paritas.errors import TransientError
from paritas.records import State
from paritas.wire import WireRecord

CLOCK = SystemClock()
# Evidence that has only just sufficed, or only just not, depends on the order of arrival, and that on
# what was sent again: so many of some sixty verdicts may be undecided in one chain and decided in another.
EDGES = 3
OPEN = {State.UNDECIDED, State.NO_DATA}  # what a gap makes of undecided


class Bodies:
    """Requests of recorded traces, one pair of recordings after the other, as many as are asked for."""

    def __init__(self):
        self._base_ns = CLOCK.now_ns() // COPY_NS * COPY_NS  # each pair of recordings is one cohort
        self._made = []
        self.ends = [0]  # after how many a pair of recordings is complete

    def __getitem__(self, number):
        while number >= len(self._made):
            run, copy = RUNS[(len(self.ends) - 1) % len(RUNS)], len(self.ends)
            self._made += recorded_pair(run, copy, base_ns=self._base_ns)
            self.ends.append(len(self._made))
        return self._made[number]

    def end_after(self, number):
        """Smallest number of bodies from `number` on that leaves no pair of recordings half sent."""
        self[number]
        return min(end for end in self.ends if end >= number)

    @property
    def numbers(self):
        """Number of each body made so far."""
        return {body: number for number, body in enumerate(self._made)}


@dataclass
class RecordedLoad(Load):
    """A client that sends each body until it is told that it arrived, so it may arrive twice."""

    bodies: object = field(default_factory=Bodies)
    trickle_s: float = 0.05
    stop_at: int = 1 << 60
    unanswered: int = 0

    def send(self, sender):
        number = len(self.acknowledged)
        if number >= self.stop_at:
            CLOCK.wait(threading.Event(), timeout_s=self.trickle_s)
            return
        self.tried += 1
        try:
            sender.send(WireRecord(b"", self.bodies[number]))
        except TransientError:
            self.unanswered += 1
            raise
        self.acknowledged.add(number)

    def send_up_to(self, number):
        """Send at once until exactly so many bodies were taken."""
        self.stop_at, self.hurry_until = number, 1 << 60
        with self.running():
            until(lambda: len(self.acknowledged) >= number, f"{number} bodies are accepted")


@dataclass
class RecordedArrived(Arrived):
    """What a topic holds, by the number of the body sent; bytes that nobody sent are an error."""

    sent: dict = field(default_factory=dict)
    news_of_gaps: list = field(default_factory=list)

    def hold(self, origin, record):
        if not origin.agent.endswith("/own"):
            self.numbers[self.sent[record.value]] += 1
            return
        before = len(self.gaps)
        super().hold(origin, record)
        if len(self.gaps) > before:
            self.news_of_gaps.append(record.value)


class Killer:
    """Kills the detector at random moments of its lives, from a thread."""

    MOMENTS = ("starting", "judging", "saved")

    def __init__(self, detector, random):
        self.detector, self._random, self._deck = detector, random, []
        self.kills, self.waited_for_broker = Counter(), 0
        self.wrong = []

    @contextmanager
    def running(self):
        """Kill and start again during the block; there is none after it."""
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.detector.kill()

    def _run(self, stop):
        while not stop.is_set():
            self.detector.start()
            moment = self._draw()
            while not (self._has_come(moment) or CLOCK.wait(stop, timeout_s=0.02)):
                pass
            CLOCK.wait(stop, timeout_s=self._random.uniform(0.0, 0.7))
            self._end(moment, stop)

    def _draw(self):
        """A moment that has not been there yet; from the start when all have."""
        if not self._deck:
            self._deck = self._random.sample(self.MOMENTS, len(self.MOMENTS))
        return self._deck.pop()

    def _has_come(self, moment):
        told = {"starting": True, "judging": self.detector.judges, "saved": self.detector.saved}
        return told[moment] or self.detector.code() is not None

    def _end(self, moment, stop):
        code = self.detector.code()
        if code is None:
            self.detector.kill()
            self.kills[moment] += 1
        elif code == 1 and not self.detector.judges and self.detector.said("[transient]"):
            self.waited_for_broker += 1  # there was none to start with; whoever started it tries again
            CLOCK.wait(stop, timeout_s=0.5)
        else:
            self.wrong.append((code, self.detector.log.read_text()[-4000:]))


class ChainCampaign(KafkaCampaign):
    """Rounds of the whole chain; the detector dies all the time.

    Parameters
    ----------
    small : Path, optional
        A volume of few bytes for the agent's spool and the detector's state; without one no disk is ever full.
    """

    FAULTS = (*KafkaCampaign.FAULTS, "controller", "detector", "detector_clock")
    QUIET = ("detector_clock",)

    def __init__(self, folder, place, seed, small=None):
        super().__init__(folder, place, seed, small and small / "spool")
        if small:
            self.FAULTS = (*self.FAULTS, "disk")
        self.folder, self._small = folder, small
        self.control = ControlProcess(folder, "control")
        state = (small or folder) / "detector.state"
        self.detector = DetectorProcess(folder, "detector", place, self.control, state)
        self.killer = Killer(self.detector, Random(seed))
        self.in_memory, self.edges = 0, []

    def make_load(self, seed):
        return RecordedLoad(self.agent.socket, Random(seed))

    def make_arrived(self):
        return RecordedArrived(sent=self.load.bodies.numbers)

    def round(self, fault=None):
        """As before, with a detector that is killed at random moments meanwhile."""
        fault = fault or self.draw()
        if fault in self.QUIET:
            return super().round(fault)
        with self.killer.running():
            return super().round(fault)

    def _detector(self):
        """Nothing but the detector dies, at every moment once at least."""
        before = dict(self.killer.kills)
        with self.loaded():
            until(lambda: self._killed_since(before), "the detector was killed at every moment")
            self.agent.stop()

    def _killed_since(self, before):
        return all(self.killer.kills[moment] > before.get(moment, 0) for moment in Killer.MOMENTS)

    def _controller(self):
        """The controller dies under a detector that publishes."""
        with self.loaded():
            self.control.kill()
            self.agent.metrics()
            self.control.start()
            self.agent.stop()

    def _disk(self):
        """Spool and state find no room: what is accepted waits in memory."""
        with self.place.outage():
            self.agent.start()
            with full(self._small), self.load.running():
                until(lambda: self.agent.metrics().all["memory_queue_bytes", ""] > 0, "the disk is full")
        told = self.agent.drained()
        self.agent.stop()
        self.agent.start()
        self.in_memory += told.accepted - self.agent.metrics().accepted  # another life counts what is on disk
        self.agent.stop()

    def _detector_clock(self):
        """The detector's wall clock jumps a day ahead, and then back behind, while the log is silent."""
        self.detector.start()
        with self.loaded():
            until(lambda: self.detector.judges, "the detector knows the right time")
            self.agent.stop()
        for jump_ns in (24 * HOUR_NS, -24 * HOUR_NS):
            self.detector.offset.write_text(str(jump_ns))
            for _ in range(2):  # what it saves the second time it began after the jump
                self._until_saved_after(self.detector.saved_ns())
        self.detector.kill()
        self.detector.offset.write_text("0")

    def _until_saved_after(self, before_ns):
        until(lambda: self.detector.saved_ns() > before_ns, "the detector saved its state")

    def outage(self, how, outage_s):
        """The broker is away for long, while the agent accepts and the detector waits."""
        self.faults["long outage"] += 1
        self.agent.start()
        self.detector.start()
        self.load.hurry_until = 100
        with self.load.running():
            until(lambda: self.detector.saved and len(self.load.acknowledged) > 100, "the chain works")
            before = self.agent.metrics()
            getattr(self.place.broker, how)()
            self._live_through(outage_s)
            told = self.agent.metrics()
            {"kill": self.place.broker.start, "pause": self.place.broker.resume}[how]()
        self.agent.drained()
        self.agent.stop()
        assert self.detector.code() is None, self.detector.log.read_text()[-4000:]
        return before, told

    def _live_through(self, outage_s):
        """Wait so long, unless the agent or the detector gives up; the length is what is tested."""
        failed, ended = threading.Event(), threading.Event()
        watch = threading.Thread(target=self._watch, args=(failed, ended))
        watch.start()
        gave_up = CLOCK.wait(failed, timeout_s=outage_s)
        ended.set()
        watch.join()
        assert not gave_up, "the agent or the detector gave up while the broker was away"

    def _watch(self, failed, ended):
        while not CLOCK.wait(ended, timeout_s=0.5):
            try:
                self.agent.metrics()
            except (OSError, AssertionError):
                failed.set()
            if self.detector.code() is not None:
                failed.set()

    def finish(self):
        """Send the rest, and hold what was said against what undisturbed detectors say."""
        assert not self.killer.wrong, self.killer.wrong
        self.detector.kill()
        self.agent.start()
        # Whatever time a detector saw pass in silence is before these: the log tells of it too.
        self.load.send_up_to(self.load.bodies.end_after(len(self.load.acknowledged) + 1))
        self.agent.stop()
        told, found = super().finish()
        assert len(found.in_memory()) == self.in_memory
        judged = self.detector.to_end()
        assert judged.same(self.undisturbed(self.place, "undisturbed"))
        self.check_against_calm(judged, found)
        return told, found, judged

    def undisturbed(self, place, name):
        """What a detector and a controller say that nothing happens to."""
        control = ControlProcess(self.folder, f"{name}-control")
        control.start()
        try:
            return DetectorProcess(self.folder, name, place, control).to_end()
        finally:
            control.kill()

    def check_copies(self, found):
        """A body is there again only if the agent did not answer, and the client asked again."""
        assert sum(found.numbers.values()) - len(found.numbers) <= self.load.unanswered

    def check_against_calm(self, judged, found):
        """Compare with a chain of which nothing was asked but to take what has arrived, and the news of what has not."""
        folder = self.folder / "calm"
        folder.mkdir()
        place = KafkaPlace(self.place.broker, f"{self.place.topic}-calm")
        self._calm(
            folder, place, [self.load.bodies[number] for number in sorted(found.numbers)] + found.news_of_gaps
        )
        said = self.undisturbed(place, "calm-detector")
        assert without_repeats(judged) == without_repeats(said)
        ours, theirs = (sorted(one.verdicts, key=outline) for one in (judged, said))
        assert list(map(outline, ours)) == list(map(outline, theirs))
        self.edges = [
            (outline(a), a.state, b.state)
            for a, b in zip(ours, theirs, strict=True)
            if a.state is not b.state
        ]
        assert all(OPEN & set(states) for _, *states in self.edges)
        assert len(self.edges) <= EDGES

    def _calm(self, folder, place, bodies):
        agent = AgentProcess(folder, place)
        load = RecordedLoad(agent.socket, Random(0), bodies=bodies)
        agent.start()
        try:
            load.send_up_to(len(bodies))
            agent.drained()
            agent.stop()
        finally:
            agent.end()
        held = arrived(place, RecordedArrived(sent={body: number for number, body in enumerate(bodies)}))
        assert held.numbers == Counter(range(len(bodies)))

    def end(self):
        """Make sure that nothing is left running."""
        self.agent.end()
        self.detector.kill()
        self.control.kill()


def without_repeats(judged):
    """How pairs ended, but for copies of traces that had come already."""
    return {reason: n for reason, n in judged.reasons.items() if reason != "duplicate"}


def outline(verdict):
    """What does not depend on the order in which something arrived."""
    return verdict.clause, verdict.slice, verdict.units, verdict.tokens
