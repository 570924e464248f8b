"""Any number of pairing operators, any interleaving, restarts anywhere: what one process says."""

import pickle
import random
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pair_factory import NS
from trace_streams import LOST, stream, watched

from paritas.agent.claim import Lost
from paritas.agent.own_spans import gap_record
from paritas.agent.reasons import DropReason
from paritas.contracts.model import Compare
from paritas.detectors.decode import Decoder
from paritas.detectors.flink.evaluation import OrderedEvaluation
from paritas.detectors.flink.events import Arrival, Arrived
from paritas.detectors.flink.pairing import KeyedPairing
from paritas.detectors.pipeline import Detector
from paritas.records import PairReason
from paritas.wire import encode

MS = 1_000_000
# Halves are given up after three seconds; or they wait, and pairs of cohorts whose grace is over leave one by one.
CONTRACTS = {
    n: replace(watched(), compare=Compare(pair_within_s=s)) for n, s in (("hasty", 3.0), ("patient", 600.0))
}
SILENCES = {
    60: 0.5,
    100: 1.0,
    150: 2.5,
    180: 15.0,
    200: 15.0,
    220: 15.0,
    260: 4.0,
    290: 15.0,
    330: 90.0,
}  # record → seconds of silence before it
START_NS = 1_700_000_000 * NS


def traces():
    """The stream; three senders' clocks are years ahead, and one that stays alone begins after its end, labelled otherwise."""
    found = stream(180)
    for i in (40, 90, 200):
        found[i] = replace(found[i], event_ns=START_NS + 10**17)
    place = next(i for i, trace in enumerate(found) if trace.sequence_id == f"s-{LOST[0]:04}")
    begin = replace(found[place], final=False)
    end = replace(begin, start=len(begin) + 1, attributes={"replica": "other"})
    return [*found[:place], end, begin, *found[place + 1 :]]


@cache
def log():
    """Arrivals in the order of the log: two partitions, copies, garbage, silences, equal times, late halves."""
    made, now_ns, rng = [], START_NS, random.Random(5)
    values = [(r.key.decode(), r.value) for t in traces() for r in encode([t], resource={})]
    for i, (key, value) in enumerate(values):
        now_ns += rng.choice((0, 0, 0, 1, 40)) * MS + round(SILENCES.get(i, 0) * NS)
        partition = int(key[:2], 16) % 2
        record = Arrival(now_ns, partition, i, ("agent", "1", str(i)), value)
        made.append((key, record))
        if i % 17 == 3:  # sent again by its agent, and by an agent that does not say who it is
            made.append((key, replace(record, offset=1000 + i)))
            made.append((key, replace(record, offset=2000 + i, origin=())))
        if i % 61 == 30:
            lost = gap_record("agent", "agent", Lost(range(i, i + 3), DropReason.OVERFLOW), now_ns=1)
            made.append((lost.key.decode(), Arrival(now_ns, 1, 4000 + i, (), lost.value)))
        if i % 29 == 11:
            made.append(("0" * 32, Arrival(now_ns, 0, 3000 + i, (), b"\xff no span")))
    return sorted(made, key=lambda item: (item[1].log_ns, item[1].partition, item[1].offset))


@cache
def one_process(name):
    """What the detector of one process says of the log."""
    detector, decoder = Detector(CONTRACTS[name], deployment="d"), Decoder()
    names = ("paritas-agent", "paritas-epoch", "paritas-seq")
    said = []
    for _, record in log():
        if not detector.is_repeat(dict(zip(names, record.origin, strict=False))):
            held = decoder.take(record.value)
            said += detector.process(held.traces, record.log_ns, gaps=held.gaps)
    said += detector.flush(log()[-1][1].log_ns)
    return [repr(e) for e in said], [repr(v) for v in detector.verdicts()], dict(detector.evaluator.reasons)


class Lane:
    """One pairing operator: keyed state, events that wait for delivery."""

    def __init__(self, contract):
        self.compare = contract.compare
        self.states, self.decoder, self.sent = {}, Decoder(), []

    def take(self, key, record):
        event = self.states.setdefault(key, KeyedPairing(self.compare)).take(record, self.decoder)
        self.sent += [] if event is None else [event]

    def restart(self):
        self.states = pickle.loads(pickle.dumps(self.states))


