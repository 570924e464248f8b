"""Rosetta: the numbers other frameworks print, by their own names, from the same pairs.

Formulas as read in their sources (docs/rosetta.md gives repository and file).  Written on raw
values, before any repair, over all valid tokens of the input; `Delta = ell`, `w = exp(ell)`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paritas.detectors.pairs import Floats, PairedTrace

__all__ = ["rosetta"]

CLAMP = 20.0  # verl, SkyRL clamp Delta to +-20 before squaring
TIS_CAP = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    """Concatenated columns: `ell` and `q` in nats, `lengths` tokens per sequence."""

    ell: Floats
    q: Floats
    lengths: Floats
    sequences: Sequence[Floats]


def rosetta(pairs: Sequence[PairedTrace]) -> dict[str, float]:
    """Return peer metric name → value; empty without valid tokens."""
    used = [p for p in pairs if p.tokens]
    if not used:
        return {}
    ells = [p.log_ratio for p in used]
    tokens = _Tokens(
        np.concatenate(ells),
        np.concatenate([p.logprob_q for p in used]),
        np.array([len(e) for e in ells], dtype=np.float64),
        ells,
    )
    with np.errstate(over="ignore", invalid="ignore"):  # peers print inf and nan for a lost token
        parts: tuple[Mapping[str, float], ...] = tuple(f(tokens) for f in (_verl, _trl, _nemo, _others))
    return {name: float(value) for part in parts for name, value in part.items()}


def _verl(t: _Tokens) -> dict[str, float]:
    """verl `debug/metrics.py`, `rollout_corr_helper.py`: |probability| gaps, k1, k3, chi-square, ESS."""
    p, q = np.exp(t.q + t.ell), np.exp(t.q)
    gap = np.abs(p - q)
    w = np.exp(np.clip(t.ell, -CLAMP, CLAMP))
    capped = np.minimum(w, TIS_CAP)
    return {
        "verl:training/rollout_probs_diff_mean": gap.mean(),
        "verl:training/rollout_probs_diff_max": gap.max(),
        "verl:training/rollout_probs_diff_std": _std(gap),
        "verl:training/rollout_actor_probs_pearson_corr": _pearson(p, q),
        "verl:rollout_corr/kl": -t.ell.mean(),
        "verl:rollout_corr/k3_kl": _k3(t.ell).mean(),
        "verl:rollout_corr/chi2_token": (w**2).mean() - 1.0,
        "verl:rollout_corr/rollout_is_mean": capped.mean(),
        "verl:rollout_corr/rollout_is_eff_sample_size": 1.0 / ((capped / capped.mean()) ** 2).mean(),
    }


def _trl(t: _Tokens) -> dict[str, float]:
    """TRL `grpo_trainer.py`: |Delta|; the sequence ratio is the product over the sequence."""
    size = np.abs(t.ell)
    ratio = np.array([np.exp(np.clip(e.sum(), -CLAMP, CLAMP)) for e in t.sequences])
    return {
        "trl:sampling/sampling_logp_difference/mean": size.mean(),
        "trl:sampling/sampling_logp_difference/max": size.max(),
        "trl:sampling/importance_sampling_ratio/mean": ratio.mean(),
        "trl:sampling/importance_sampling_ratio/min": ratio.min(),
        "trl:sampling/importance_sampling_ratio/max": ratio.max(),
    }


def _nemo(t: _Tokens) -> dict[str, float]:
    """NeMo-RL `loss_functions.py`: multiplicative error, k3 both ways, JS."""
    p, q = t.q + t.ell, t.q
    mix = np.logaddexp(p, q) - np.log(2.0)
    js = 0.5 * (_k3(mix - p) + _k3(mix - q))
    return {
        "nemo_rl:train/token_mult_prob_error": np.exp(np.abs(t.ell)).mean(),
        "nemo_rl:train/gen_kl_error": _k3(t.ell).mean(),
        "nemo_rl:train/policy_kl_error": _k3(-t.ell).mean(),
        "nemo_rl:train/js_divergence_error": js.mean(),
        "nemo_rl:train/sampling_importance_ratio": np.exp(t.ell).mean(),
        "nemo_rl:train/max_seq_mult_prob_error": max(np.exp(np.abs(e)).mean() for e in t.sequences),
    }


def _others(t: _Tokens) -> dict[str, float]:
    """prime-rl, slime, SkyRL, OpenRLHF, ms-swift, tinker-cookbook."""
    size = np.abs(t.ell)
    w = np.exp(t.ell)
    inside = np.clip(w, 1.0 / TIS_CAP, TIS_CAP)
    return {
        "prime_rl:mismatch_kl/all/mean": _k3(t.ell).mean(),
        "prime_rl:mismatch_kl/all/max": _k3(t.ell).max(),
        "slime:train/train_rollout_logprob_abs_diff": float(np.mean([np.abs(e).mean() for e in t.sequences])),
        "slime:train/tis_clipfrac": (w > TIS_CAP).mean(),
        "skyrl:policy/rollout_train_logprobs_abs_diff_mean": size.mean(),
        "skyrl:policy/rollout_train_logprobs_abs_diff_max": size.max(),
        "skyrl:policy/rollout_train_logprobs_abs_diff_std": _std(size),
        "openrlhf:vllm_kl": -t.ell.mean(),
        "ms_swift:rollout_correction/k3_kl": _k3(t.ell).mean(),
        "ms_swift:rollout_correction/ess": 1.0 / ((inside / inside.mean()) ** 2).mean(),
        "tinker:optim/kl_sample_train_v1": -t.ell.mean(),
        "tinker:optim/kl_sample_train_v2": (t.ell**2 / 2.0).mean(),
    }


def _k3(ell: Floats) -> Floats:
    """exp(ell) - 1 - ell, exact near zero; clamped at 20 nats, as some of its users do and verl does not."""
    safe = np.clip(ell, -CLAMP, CLAMP)
    return np.asarray(np.expm1(safe) - safe, dtype=np.float64)


def _std(values: Floats) -> float:
    """Sample standard deviation (torch's default); 0 for one value."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _pearson(a: Floats, b: Floats) -> float:
    """Pearson correlation; NaN where one side is constant."""
    if len(a) < 2 or not a.std() or not b.std():
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])
