"""Makers: each fault does to the ratios what it does in reality."""

import numpy as np
import pytest

from paritas.detectors.diagnosis.faults import FAULTS, workload
from paritas.detectors.diagnosis.faults.kernels import KERNELS
from paritas.detectors.diagnosis.faults.makers import healthy
from paritas.records import TokenStatus

BF16 = KERNELS["bf16"]
# Where both laws have the same support and tokens are drawn from the logged one, E w = 1 whatever the fault.
UNBIASED = (
    "warm_sampler",
    "moved",
    "cached_prefix",
    "other_adapter",
    "growing",
    "after_tile",
    "other_context",
)
ROUNDS = ("flipped", "coarse", "quantised", "uneven")


def made(name, severity=None, seed=1, kernel=BF16):
    rng = np.random.default_rng(seed)
    work = workload(rng, 128, 80.0, 1.0)
    fault = FAULTS[name]
    return work, fault.make(rng, work, kernel, fault.severities[0] if severity is None else severity)


def mean_ratio(log):
    """Mean of w and its standard error."""
    w = np.exp(log.p - log.q)
    return w.mean(), w.std() / np.sqrt(len(w))


@pytest.mark.parametrize("name", [*UNBIASED, *ROUNDS])
def test_the_mean_ratio_is_one_where_it_must_be(name):
    mean, error = mean_ratio(made(name)[1])
    assert mean == pytest.approx(1.0, abs=4.5 * error + 0.002)


@pytest.mark.parametrize("name", ["cut_top_p", "cut_top_k", "cut_min_p"])
def test_the_mean_ratio_is_the_kept_mass_where_the_sampler_cuts(name):
    log = made(name)[1]
    mean, error = mean_ratio(log)
    assert mean < 1.0 - 10.0 * error
    assert (log.p - log.q <= 0.0).mean() > 0.6


@pytest.mark.parametrize("name", ["learned", "warm_trainer"])
def test_the_mean_ratio_is_above_one_where_the_tokens_were_not_drawn_for_this_trainer(name):
    mean, error = mean_ratio(made(name)[1])
    assert mean > 1.0 + 5.0 * error


@pytest.mark.parametrize("name", ["raw_at_temperature", "raw_at_top_p", "told_raw"])
def test_a_wrong_law_leaves_the_ratio_and_moves_the_top1(name):
    log = made(name, FAULTS[name].severities[-2])[1]
    assert np.abs(log.p - log.q).mean() < 0.05
    gain = (log.is_top1 - log.top1_q).sum() / np.sqrt((log.top1_q * (1 - log.top1_q)).sum())
    assert gain > 5.0


@pytest.mark.parametrize(
    ("kernel", "recorded"), [("fp16", 0.0047), ("bf16", 0.036), ("int4", 0.063), ("fp8", 0.18)]
)
def test_healthy_kernels_drift_as_the_recorded_ones(kernel, recorded):
    rng = np.random.default_rng(2)
    log = healthy(rng, workload(rng, 96, 80.0, 1.0), KERNELS[kernel])
    assert np.abs(log.p - log.q).mean() == pytest.approx(recorded, rel=0.35)


@pytest.mark.parametrize("by", [1, -1])
def test_a_rolled_column_is_the_same_numbers_one_token_off(by):
    work, log = made("rolled", by)
    first = slice(0, int(work.lengths[0]))
    rng = np.random.default_rng(1)
    same = healthy(rng, workload(rng, 128, 80.0, 1.0), BF16)
    assert np.array_equal(np.roll(same.p[first], by), log.p[first])
    assert np.array_equal(same.q, log.q)


def test_drift_is_where_the_fault_is_in_the_response():
    for name, part in (
        ("growing", lambda w: w.position > 64),
        ("after_tile", lambda w: w.position >= 96),
        ("other_context", lambda w: w.position < 6),
        ("other_ending", lambda w: w.position == np.repeat(w.lengths - 1, w.lengths)),
    ):
        work, log = made(name)
        size, there = np.abs(log.p - log.q), part(work)
        assert size[there].mean() > 1.5 * size[~there].mean(), name


@pytest.mark.parametrize("name", ["nonfinite", "sentinel", "positive", "missing"])
def test_broken_values_are_a_share_of_all(name):
    log = made(name, 0.1)[1]
    assert (log.broken == TokenStatus[name.upper()]).mean() == pytest.approx(0.1, abs=0.01)
    assert set(np.unique(log.broken)) == {TokenStatus.VALID, TokenStatus[name.upper()]}


@pytest.mark.parametrize("name", [n for n, f in FAULTS.items() if f.cause not in ("broken_values", "shift")])
def test_a_worse_severity_is_worse_than_none(name):
    work, log = made(name, FAULTS[name].severities[-1])
    assert len(log.q) == len(log.p) == len(log.is_top1) == work.lengths.sum()
    assert np.isfinite(log.q).all()
    assert np.isfinite(log.p).all()
