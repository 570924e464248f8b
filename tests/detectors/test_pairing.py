"""Pairing: every way a sequence can end, in any order of arrival, in bounded memory."""

import pickle
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import NS, both, top_k, trace

from paritas.contracts.model import Compare
from paritas.detectors.pairing import Pairer, PairerLimits, join_segments, match, weights_lag
from paritas.records import LogprobSemantics, PairReason, Sampling, Timings, TokenStatus

RAW = Sampling(0.6, 1.0, semantics=LogprobSemantics.RAW)
PROCESSED = Sampling(0.6, 1.0, semantics=LogprobSemantics.PROCESSED)


def run(pairer, traces, now_ns=0):
    """Feed traces and end the input; return the outcomes in order."""
    outcomes = [o for t in traces for o in pairer.process(t, now_ns)]
    return [*outcomes, *pairer.flush(now_ns)]


def reasons(outcomes):
    return Counter(o.reason for o in outcomes)


def names(outcomes):
    return [o.sequence_id for o in outcomes]


def matched(compare=None, **changes):
    """Match two equal traces after changing the training one."""
    inference, train = both(q=(-1.0, -2.0, -0.5, -0.25))
    return match(inference, replace(train, **changes), compare or Compare())


# ---- how two whole views compare


def test_a_pair_holds_what_both_kernels_said():
    inference, train = both(q=(-1.0, -2.0, -0.5), p=(-1.5, -1.75, -0.5), attributes={"slice": "math"})
    inference = replace(inference, event_ns=7, weights_version="3", timings=Timings(ttft_s=0.5))
    train = replace(train, weights_version="3", attributes={"slice": "code", "rank": "0"}, group_id="g")
    got = match(inference, train, Compare())
    assert got.reason is PairReason.PAIRED
    one = got.pair
    assert one.log_ratio.tolist() == [-0.5, 0.25, 0.0]
    assert one.logprob_q.tolist() == [-1.0, -2.0, -0.5]
    assert one.position.tolist() == [0, 1, 2]
    assert (one.group_id, one.event_ns, one.weights_version, one.lag) == ("g", 7, "3", 0)
    assert one.attributes == {"slice": "math", "rank": "0"}  # what the inference side says wins
    assert one.trace_id == inference.trace_id == train.trace_id
    assert one.timings.ttft_s == 0.5
    assert one.log_ratio.dtype == one.logprob_q.dtype == np.float64


@pytest.mark.parametrize(
    ("q_status", "p_status", "joint"),
    [
        ("valid", "valid", "valid"),
        ("valid", "missing", "missing"),
        ("sentinel", "missing", "sentinel"),
        ("nonfinite", "sentinel", "nonfinite"),
        ("positive", "valid", "positive"),
        ("masked", "nonfinite", "masked"),
        ("prompt", "positive", "prompt"),
        ("masked", "prompt", "masked"),
    ],
)
def test_the_joint_status_of_a_token(q_status, p_status, joint):
    inference, train = both(q=(-1.0, -2.0))
    inference = replace(inference, status=np.array([TokenStatus[q_status.upper()], 0], np.uint8))
    train = replace(train, status=np.array([TokenStatus[p_status.upper()], 0], np.uint8))
    one = match(inference, train, Compare()).pair
    assert one.counts == dict(Counter([TokenStatus[joint.upper()], TokenStatus.VALID]))
    assert one.tokens == (2 if joint == "valid" else 1)
    assert one.complete is (joint in ("valid", "masked", "prompt"))


def test_unequal_weights_do_not_pair():
    inference, train = both()
    inference = replace(inference, weights_version="7")
    got = match(inference, replace(train, weights_version="9"), Compare())
    assert got.reason is PairReason.WEIGHTS_MISMATCH
    assert got.detail == "inference '7', train '9'"
    assert got.facts == {"lag": 2.0}


def test_weights_within_the_allowed_lag_pair():
    inference, train = both()
    inference, train = replace(inference, weights_version="7"), replace(train, weights_version="9")
    assert match(inference, train, Compare(weights_within=2)).pair.lag == 2
    assert match(train, inference, Compare(weights_within=2)).pair.lag == -2
    for pair in ((inference, train), (train, inference)):
        assert match(*pair, Compare(weights_within=1)).reason is PairReason.WEIGHTS_MISMATCH


