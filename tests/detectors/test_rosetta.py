"""Rosetta: every peer's number against its formula, written down on its own, token by token."""

import math
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS, pair

from paritas.detectors.rosetta import METRICS, RecentRosetta, Sums, rosetta, sums_of, values_of
from paritas.detectors.rosetta_sums import ENVIRONMENTS

LENGTHS = st.lists(st.integers(1, 9), min_size=2, max_size=6)


def k3(e):
    return math.exp(e) - 1.0 - e


def clamp(e):
    return min(max(e, -20.0), 20.0)


def mixture_k3(e, q):
    """NeMo-RL: half of exp(x) - x - 1 for x = log p - log m and x = log q - log m."""
    log_p, log_q = q + e, q
    log_m = math.log((math.exp(log_p) + math.exp(log_q)) / 2)
    return 0.5 * k3(log_p - log_m) + 0.5 * k3(log_q - log_m)


def effective_size(weights):
    mean = np.mean(weights) + 1e-8
    return 1.0 / np.mean((np.array(weights) / mean) ** 2)


def std(values):
    return np.std(values, ddof=1) if len(values) > 1 else 0.0


def verl(e, q, ells, qs):
    w = [math.exp(clamp(x)) for x in e]
    cut = [min(x, 2.0) for x in w]
    gaps = [abs(math.exp(b + x) - math.exp(b)) for x, b in zip(e, q, strict=True)]
    p = [math.exp(b + x) for x, b in zip(e, q, strict=True)]
    each = [np.mean([min(math.exp(clamp(x)), 2.0) for x in s]) for s in ells]
    raw = [np.mean([math.exp(clamp(x)) for x in s]) for s in ells]
    told = {
        "training/rollout_probs_diff_valid": 1.0,
        "training/rollout_probs_diff_mean": np.mean(gaps),
        "training/rollout_probs_diff_max": max(gaps),
        "training/rollout_probs_diff_std": std(gaps),
        "training/rollout_actor_probs_pearson_corr": np.corrcoef(p, np.exp(q))[0, 1],
        "rollout_corr/kl": np.mean([-x for x in e]),
        "rollout_corr/k3_kl": np.mean([k3(x) for x in e]),
        "rollout_corr/chi2_token": np.mean([x * x for x in w]) - 1.0,
        "rollout_corr/chi2_seq": np.mean([math.exp(2 * clamp(sum(s))) for s in ells]) - 1.0,
        "rollout_corr/rollout_is_mean": np.mean(cut),
        "rollout_corr/rollout_is_std": np.std(cut),
        "rollout_corr/rollout_is_min": min(cut),
        "rollout_corr/rollout_is_max": max(cut),
        "rollout_corr/rollout_is_eff_sample_size": effective_size(cut),
        "rollout_corr/rollout_is_ratio_fraction_high": np.mean([x > 2.0 for x in w]),
        "rollout_corr/rollout_is_ratio_fraction_low": np.mean([x < 0.5 for x in w]),
        "rollout_corr/rollout_is_seq_mean": np.mean(each),
        "rollout_corr/rollout_is_seq_std": std(each),
        "rollout_corr/rollout_is_seq_max": max(each),
        "rollout_corr/rollout_is_seq_min": min(each),
        "rollout_corr/rollout_is_seq_max_deviation": max(abs(x - 1) for x in each),
        "rollout_corr/rollout_is_seq_fraction_high": np.mean([x > 2.0 for x in raw]),
        "rollout_corr/rollout_is_seq_fraction_low": np.mean([x < 0.5 for x in raw]),
    }
    told |= {f"rollout_corr/{name}": value for name, value in perplexities(ells, qs).items()}
    return told | {f"rollout_corr/rollout_rs_{name}": value for name, value in rejections(ells).items()}


def perplexities(ells, qs):
    log_q = [np.mean(b) for b in qs]
    log_p = [np.mean(b) + np.mean(s) for s, b in zip(ells, qs, strict=True)]
    gap = [b - a for a, b in zip(log_p, log_q, strict=True)]
    return {
        "training_ppl": np.mean([math.exp(-a) for a in log_p]),
        "training_log_ppl": -np.mean(log_p),
        "rollout_ppl": np.mean([math.exp(-b) for b in log_q]),
        "rollout_log_ppl": -np.mean(log_q),
        "log_ppl_diff": np.mean(gap),
        "log_ppl_abs_diff": np.mean(np.abs(gap)),
        "log_ppl_diff_max": max(gap),
        "log_ppl_diff_min": min(gap),
        "ppl_ratio": np.mean([math.exp(g) for g in gap]),
    }