def on_flink(name, rng, lanes, *, restarts=False):
    """Run the log through `lanes` operators that run ahead of each other as they like."""
    machine, said = OrderedEvaluation(CONTRACTS[name], deployment="d"), []
    workers = [Lane(CONTRACTS[name]) for _ in range(lanes)]
    queues = [[item for item in log() if int(item[0][-2:], 16) % lanes == i] for i in range(lanes)]
    while any(queues):
        lane = rng.choice([i for i in range(lanes) if queues[i]])
        size = rng.randint(1, 40)
        for key, record in queues[lane][:size]:
            workers[lane].take(key, record)
        del queues[lane][:size]
        watermark_ns = min((q[0][1].log_ns - MS for q in queues if q), default=log()[-1][1].log_ns)
        said += deliver(rng, machine, workers, watermark_ns)
        if restarts and rng.random() < 0.3:
            machine = pickle.loads(pickle.dumps(machine))
            workers[lane].restart()
    deliver(rng, machine, workers, 0)
    said += machine.flush()
    return (
        [repr(e) for e in said],
        [repr(v) for v in machine.verdicts()],
        dict(machine.detector.evaluator.reasons),
    )


def deliver(rng, machine, workers, watermark_ns):
    """Let the watermark pass the operators; what they sent arrives before it, in any order."""
    sent = [event for worker in workers for event in worker.sent]
    rng.shuffle(sent)
    for event in sent:
        machine.put(event)
    for worker in workers:
        worker.sent.clear()
    return list(machine.advance(watermark_ns))


def test_the_log_has_everything_that_can_go_differently():
    events, _, reasons = one_process("hasty")
    assert len(events) > 4
    assert {PairReason.PAIRED, PairReason.UNMATCHED, PairReason.DUPLICATE, PairReason.LATE} <= set(reasons)
    patient = one_process("patient")
    assert patient[1] != one_process("hasty")[1]
    assert PairReason.LATE not in patient[2]
    assert any("gap" in verdict for verdict in patient[1])


@pytest.mark.parametrize("name", CONTRACTS)
@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
@settings(max_examples=2, phases=(Phase.generate,))  # a failure is told at once, shrinking takes minutes
@given(rng=st.randoms(use_true_random=False))
def test_any_number_of_operators_says_what_one_process_says(name, lanes, rng):
    assert on_flink(name, rng, lanes) == one_process(name)


@pytest.mark.parametrize("name", CONTRACTS)
@settings(max_examples=1, phases=(Phase.generate,))
@given(rng=st.randoms(use_true_random=False))
def test_restarts_from_its_state_change_nothing(name, rng):
    assert on_flink(name, rng, 2, restarts=True) == one_process(name)


@given(st.randoms(use_true_random=False))
def test_events_of_one_time_are_in_the_order_of_the_log(rng):
    events = [Arrived(t, p, o, ()) for t in (5, 6) for p in (0, 1) for o in (3, 20)]
    shuffled, machine = events[:], OrderedEvaluation(CONTRACTS["hasty"])
    rng.shuffle(shuffled)
    for event in shuffled:
        machine.put(event)
    assert [event for _, _, event in sorted(machine._waiting)] == events


def test_what_is_on_its_way_while_silence_gives_up_on_its_sequence_is_late():
    """Both halves were taken by an operator in time; the second one's event comes after a long silence here."""
    lane, machine = Lane(CONTRACTS["hasty"]), OrderedEvaluation(CONTRACTS["hasty"])
    pair = next((a, b) for a, b in pairwise(traces()) if a.sequence_id == b.sequence_id)
    for i, trace in enumerate(pair):
        ((_, value),) = ((r.key, r.value) for r in encode([trace], resource={}))
        lane.take("k", Arrival(START_NS + i, 0, i, (), value))
    first, second = lane.sent
    machine.put(first)
    list(machine.pass_time(START_NS + 60 * NS))
    machine.put(second)
    list(machine.flush())
    assert machine.detector.evaluator.reasons == {PairReason.UNMATCHED: 1, PairReason.LATE: 1}