def test_versions_that_are_no_numbers_must_be_equal():
    inference, train = both()
    inference = replace(inference, weights_version="step-a")
    same = match(inference, replace(train, weights_version="step-a"), Compare(weights_within=5))
    other = match(inference, replace(train, weights_version="step-b"), Compare(weights_within=5))
    assert (same.reason, same.pair.lag) == (PairReason.PAIRED, None)
    assert (other.reason, other.facts) == (PairReason.WEIGHTS_MISMATCH, {})


def test_unequal_digests_do_not_pair_where_weights_must_be_equal():
    inference, train = both(weights_version="7")
    inference, train = replace(inference, weights_digest="aa"), replace(train, weights_digest="bb")
    assert match(inference, train, Compare()).reason is PairReason.WEIGHTS_MISMATCH
    assert match(inference, train, Compare(weights_within=1)).reason is PairReason.PAIRED


def test_what_was_not_reported_cannot_disagree():
    assert matched(weights_version="7", weights_digest="aa", sampling=RAW).reason is PairReason.PAIRED


@pytest.mark.parametrize(
    ("a", "b", "agree"),
    [
        (RAW, PROCESSED, False),
        (RAW, RAW, True),
        (PROCESSED, PROCESSED, True),
        (replace(RAW, temperature=1.0), replace(PROCESSED, temperature=1.0), True),
        (replace(RAW, temperature=None), replace(PROCESSED, temperature=None), True),
        (PROCESSED, replace(PROCESSED, temperature=0.7), False),
        (PROCESSED, replace(PROCESSED, top_p=0.9), False),
        (PROCESSED, replace(PROCESSED, top_k=-1), True),
        (PROCESSED, replace(PROCESSED, processors="abc"), False),
        (replace(PROCESSED, top_p=0.9), Sampling(0.6, semantics=LogprobSemantics.TEMPERATURE_ONLY), False),
        (PROCESSED, Sampling(0.6, 0.9, semantics=LogprobSemantics.TEMPERATURE_ONLY), True),
        (RAW, Sampling(), True),
    ],
)
def test_which_semantics_agree(a, b, agree):
    inference, train = both()
    got = match(replace(inference, sampling=a), replace(train, sampling=b), Compare())
    assert (got.reason is PairReason.PAIRED) is agree
    if not agree:
        assert got.reason is PairReason.SEMANTICS_MISMATCH
        assert got.detail == f"inference {a.semantics.value}, train {b.semantics.value}"


def test_unequal_lengths_do_not_pair():
    inference = trace("inference", logprob=(-1.0, -2.0))
    got = match(inference, trace("train", logprob=(-1.0,)), Compare())
    assert got.reason is PairReason.LENGTH_MISMATCH
    assert got.detail == "inference has 2 tokens, train has 1"


@pytest.mark.parametrize(
    ("tokens", "facts", "detail"),
    [
        ([2, 3, 4, 9], {"differing": 4.0, "shift": 1.0}, "first at position 0, 4 of 4 tokens differ"),
        ([9, 1, 2, 3], {"differing": 4.0, "shift": -1.0}, "first at position 0, 4 of 4 tokens differ"),
        ([1, 2, 9, 4], {"differing": 1.0, "shift": 0.0}, "first at position 2, 1 of 4 tokens differ"),
    ],
)
def test_unequal_tokens_do_not_pair_and_a_move_by_one_is_seen(tokens, facts, detail):
    got = matched(token=np.array(tokens, np.uint64))
    assert (got.reason, got.facts, got.detail) == (PairReason.TOKEN_MISMATCH, facts, detail)


def test_one_wrong_token_of_one_is_no_shift():
    inference = trace("inference", logprob=(-1.0,), token=[1])
    got = match(inference, trace("train", logprob=(-1.0,), token=[2]), Compare())
    assert got.facts == {"differing": 1.0, "shift": 0.0}


