"""Rosetta: every peer's number against its formula, written down on its own."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_factory import SEEDS, pair

from paritas.detectors.rosetta import rosetta


def k3(e):
    return math.exp(e) - 1.0 - e


def mixture_k3(e, q):
    """Half of each k3 form against the mixture of the two probabilities."""
    p, q = math.exp(q + e), math.exp(q)
    m = (p + q) / 2
    return 0.5 * (m / p - 1 - math.log(m / p)) + 0.5 * (m / q - 1 - math.log(m / q))


def effective_size(weights):
    weights = np.array(weights)
    return weights.sum() ** 2 / (len(weights) * (weights**2).sum())


def expected(ells, qs):
    e, q = np.concatenate(ells), np.concatenate(qs)
    w, gaps = np.exp(e), np.abs(np.exp(q + e) - np.exp(q))
    products = [math.exp(sum(s)) for s in ells]
    errors = [np.mean(np.exp(np.abs(s))) for s in ells]
    mean_k3 = np.mean([k3(x) for x in e])
    return {
        "verl:training/rollout_probs_diff_mean": gaps.mean(),
        "verl:training/rollout_probs_diff_max": gaps.max(),
        "verl:training/rollout_probs_diff_std": np.std(gaps, ddof=1),
        "verl:training/rollout_actor_probs_pearson_corr": np.corrcoef(np.exp(q + e), np.exp(q))[0, 1],
        "verl:rollout_corr/kl": np.mean(-e),
        "verl:rollout_corr/k3_kl": mean_k3,
        "verl:rollout_corr/chi2_token": np.mean(w * w) - 1,
        "verl:rollout_corr/rollout_is_mean": np.mean(np.minimum(w, 2)),
        "verl:rollout_corr/rollout_is_eff_sample_size": effective_size(np.minimum(w, 2)),
        "trl:sampling/sampling_logp_difference/mean": np.abs(e).mean(),
        "trl:sampling/sampling_logp_difference/max": np.abs(e).max(),
        "trl:sampling/importance_sampling_ratio/mean": np.mean(products),
        "trl:sampling/importance_sampling_ratio/min": min(products),
        "trl:sampling/importance_sampling_ratio/max": max(products),
        "nemo_rl:train/token_mult_prob_error": np.mean(np.exp(np.abs(e))),
        "nemo_rl:train/gen_kl_error": mean_k3,
        "nemo_rl:train/policy_kl_error": np.mean([math.exp(-x) - 1 + x for x in e]),
        "nemo_rl:train/js_divergence_error": np.mean([mixture_k3(x, y) for x, y in zip(e, q, strict=True)]),
        "nemo_rl:train/sampling_importance_ratio": w.mean(),
        "nemo_rl:train/max_seq_mult_prob_error": max(errors),
        "prime_rl:mismatch_kl/all/mean": mean_k3,
        "prime_rl:mismatch_kl/all/max": max(k3(x) for x in e),
        "slime:train/train_rollout_logprob_abs_diff": np.mean([np.abs(s).mean() for s in ells]),
        "slime:train/tis_clipfrac": np.mean(w > 2),
        "skyrl:policy/rollout_train_logprobs_abs_diff_mean": np.abs(e).mean(),
        "skyrl:policy/rollout_train_logprobs_abs_diff_max": np.abs(e).max(),
        "skyrl:policy/rollout_train_logprobs_abs_diff_std": np.std(np.abs(e), ddof=1),
        "openrlhf:vllm_kl": np.mean(-e),
        "ms_swift:rollout_correction/k3_kl": mean_k3,
        "ms_swift:rollout_correction/ess": effective_size(np.clip(w, 0.5, 2)),
        "tinker:optim/kl_sample_train_v1": np.mean(-e),
        "tinker:optim/kl_sample_train_v2": np.mean(e**2 / 2),
    }


@given(SEEDS, st.lists(st.integers(2, 9), min_size=1, max_size=5), st.sampled_from([0.01, 0.5, 2.0]))
def test_every_peer_number_equals_its_formula(seed, lengths, scale):
    rng = np.random.default_rng(seed)
    ells = [rng.normal(0, scale, n) for n in lengths]
    qs = [-rng.exponential(size=n) - 0.05 for n in lengths]
    got = rosetta([pair(e, q) for e, q in zip(ells, qs, strict=True)])
    wanted = expected(ells, qs)
    assert set(got) == set(wanted)
    for name, value in wanted.items():
        assert got[name] == pytest.approx(value, rel=1e-6, abs=1e-12), name


def test_sequences_without_tokens_are_left_out():
    one = pair([0.1, -0.2], [-1.0, -2.0])
    assert rosetta([pair([]), one, pair([])]) == rosetta([one])
    assert rosetta([pair([])]) == rosetta([]) == {}


def test_one_token_has_no_spread_and_no_correlation():
    got = rosetta([pair([0.1], [-1.0])])
    assert got["verl:training/rollout_probs_diff_std"] == 0.0
    assert math.isnan(got["verl:training/rollout_actor_probs_pearson_corr"])


def test_a_lost_token_leaves_the_clamped_numbers_finite():
    got = rosetta([pair([-np.inf, 0.0], [-1.0, -1.0]), pair([1e4], [-1e4])])
    assert got["verl:rollout_corr/chi2_token"] == pytest.approx((math.exp(40) + 1) / 3 - 1)
    assert got["nemo_rl:train/gen_kl_error"] == pytest.approx((19 + math.exp(20) - 21) / 3, rel=1e-6)
    assert got["nemo_rl:train/token_mult_prob_error"] == math.inf  # as NeMo-RL prints it
