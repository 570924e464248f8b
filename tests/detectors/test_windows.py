"""Windows: what starts together is one unit of a runtime clause, however the input is cut."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import BY_REPLICA, EVERYTHING, NS, both, clause, contract, lost, pair, paired

from paritas.contracts.model import FalseAlarms, Family, Slice, Stage
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.pipeline import Detector
from paritas.detectors.slices import SliceBook
from paritas.detectors.verdicts import verdicts
from paritas.detectors.windows import WindowBook
from paritas.records import KernelIdentity, PairReason, Reason, Role, State, Timings

TTFT = clause("time_to_first_token", 1.0, Family.RUNTIME, quantile=0.9, window_s=1.0)
ITL = clause("inter_token_latency", 0.1, Family.RUNTIME, quantile=0.9, window_steps=4)


def request(start_s, ttft_s=0.5, itl_s=float("nan"), **more):
    """Return the outcome of a request that started then."""
    more.setdefault("name", f"s-{start_s}")
    one = pair([0.0], event_ns=round(start_s * NS), timings=Timings(ttft_s=ttft_s), itl_mean_s=itl_s, **more)
    return paired(one)


def judged(whole, outcomes, *, cuts=()):
    """Return what changed, in order, and the verdicts in the end."""
    evaluator, edges = Evaluator(whole, stage=Stage.FULL, recover=True), [0, *sorted(cuts), len(outcomes)]
    changes = []
    for start, stop in pairwise(edges):
        for crossing in evaluator.observe(outcomes[start:stop]):
            told = [repr(v) for v in verdicts(evaluator) if v.state is State.VIOLATED]
            changes.append((repr(replace(crossing, index=0)), told))
    changes += [repr(replace(crossing, index=0)) for crossing in evaluator.close_windows(is_end=True)]
    return changes, [repr(v) for v in verdicts(evaluator)]


def verdict_on(asked, outcomes, **more):
    """Return the verdict in the only slice."""
    evaluator = Evaluator(contract(asked, **more), stage=Stage.FULL, recover=False)
    for _ in evaluator.observe(outcomes):
        pass
    list(evaluator.close_windows(is_end=True))
    (verdict,) = verdicts(evaluator)
    return verdict


def test_the_requests_of_one_second_are_one_unit():
    outcomes = [request(i / 10, 2.0 if i < 5 else 0.5) for i in range(30)]
    verdict = verdict_on(TTFT, outcomes)
    assert (verdict.units, verdict.tokens) == (3, 30)
    assert verdict.estimate == pytest.approx((0.5 + 0 + 0) / 3)


def test_a_window_of_steps_is_full_after_so_many_requests_and_the_rest_counts_at_the_end():
    outcomes = [request(i, itl_s=0.2 if i in (0, 9) else 0.05) for i in range(10)]
    verdict = verdict_on(ITL, outcomes)
    assert verdict.units == 3
    assert verdict.estimate == pytest.approx((0.25 + 0 + 0.5) / 3)


def test_a_straggler_joins_the_window_that_is_open():
    outcomes = [request(0), request(1.5), request(0.2, 3.0), request(2)]
    verdict = verdict_on(TTFT, outcomes)
    assert (verdict.units, verdict.estimate) == (3, pytest.approx(0.5 / 3))


def test_requests_without_timings_are_counted_and_are_no_pass():
    verdict = verdict_on(TTFT, [request(i, None) for i in range(50)])
    assert (verdict.state, verdict.reason, verdict.units) == (State.NO_DATA, Reason.NOT_REPORTED, 0)


def test_repeats_and_losses_are_in_no_window():
    outcomes = [request(0), lost(), lost(PairReason.LATE, event_ns=9 * NS), request(0.5, 2.0)]
    verdict = verdict_on(TTFT, outcomes)
    assert (verdict.units, verdict.estimate) == (1, 0.5)


def test_silence_closes_windows_of_time_and_what_comes_late_joins_the_next():
    book = WindowBook((TTFT, ITL), (EVERYTHING,), SliceBook((EVERYTHING,)))
    assert list(book.closings([request(5.1, 2.0)])) == []
    (over,) = book.close(is_end=False)
    assert (over.clause, over.value) == (TTFT, 1.0)
    assert list(book.closings([request(5.2, 2.0), request(6.5)])) == []
    told = book.close(is_end=True)
    assert [(w.clause.statistic, w.requests) for w in told] == [
        ("time_to_first_token", 2),
        ("inter_token_latency", 0),
    ]
    assert book.close(is_end=True) == []


def bursts(rng, seconds, *, share):
    """Return requests of which whole seconds are slow together: as many as the quantile allows at share 0.1."""
    slow = rng.random(seconds) < share
    return [request(s + i / 20, 2.0 if slow[s] else 0.5) for s in range(seconds) for i in range(20)]


def test_dependent_requests_alarm_falsely_one_by_one_and_not_in_windows():
    alone, together = replace(TTFT, window_s=None), TTFT
    rng, alarms = np.random.default_rng(11), {alone: 0, together: 0}
    budget = FalseAlarms(0.05, 3600.0)
    for _ in range(12):
        outcomes = bursts(rng, 40, share=0.1)
        for asked in alarms:
            alarms[asked] += verdict_on(asked, outcomes, false_alarms=budget).state is State.VIOLATED
    assert alarms[alone] >= 8
    assert alarms[together] <= 1


def test_a_slow_service_is_found_in_windows():
    verdict = verdict_on(TTFT, bursts(np.random.default_rng(2), 100, share=0.5))
    assert (verdict.state, verdict.reason) == (State.VIOLATED, Reason.REFUTED)


def test_a_fast_service_passes_in_windows():
    verdict = verdict_on(TTFT, bursts(np.random.default_rng(2), 120, share=0.0))
    assert (verdict.state, verdict.reason) == (State.CONFORMING, Reason.CERTIFIED)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_cutting_anywhere_changes_nothing(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    starts = np.sort(rng.uniform(0, 20, 40)) + rng.choice([0.0, -1.5], 40, p=[0.9, 0.1])
    outcomes = []
    for i, start in enumerate(np.maximum(starts, 0)):
        attributes = {"replica": f"r{rng.integers(0, 7)}"}
        ttft_s = rng.choice([None, 0.5, 2.0], p=[0.1, 0.3, 0.6])
        told = {"attributes": attributes, "name": f"s{i}", "weights_version": str(i // 25)}
        told["inference"] = KernelIdentity(Role.INFERENCE, engine="ab"[i > 30])
        outcomes.append(request(start, ttft_s, rng.choice([np.nan, 0.05, 0.2]), **told))
        if rng.random() < 0.1:
            outcomes.append(lost(name=f"l{i}", event_ns=round(start * NS), attributes={"replica": f"q{i}"}))
    whole = contract(TTFT, ITL, clause("tv", 0.05), slices=(EVERYTHING, BY_REPLICA, Slice("some")))
    cuts = data.draw(st.lists(st.integers(0, len(outcomes)), max_size=6))
    assert judged(whole, outcomes, cuts=cuts) == judged(whole, outcomes)


def test_a_whole_detector_closes_windows_when_nothing_comes():
    machine = Detector(contract(TTFT))
    for i in range(3):
        for view in both(f"s{i}", event_ns=i * NS // 3, timings=Timings(ttft_s=2.0)):
            list(machine.process([view], NS))
    assert machine.verdicts()[0].units == 0
    list(machine.tick(5 * NS))
    assert machine.verdicts()[0].units == 1


@pytest.mark.parametrize("ahead_ns", [0, 1800 * NS + 1, 10**18], ids=["right", "half an hour", "years"])
def test_a_sender_whose_clock_is_ahead_keeps_no_window_open(ahead_ns):
    machine = Detector(contract(TTFT))
    list(machine.process(both("odd", event_ns=ahead_ns, timings=Timings(ttft_s=2.0)), 0))
    for i in range(40):  # after a silence that has let the odd one go
        now_ns = 5 * NS + i * NS // 4
        for view in both(f"s{i}", event_ns=now_ns, timings=Timings(ttft_s=2.0)):
            list(machine.process([view], now_ns))
    assert machine.verdicts()[0].units == 9