def rejections(ells):
    kinds = {"k1": lambda x: -clamp(x), "k2": lambda x: clamp(x) ** 2 / 2, "k3": lambda x: k3(clamp(x))}
    told = {}
    for kind, f in kinds.items():
        values = [[f(x) for x in s] for s in ells]
        flat = [x for s in values for x in s]
        told |= named(f"token_{kind}", flat, flat)
        reducers = {"seq_sum": sum, "seq_mean": np.mean, **({} if kind == "k1" else {"seq_max": max})}
        for name, reduce in reducers.items():
            each = [reduce(s) for s in values]
            spread = [one for one, s in zip(each, values, strict=True) for _ in s]
            told |= named(f"{name}_{kind}", spread, each)
    return told


def named(name, averaged, extremes):
    return {f"{name}_mean": np.mean(averaged), f"{name}_max": max(extremes), f"{name}_min": min(extremes)}


def trl(e, _q, ells, _qs):
    products = [math.exp(sum(s)) for s in ells]
    kept = [0.0 if w > 3.0 else w for w in products]
    return {
        "sampling/sampling_logp_difference/mean": np.mean(np.abs(e)),
        "sampling/sampling_logp_difference/max": max(np.abs(e)),
        "sampling/importance_sampling_ratio/mean": np.mean(kept),
        "sampling/importance_sampling_ratio/min": min(kept),
        "sampling/importance_sampling_ratio/max": max(kept),
    }


def nemo_rl(e, q, ells, _qs):
    errors = [np.mean([math.exp(abs(x)) for x in s]) for s in ells]
    return {
        "train/token_mult_prob_error": np.mean([math.exp(abs(x)) for x in e]),
        "train/gen_kl_error": np.mean([k3(x) for x in e]),
        "train/policy_kl_error": np.mean([k3(-x) for x in e]),
        "train/js_divergence_error": np.mean([mixture_k3(x, b) for x, b in zip(e, q, strict=True)]),
        "train/sampling_importance_ratio": np.mean(np.exp(e)),
        "train/max_seq_mult_prob_error": max(errors),
        "train/mean_seq_mult_prob_error": np.mean(errors),
        "train/min_seq_mult_prob_error": min(errors),
    }


def prime_rl(e, _q, _ells, _qs):
    values = [k3(x) for x in e]
    return {
        "mismatch_kl/all/mean": np.mean(values),
        "mismatch_kl/all/std": std(values),
        "mismatch_kl/all/min": min(values),
        "mismatch_kl/all/max": max(values),
    }


def slime(_e, _q, ells, qs):
    ppl = {k: v for k, v in perplexities(ells, qs).items() if not k.endswith(("max", "min"))}
    return {
        "train/train_rollout_logprob_abs_diff": np.mean([np.mean(np.abs(s)) for s in ells]),
        "train/tis": np.mean([np.mean(np.exp(s)) for s in ells]),
        "train/tis_abs": np.mean([np.mean(np.abs(np.exp(s) - 1)) for s in ells]),
        "train/tis_clipfrac": np.mean([np.mean(np.exp(s) > 2.0) for s in ells]),
        "train/mis_kl": np.mean([np.mean(-s) for s in ells]),
        "train/mis_k3_kl": np.mean([np.mean([k3(x) for x in s]) for s in ells]),
        "train/mis_chi2_token": np.mean([np.mean([math.exp(2 * clamp(x)) for x in s]) - 1 for s in ells]),
        "train/mis_chi2_seq": np.mean([math.exp(2 * clamp(sum(s))) - 1 for s in ells]),
        **{f"train/mis_{name}": value for name, value in ppl.items()},
    }


