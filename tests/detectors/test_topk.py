"""Columns from top-k lists, by hand and against a loop over tokens."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_factory import SEEDS, both, top_k, trace

from paritas.detectors.topk import top_columns
from paritas.exact import ExactDrift


def columns(inference, train, mask=None):
    return top_columns(inference, train, np.ones(len(inference), bool) if mask is None else mask)


def with_lists(q_lists, p_lists, *, token, q, p):
    inference, train = both(q=q, p=p, token=token)
    return replace(inference, top=top_k(*q_lists)), replace(train, top=top_k(*p_lists))


def example():
    """Two tokens: both kernels know ids 1 and 2; the second sampled token, 9, is in neither list."""
    q = np.log([[0.5, 0.3], [0.6, 0.2]])
    p = np.log([[0.45, 0.35], [0.5, 0.3]])
    return with_lists(
        ([[1, 2], [1, 2]], q),
        ([[1, 2], [2, 1]], p),
        token=[1, 9],
        q=np.log([0.5, 0.1]),
        p=np.log([0.45, 0.05]),
    )


def test_the_numbers_of_an_example():
    got = columns(*example())
    np.testing.assert_allclose(got.top1_q, [0.5, 0.6], rtol=1e-6)
    assert got.is_top1.tolist() == [1.0, 0.0]
    # second row: (q-p)+ = 0.3 at id 1 (p is listed as .3), plus (1 - .5) of the sampled token
    np.testing.assert_allclose(got.hybrid_tv, [0.05, 0.3 + 0.5], atol=1e-6)
    drift = np.log(0.35 / 0.3) - np.log(0.45 / 0.5), np.log(0.5 / 0.2) - np.log(0.3 / 0.6)
    np.testing.assert_allclose(got.oscillation, drift, rtol=1e-5)
    assert got.flip.tolist() == [0.0, 1.0]
    np.testing.assert_allclose(got.gap, [0.05, 0.2 - 0.5], atol=1e-6)


def test_masked_tokens_are_left_out():
    whole, second = columns(*example()), columns(*example(), np.array([False, True]))
    for name in whole.__slots__:
        np.testing.assert_array_equal(getattr(second, name), getattr(whole, name)[1:])


@pytest.mark.parametrize("missing", ["inference", "train", "no columns"])
def test_a_missing_list_gives_nan(missing):
    inference, train = example()
    if missing == "inference":
        inference = replace(inference, top=None)
    else:
        empty = top_k(np.zeros((2, 0)), np.zeros((2, 0))) if missing == "no columns" else None
        train = replace(train, top=empty)
    got = columns(inference, train)
    for name in ("hybrid_tv", "oscillation", "flip", "gap"):
        assert np.isnan(getattr(got, name)).all()
    assert np.isnan(got.top1_q).all() == (missing == "inference")
    assert np.isnan(got.is_top1).all() == (missing == "inference")


def test_a_position_without_a_list_flips_nothing():
    nothing = ([[0, 0]], [[np.nan, np.nan]])
    known = ([[1, 2]], np.log([[0.5, 0.3]]))
    for q_lists, p_lists in ((nothing, known), (known, nothing), (nothing, nothing)):
        lists = with_lists(q_lists, p_lists, token=[1], q=np.log([0.5]), p=np.log([0.4]))
        got = columns(*lists)
        assert np.isnan([got.flip, got.gap, got.oscillation]).all()
        assert got.hybrid_tv == pytest.approx([0.2])  # nothing is shared: the sampled token alone


@pytest.mark.parametrize("above", [1e-5, 7.0, 3.4e38, np.inf])
def test_a_listed_number_above_zero_is_no_log_probability(above):
    """Logits in a list would be probabilities beyond any number, and a monitor whose wealth is NaN is dead."""
    inference, train = example()
    odd = top_k(inference.top.token, [[above, np.log(0.3)], [np.log(0.6), above]])
    none = top_k(inference.top.token, [[np.nan, np.log(0.3)], [np.log(0.6), np.nan]])
    for one in range(2):
        views = [(inference, replace(train, top=lists)) for lists in (odd, none)]
        views = views if one else [(replace(inference, top=lists), train) for lists in (odd, none)]
        got, wanted = (columns(*view) for view in views)
        for name in got.__slots__:
            np.testing.assert_array_equal(getattr(got, name), getattr(wanted, name), err_msg=name)


def test_one_shared_id_has_no_oscillation():
    lists = with_lists(
        ([[1, 2]], np.log([[0.5, 0.3]])), ([[1, 3]], np.log([[0.5, 0.3]])), token=[1], q=[-1.0], p=[-1.0]
    )
    assert np.isnan(columns(*lists).oscillation).all()
    assert columns(*lists).gap == pytest.approx([0.0])


def test_a_training_favourite_outside_the_inference_list_has_no_gap():
    lists = with_lists(
        ([[1, 2]], np.log([[0.5, 0.3]])), ([[3, 1]], np.log([[0.5, 0.3]])), token=[1], q=[-1.0], p=[-1.0]
    )
    assert np.isnan(columns(*lists).gap).all()
    assert columns(*lists).flip.tolist() == [1.0]


def direct(inference, train, i):
    """Return the six numbers of token i, with dictionaries."""
    q, p = (
        {
            int(t): float(v)
            for t, v in zip(side.top.token[i], side.top.logprob[i], strict=True)
            if np.isfinite(v)
        }
        for side in (inference, train)
    )
    shared, sampled = q.keys() & p.keys(), int(inference.token[i])
    ell = float(train.logprob[i]) - float(inference.logprob[i])
    tv = sum(max(np.exp(q[t]) - np.exp(p[t]), 0.0) for t in shared)
    tv += 0.0 if sampled in shared else max(0.0, 1.0 - np.exp(ell))
    drifts = [p[t] - q[t] for t in shared]
    best_q, best_p = int(inference.top.token[i, 0]), int(train.top.token[i, 0])
    return (
        np.exp(q[best_q]),
        float(best_q == sampled),
        tv,
        max(drifts) - min(drifts) if len(drifts) > 1 else np.nan,
        float(best_q != best_p),
        np.exp(q[best_p]) - np.exp(p[best_p]) if best_p in q else np.nan,
    )


@given(SEEDS, st.integers(1, 6), st.integers(1, 5), st.integers(1, 5))
def test_random_lists_equal_a_loop(seed, n, k, other):
    rng = np.random.default_rng(seed)

    def lists(width):
        tokens = np.stack([rng.permutation(7)[:width] for _ in range(n)])
        logprob = -np.sort(rng.exponential(size=(n, width)) + 0.1, axis=1).astype(np.float32)
        shorter = np.arange(width) >= rng.integers(1, width + 1, n)[:, None]
        return top_k(np.where(shorter, 0, tokens), np.where(shorter, np.nan, logprob))

    sides = [
        trace(role, logprob=-rng.exponential(size=n), token=[1] * n, top=lists(width))
        for role, width in (("inference", k), ("train", other))
    ]
    token = rng.integers(0, 7, n).astype(np.uint64)
    sides = [replace(side, token=token) for side in sides]
    expected = np.array([direct(*sides, i) for i in range(n)]).T
    got = columns(*sides)
    assert np.isnan(got.exact_tv).all()
    for name, column in zip(got.__slots__[:-1], expected, strict=True):
        np.testing.assert_allclose(getattr(got, name), column, rtol=1e-9, atol=1e-12, err_msg=name)


def test_whole_distributions_take_the_place_of_lists():
    inference, train = example()
    told = ExactDrift(*(np.array(c, np.float32) for c in ([0.25, 0.5], [3.0, 4.0], [1, 0], [0.125, -0.25])))
    got = columns(inference, replace(train, exact=told), np.array([False, True]))
    assert got.exact_tv.tolist() == got.hybrid_tv.tolist() == [0.5]
    assert (got.oscillation.tolist(), got.flip.tolist(), got.gap.tolist()) == ([4.0], [0.0], [-0.25])
    assert got.is_top1.tolist() == [0.0]  # the law's own test still looks at what was sampled