def test_the_first_difference_that_makes_the_rest_meaningless_is_named():
    changes = {"weights_version": "8", "sampling": PROCESSED, "token": np.array([9, 9, 9, 9], np.uint64)}
    inference, train = both(q=(-1.0, -2.0, -0.5, -0.25))
    inference = replace(inference, weights_version="7", sampling=RAW)
    train = replace(train, **changes)
    assert match(inference, train, Compare()).reason is PairReason.WEIGHTS_MISMATCH
    train = replace(train, weights_version="7")
    assert match(inference, train, Compare()).reason is PairReason.SEMANTICS_MISMATCH
    shorter = replace(trace("train", logprob=(-1.0,)), token=np.array([9], np.uint64))
    assert match(inference, shorter, Compare()).reason is PairReason.LENGTH_MISMATCH


def test_inter_token_latency_is_measured_or_worked_out():
    inference, train = both(itl_s=None)
    measured = replace(inference, itl_s=np.array([np.nan, 0.1, 0.3], np.float32))
    assert match(measured, train, Compare()).pair.itl_mean_s == pytest.approx(0.2)
    timed = replace(inference, timings=Timings(decode_s=1.0))
    assert match(timed, train, Compare()).pair.itl_mean_s == 0.5
    assert np.isnan(match(inference, train, Compare()).pair.itl_mean_s)
    unreadable = replace(inference, itl_s=np.full(3, np.nan, np.float32))
    assert np.isnan(match(unreadable, train, Compare()).pair.itl_mean_s)


def test_a_sequence_without_tokens_pairs():
    inference, train = both(q=())
    one = match(inference, train, Compare()).pair
    assert (one.tokens, one.counts, one.complete) == (0, {}, True)


def test_weights_lag_needs_two_integers():
    assert weights_lag("7", "8") == 1
    assert weights_lag("a", "8") is weights_lag("", "") is None


# ---- segments


def segments(role, cuts, n=6, name="s-0", **more):
    """Cut one view into segments at the given positions."""
    edges = [0, *cuts, n]
    values = -np.arange(1, n + 1, dtype=np.float32)
    return [
        trace(role, name, values[a:b], token=np.arange(a, b) + 1, start=a, final=b == n, **more)
        for a, b in pairwise(edges)
    ]


@given(st.permutations(range(5)))
def test_segments_join_in_any_order(order):
    parts = segments("inference", [2, 3]) + segments("train", [4])
    whole = {role: segments(role, [])[0] for role in ("inference", "train")}
    outcomes = run(Pairer(Compare()), [parts[i] for i in order])
    assert [o.reason for o in outcomes] == [PairReason.PAIRED]
    one, alone = outcomes[0].pair, match(whole["inference"], whole["train"], Compare()).pair
    np.testing.assert_array_equal(one.log_ratio, alone.log_ratio)
    np.testing.assert_array_equal(one.logprob_q, alone.logprob_q)


@pytest.mark.parametrize(
    "kept", [(1, 2), (0, 2), (0, 1), ()], ids=["no first", "a hole", "no last", "nothing"]
)
def test_segments_that_do_not_join(kept):
    parts = segments("inference", [2, 3])
    assert join_segments({parts[i].start: parts[i] for i in kept}) is None


def test_segments_whose_last_is_not_final_do_not_join():
    parts = segments("inference", [2, 3])
    assert join_segments({p.start: replace(p, final=False) for p in parts}) is None


def test_joined_columns_keep_lists_only_if_all_have_them():
    first, last = segments("inference", [2])
    rows = {"top": top_k([[1, 2]] * 2, np.zeros((2, 2))), "itl_s": np.zeros(2, np.float32)}
    more = {"top": top_k([[1]] * 4, np.zeros((4, 1))), "itl_s": np.ones(4, np.float32)}
    joined = join_segments({0: replace(first, **rows), 2: replace(last, **more)})
    assert joined.top.token.shape == (6, 1)  # the shorter list
    assert joined.itl_s.tolist() == [0, 0, 1, 1, 1, 1]
    bare = join_segments({0: replace(first, **rows), 2: last})
    assert bare.top is None
    assert bare.itl_s is None


# ---- arrival: duplicates, late ones, what never comes


def test_a_copy_of_a_waiting_segment_is_a_duplicate():
    inference, train = both()
    outcomes = run(Pairer(Compare()), [inference, inference, train])
    assert reasons(outcomes) == {PairReason.PAIRED: 1, PairReason.DUPLICATE: 1}
    assert outcomes[0].detail == "inference trace at position 0"