def skyrl(e, _q, ells, _qs):
    w = [math.exp(clamp(x)) for x in e]
    product = [math.exp(clamp(sum(s))) for s in ells]
    geometric = [math.exp(clamp(np.mean(s))) for s in ells]
    told = {
        "rollout_train_logprobs_abs_diff_mean": np.mean(np.abs(e)),
        "rollout_train_logprobs_abs_diff_std": std(np.abs(e)),
        "rollout_train_logprobs_abs_diff_max": max(np.abs(e)),
        "rollout_train_logprobs_abs_diff_min": min(np.abs(e)),
        "is_ratio_mean": np.mean(w),
        "is_ratio_max": max(w),
        "tis_token_clip_high_ratio": np.mean([x > 2.0 for x in w]),
        "tis_seq_clip_high_ratio": np.mean([x > 5.0 for x in product]),
    }
    for kind, values, (low, high) in (("geo", geometric, (0.99, 1.01)), ("product", product, (0.5, 2.0))):
        told |= {
            f"{kind}_sequence_mask_masked_ratio": np.mean([not low <= x <= high for x in values]),
            f"{kind}_sequence_mask_over_high_ratio": np.mean([x > high for x in values]),
            f"{kind}_sequence_mask_under_low_ratio": np.mean([x < low for x in values]),
        }
    return {f"policy/{name}": value for name, value in told.items()}


def openrlhf(e, _q, _ells, _qs):
    return {"vllm_kl": np.mean([-x for x in e])}


def ms_swift(e, _q, ells, qs):
    w = [math.exp(clamp(x)) for x in e]
    told = {
        "kl": np.mean([-x for x in e]),
        "k3_kl": np.mean([min(k3(clamp(x)), 10.0) for x in e]),
        "chi2_token": np.mean([x * x for x in w]) - 1.0,
        "chi2_seq": np.mean([math.exp(clamp(np.mean(s))) ** 2 for s in ells]) - 1.0,
        "is_weight_mean": np.mean([min(x, 2.0) for x in w]),
        "ess": effective_size([min(max(x, 0.5), 2.0) for x in w]),
        "clipped_frac": np.mean([x > 2.0 for x in w]),
        **perplexities(ells, qs),
    }
    return {f"rollout_correction/{name}": value for name, value in told.items()}


def tinker(e, _q, _ells, _qs):
    return {
        "optim/kl_sample_train_v1": np.mean([-x for x in e]),
        "optim/kl_sample_train_v2": np.mean([x * x / 2 for x in e]),
    }


PEERS = (verl, trl, nemo_rl, prime_rl, slime, skyrl, openrlhf, ms_swift, tinker)


def expected(ells, qs):
    e, q = np.concatenate(ells), np.concatenate(qs)
    return {f"{peer.__name__}:{k}": v for peer in PEERS for k, v in peer(e, q, ells, qs).items()}


def drawn(seed, lengths, scale):
    rng = np.random.default_rng(seed)
    ells = [rng.normal(0, scale, n) for n in lengths]
    return ells, [-rng.exponential(size=n) - 0.05 for n in lengths]


@settings(max_examples=60, deadline=None)
@given(SEEDS, LENGTHS, st.sampled_from([0.01, 0.5, 2.0]))
def test_every_peer_number_equals_its_formula(seed, lengths, scale):
    ells, qs = drawn(seed, lengths, scale)
    got = rosetta([pair(e, q) for e, q in zip(ells, qs, strict=True)])
    wanted = expected(ells, qs)
    assert set(got) == set(wanted) == set(METRICS)
    for name, value in wanted.items():
        assert got[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name


def same(got, wanted, *, rel=1e-9):
    assert set(got) == set(wanted)
    for name, value in wanted.items():
        assert got[name] == pytest.approx(value, rel=rel, abs=1e-12, nan_ok=True), name


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.lists(st.integers(1, 9), min_size=3, max_size=12), st.integers(1, 11), st.integers(1, 11))
def test_states_of_parts_merge_into_the_state_of_the_whole(seed, lengths, first, second):
    pairs = [pair(e, q) for e, q in zip(*drawn(seed, lengths, 0.5), strict=True)]
    cuts = sorted((0, min(first, len(pairs)), min(second, len(pairs)), len(pairs)))
    parts = [sums_of(pairs[a:b]) for a, b in pairwise(cuts)]
    same(values_of(parts[0].merge(parts[1]).merge(parts[2])), rosetta(pairs))
    same(values_of(parts[2].merge(parts[0]).merge(parts[1])), rosetta(pairs))


