"""Matching: two whole views of one sequence, and how segments become a whole view."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from pair_factory import both, segments, top_k, trace

from paritas.contracts.model import Compare
from paritas.detectors.matching import join_segments, match, weights_lag
from paritas.exact import ExactDrift
from paritas.records import LogprobSemantics, PairReason, Sampling, Timings, TokenStatus

RAW = Sampling(0.6, 1.0, semantics=LogprobSemantics.RAW)
PROCESSED = Sampling(0.6, 1.0, semantics=LogprobSemantics.PROCESSED)


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


@pytest.mark.parametrize("side", ["inference", "train"])
@pytest.mark.parametrize(
    ("value", "status"),
    [
        (np.nan, "nonfinite"),
        (-np.inf, "nonfinite"),
        (np.inf, "nonfinite"),
        (-9999.0, "sentinel"),
        (0.5, "positive"),
        (np.float32(1e-6), "valid"),  # rounding
        (-9998.0, "valid"),
    ],
)
def test_what_a_sender_calls_valid_is_believed_only_of_a_log_probability(side, value, status):
    """Nothing else may enter a statistic: a NaN that is left out would be a pass without data.

    What only the trainer cannot produce shows as drift instead.
    """
    if side == "train" and value < -9998.0:
        status = "valid"
    values = {"q": (-1.0, -2.0, -0.5), "p": (-1.5, -2.0, -0.5)}
    spoilt = "q" if side == "inference" else "p"
    values[spoilt] = (values[spoilt][0], value, values[spoilt][2])
    inference, train = both(**values)
    lists = top_k([[1], [2], [3]], [[-1.0], [-2.0], [-0.5]])
    masked = np.array([0, 0, TokenStatus.MASKED], np.uint8)
    one = match(replace(inference, top=lists, status=masked), replace(train, top=lists), Compare()).pair
    wanted = [TokenStatus.VALID, TokenStatus[status.upper()], TokenStatus.MASKED]
    assert one.counts == dict(Counter(wanted))
    assert one.position.tolist() == [i for i, s in enumerate(wanted) if s is TokenStatus.VALID]
    assert one.log_ratio[0] == -0.5
    assert not np.isnan(one.log_ratio).any()
    assert len(one.log_ratio) == len(one.logprob_q) == len(one.top.top1_q) == one.tokens


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
    refused = match(inference, train, Compare())
    assert refused.reason is PairReason.WEIGHTS_MISMATCH
    assert refused.facts == {"lag": 0.0, "digest": "differs"}
    assert refused.detail == "inference '7', train '7', digests 'aa' and 'bb'"
    assert match(inference, train, Compare(weights_within=1)).reason is PairReason.PAIRED
    behind = match(replace(inference, weights_version="6"), train, Compare())
    assert behind.facts == {"lag": 1.0}  # another version has other weights: no news


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
        assert got.facts["law"] in ("temperature", "support", "processors")
        assert got.detail == f"inference {a.semantics.value}, train {b.semantics.value}"


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"temperature": 0.7, "top_p": 0.9}, "temperature"),
        ({"top_p": 0.9, "processors": "abc"}, "support"),
        ({"top_k": 20}, "support"),
        ({"min_p": 0.1}, "support"),
        ({"processors": "abc"}, "processors"),
    ],
    ids=str,
)
def test_the_first_thing_in_which_two_laws_differ_is_a_fact(change, law):
    inference, train = both()
    inference = replace(inference, sampling=Sampling(**change, semantics=LogprobSemantics.PROCESSED))
    train = replace(train, sampling=replace(PROCESSED, temperature=1.0, top_p=1.0))
    assert match(inference, train, Compare()).facts == {"law": law}


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


@pytest.mark.parametrize("none", [float("nan"), -1.0, -1e-30])
def test_a_duration_that_is_none_was_not_measured(none):
    """A clock that goes back must not make a service look fast."""
    inference, train = both(q=(-1.0, -2.0, -0.5))
    odd = replace(inference, timings=Timings(none, none, 0.25, none))
    one = match(odd, train, Compare()).pair
    assert one.timings == Timings(prefill_s=0.25)
    assert np.isnan(one.itl_mean_s)
    steps = replace(inference, itl_s=np.array([none, none, 0.5], np.float32))
    assert match(steps, train, Compare()).pair.itl_mean_s == 0.5
    endless = replace(inference, timings=Timings(ttft_s=float("inf"), decode_s=0.0))
    assert match(endless, train, Compare()).pair.timings == endless.timings


def test_a_sequence_without_tokens_pairs():
    inference, train = both(q=())
    one = match(inference, train, Compare()).pair
    assert (one.tokens, one.counts, one.complete) == (0, {}, True)


def test_weights_lag_needs_two_integers():
    assert weights_lag("7", "8") == 1
    assert weights_lag("a", "8") is weights_lag("", "") is None


def test_digests_of_digits_are_no_numbers_of_versions():
    """Their difference fits no column and, from 309 digits on, no float."""
    assert weights_lag("1", str(2**53 + 1)) == 2**53
    for digits in (17, 64, 400):
        assert weights_lag("1", "9" * digits) is weights_lag("9" * digits, "1") is None
    inference, train = both()
    inference, train = replace(inference, weights_version="1"), replace(train, weights_version="9" * 400)
    got = match(inference, train, Compare(weights_within=3))
    assert (got.reason, got.facts) == (PairReason.WEIGHTS_MISMATCH, {})


# ---- segments


@pytest.mark.parametrize(
    "kept", [(1, 2), (0, 2), (0, 1), ()], ids=["no first", "a hole", "no last", "nothing"]
)
def test_segments_that_do_not_join(kept):
    parts = segments("inference", [2, 3])
    assert join_segments({parts[i].start: parts[i] for i in kept}) is None


def test_segments_whose_last_is_not_final_do_not_join():
    parts = segments("inference", [2, 3])
    assert join_segments({p.start: replace(p, final=False) for p in parts}) is None


def test_joined_comparisons_are_kept_only_if_all_parts_have_them():
    first, last = segments("train", [2], 4)
    drifts = [ExactDrift(*(np.full(2, v, np.float32) for v in (v, 0, 0, 0))) for v in (0.25, 0.5)]
    joined = join_segments({0: replace(first, exact=drifts[0]), 2: replace(last, exact=drifts[1])})
    assert joined.exact.tv.tolist() == [0.25, 0.25, 0.5, 0.5]
    assert join_segments({0: replace(first, exact=drifts[0]), 2: last}).exact is None


def test_joined_columns_keep_lists_only_if_all_have_them():
    first, last = segments("inference", [2])
    rows = {"top": top_k([[1, 2]] * 2, np.zeros((2, 2))), "itl_s": np.zeros(2, np.float32)}
    rows["rank"] = np.array([1, 2], np.uint32)
    more = {"top": top_k([[1]] * 4, np.zeros((4, 1))), "itl_s": np.ones(4, np.float32)}
    more["rank"] = np.array([3, 4, 5, 6], np.uint32)
    joined = join_segments({0: replace(first, **rows), 2: replace(last, **more)})
    assert joined.top.token.shape == (6, 1)  # the shorter list
    assert joined.itl_s.tolist() == [0, 0, 1, 1, 1, 1]
    assert joined.rank.tolist() == [1, 2, 3, 4, 5, 6]
    bare = join_segments({0: replace(first, **rows), 2: last})
    assert bare.top is None
    assert bare.itl_s is None
    assert bare.rank is None