def test_a_copy_of_a_finished_sequence_is_a_duplicate():
    inference, train = both()
    outcomes = run(Pairer(Compare()), [inference, train, train, inference])
    assert reasons(outcomes) == {PairReason.PAIRED: 1, PairReason.DUPLICATE: 2}


def test_the_other_half_of_what_was_given_up_is_late():
    pairer = Pairer(Compare(pair_within_s=5.0))
    inference, train = both()
    first = list(pairer.process(inference, 0))
    given_up = list(pairer.tick(5 * NS))
    after = list(pairer.process(train, 6 * NS))
    assert first == []
    assert [o.reason for o in given_up] == [PairReason.UNMATCHED]
    assert given_up[0].detail == "only inference was reported"
    assert [o.reason for o in after] == [PairReason.LATE]


def test_a_half_waits_as_long_as_the_contract_says():
    pairer = Pairer(Compare(pair_within_s=5.0))
    inference, train = both()
    assert list(pairer.process(inference, 0)) == []
    assert list(pairer.tick(5 * NS - 1)) == []
    assert pairer.waiting == 1
    assert [o.reason for o in [*pairer.process(train, 5 * NS - 1), *pairer.tick(5 * NS - 1)]] == [
        PairReason.PAIRED
    ]


def test_end_of_input_gives_up_on_halves():
    parts = segments("train", [2])[:1]
    outcomes = run(Pairer(Compare()), [*both("a"), trace("inference", "b"), *parts])
    assert reasons(outcomes) == {PairReason.PAIRED: 1, PairReason.UNMATCHED: 2}
    assert {o.detail for o in outcomes if o.pair is None} == {
        "only inference was reported",
        "only train was reported",
    }


def test_a_reference_view_alone_is_no_pair():
    outcomes = run(Pairer(Compare()), [trace("reference"), trace("inference")])
    assert [o.detail for o in outcomes] == ["only inference, reference was reported"]


# ---- order


def at(second, name, **more):
    """Return both views of a sequence that started at that second."""
    return both(name, event_ns=round(second * NS), **more)


def test_a_cohort_leaves_when_the_next_has_begun():
    pairer = Pairer(Compare())
    held = [o for t in at(0.2, "a") for o in pairer.process(t, 0)]
    assert (held, pairer.open_cohorts) == ([], 1)
    released = list(pairer.process(at(1.0, "b")[0], 0))
    assert (names(released), pairer.open_cohorts) == (["a"], 1)


def test_inside_a_cohort_the_order_is_canonical():
    traces = [*at(0.3, "z"), *at(0.1, "y"), *at(0.1, "x"), *at(0.9, "b", group_id="g"), *at(0.0, "a")]
    assert names(run(Pairer(Compare()), traces)) == ["a", "x", "y", "z", "b"]


def test_cohorts_leave_oldest_first():
    firsts = [at(second, name)[0] for second, name in ((3, "c"), (1, "a"), (2, "b"))]
    seconds = [at(second, name)[1] for second, name in ((2, "b"), (3, "c"), (1, "a"))]
    pairer = Pairer(Compare())
    waiting = [o for t in (*firsts, *seconds[:2]) for o in pairer.process(t, 0)]
    assert names(waiting) == ["b"]
    assert names([*pairer.process(seconds[2], 0), *pairer.flush(0)]) == ["a", "c"]


def test_a_group_leaves_together_in_its_first_members_cohort():
    traces = [*at(0.5, "b", group_id="g"), *at(7.5, "a", group_id="g"), *at(1.5, "c"), *at(9.0, "d")]
    assert names(run(Pairer(Compare()), traces)) == ["b", "a", "c", "d"]
    alone = [replace(t, group_id="") for t in traces]
    assert names(run(Pairer(Compare()), alone)) == ["b", "c", "a", "d"]


def test_a_lost_half_holds_its_cohort_back_no_longer_than_grace():
    pairer = Pairer(Compare(), PairerLimits(grace_s=10.0))
    traces = [trace("inference", "lost"), *at(0.1, "kept"), at(5.0, "next")[0]]
    assert [o for t in traces for o in pairer.process(t, 0)] == []
    assert list(pairer.tick(10 * NS)) == []
    assert names(pairer.tick(10 * NS + 1)) == ["kept"]
    later = [o for t in at(0.2, "slow") for o in pairer.process(t, 11 * NS)]
    assert names(later) == ["slow"]  # its cohort's grace is over
    assert names(pairer.flush(12 * NS)) == ["lost", "next"]