def test_an_empty_state_is_neutral_and_says_nothing():
    some = sums_of([pair([0.1, -0.3], [-1.0, -2.0])])
    same(values_of(Sums().merge(some)), values_of(some))
    same(values_of(some.merge(Sums())), values_of(some))
    assert values_of(Sums()) == rosetta([]) == rosetta([pair([])]) == {}


def test_sequences_without_tokens_are_left_out():
    one = pair([0.1, -0.2], [-1.0, -2.0])
    same(rosetta([pair([]), one, pair([])]), rosetta([one]))


def test_one_token_has_no_spread_and_no_correlation():
    got = rosetta([pair([0.1], [-1.0])])
    assert got["verl:training/rollout_probs_diff_std"] == 0.0
    assert got["verl:rollout_corr/rollout_is_seq_std"] == 0.0
    assert math.isnan(got["verl:training/rollout_actor_probs_pearson_corr"])


def test_a_constant_side_has_no_correlation():
    got = rosetta([pair(np.linspace(-0.1, 0.1, 50), np.full(50, -1.0))])
    assert math.isnan(got["verl:training/rollout_actor_probs_pearson_corr"])


def test_a_lost_token_leaves_the_clamped_numbers_finite_and_the_others_as_peers_print_them():
    got = rosetta([pair([-np.inf, 0.0], [-1.0, -1.0]), pair([1e4], [-1e4])])
    assert got["verl:rollout_corr/chi2_token"] == pytest.approx((math.exp(40) + 1) / 3 - 1)
    assert got["ms_swift:rollout_correction/k3_kl"] == pytest.approx((10 + 10) / 3)
    assert got["skyrl:policy/is_ratio_max"] == pytest.approx(math.exp(20))
    assert got["nemo_rl:train/sampling_importance_ratio"] == pytest.approx(1 / 3)  # inf counts as 0 there
    assert got["nemo_rl:train/token_mult_prob_error"] == math.inf
    assert got["nemo_rl:train/gen_kl_error"] == math.inf


def test_small_drift_does_not_cancel():
    got = rosetta([pair(np.full(10, 1e-6), np.full(10, -1.0))])
    for name in ("gen_kl_error", "policy_kl_error"):
        assert got[f"nemo_rl:train/{name}"] == pytest.approx(5e-13, rel=1e-5)
    assert got["nemo_rl:train/js_divergence_error"] == pytest.approx(1.25e-13, rel=1e-5)


def test_prime_rl_numbers_by_environment_are_bounded():
    ells = [np.full(3, 0.1 * (i % 2)) for i in range(40)]
    pairs = [pair(e, attributes={"environment": f"env-{i}"}) for i, e in enumerate(ells)]
    got = rosetta(pairs)
    named = [name for name in got if name not in METRICS]
    assert len(named) == 3 * ENVIRONMENTS
    assert got["prime_rl:mismatch_kl/env-1/mean"] == pytest.approx(k3(0.1))
    assert got["prime_rl:mismatch_kl/env-0/max"] == 0.0


def test_a_stream_tells_the_latest_one_to_two_windows():
    pairs = [pair(np.full(4, 0.001 * i), name=f"s-{i}") for i in range(100)]
    recent = RecentRosetta(window=10)
    for count, one in enumerate(pairs, 1):
        recent.add(one)
        held = count if count < 20 else 10 + count % 10
        if count % 7 == 0:
            same(recent.values(), rosetta(pairs[count - held : count]))
    assert RecentRosetta().values() == {}


def test_a_stream_without_tokens_says_nothing():
    recent = RecentRosetta()
    recent.add(pair([]))
    assert recent.values() == {}


def test_the_state_is_small_and_holds_no_sequence():
    recent = RecentRosetta()
    sizes = []
    for i in range(3000):
        recent.add(pair(np.full(8, 0.01), name=f"sequence-{i}"))
        if i in (100, 1500, 2999):
            sizes.append(len(pickle.dumps(recent)))
    assert max(sizes) < 8192
    assert b"sequence-" not in pickle.dumps(recent)
    again = pickle.loads(pickle.dumps(recent))
    same(again.values(), recent.values())
    again.add(pair([0.3, 0.3]))
    assert again.values()["skyrl:policy/rollout_train_logprobs_abs_diff_max"] == pytest.approx(0.3)