def stream():
    """Traces of forty sequences: paired, half, segmented, grouped, duplicated and mismatched ones."""
    rng = np.random.default_rng(7)
    traces = []
    for i in range(40):
        name, second = f"s-{i:02}", float(rng.uniform(0, 6))
        more = {"event_ns": round(second * NS), "group_id": "g" if i % 10 == 0 else ""}
        inference, train = both(name, q=-rng.exponential(size=5), p=-rng.exponential(size=5), **more)
        match i % 8:
            case 0:
                traces += [inference]
            case 1:
                traces += [inference, replace(train, token=train.token + np.uint64(1))]
            case 2:
                traces += [
                    *segments("inference", [2], 6, name, **more),
                    segments("train", [], 6, name, **more)[0],
                ]
            case 3:
                traces += [inference, inference, train]
            case 4:
                traces += [replace(inference, weights_version="1"), replace(train, weights_version="2")]
            case _:
                traces += [inference, train]
    return traces


def ending(outcome):
    ratio = None if outcome.pair is None else outcome.pair.log_ratio.tobytes()
    return outcome.sequence_id, outcome.reason, outcome.detail if outcome.pair is None else "", ratio


@settings(max_examples=40)
@given(st.randoms(use_true_random=False))
def test_any_order_of_arrival_ends_every_sequence_the_same_way(random):
    traces = stream()
    expected = Counter(ending(o) for o in run(Pairer(Compare()), traces))
    shuffled = traces[:]
    random.shuffle(shuffled)
    assert Counter(ending(o) for o in run(Pairer(Compare()), shuffled)) == expected


@settings(max_examples=40)
@given(st.integers(0, 70))
def test_a_restart_anywhere_changes_nothing(cut):
    traces, pairer = stream(), Pairer(Compare())
    expected = [ending(o) for o in run(Pairer(Compare()), traces)]
    before = [ending(o) for t in traces[:cut] for o in pairer.process(t, 0)]
    restored = pickle.loads(pickle.dumps(pairer))
    assert before + [ending(o) for o in run(restored, traces[cut:])] == expected


def test_every_sequence_ends_exactly_once():
    outcomes = run(Pairer(Compare()), stream())
    ended = Counter(o.sequence_id for o in outcomes if o.reason is not PairReason.DUPLICATE)
    assert len(ended) == 40
    assert set(ended.values()) == {1}


# ---- memory


def test_no_more_sequences_wait_than_allowed():
    pairer = Pairer(Compare(), PairerLimits(waiting=3))
    outcomes = [o for i in range(10) for o in pairer.process(trace("inference", f"s-{i}"), 0)]
    assert (outcomes, pairer.waiting) == ([], 3)
    assert reasons(pairer.flush(0)) == {PairReason.UNMATCHED: 10}
    assert (pairer.waiting, pairer.open_cohorts) == (0, 0)


def test_memory_of_finished_sequences_is_bounded():
    pairer = Pairer(Compare(), PairerLimits(remembered=5))
    done = [o for i in range(50) for t in at(i, f"s-{i}", group_id=f"g{i}") for o in pairer.process(t, 0)]
    assert len(done) == 49
    size = len(pickle.dumps(pairer))
    for i in range(50, 500):
        for t in at(i, f"s-{i}", group_id=f"g{i}"):
            list(pairer.process(t, 0))
    assert len(pickle.dumps(pairer)) < size + 200  # longer names, no more of them
    forgotten = list(pairer.process(at(0, "s-0")[0], 0))  # no longer known: waits again
    assert forgotten == []
    assert pairer.waiting == 1


def test_a_long_recording_read_side_by_side_stays_linear():
    """One cohort a sequence, all open until the second file is read: must not look at each for each."""
    pairer, looked = Pairer(Compare()), 0
    traces = [
        at(
            i,
            f"s-{i}",
        )
        for i in range(400)
    ]
    for side in (0, 1):
        for views in traces:
            before = pairer.open_cohorts
            looked += len(pairer.cohorts._whole.union(pairer.cohorts._overdue(0)))
            list(pairer.process(views[side], 0))
            assert pairer.open_cohorts <= before + 1
    assert looked <= 2 * 400
