"""Peer metric name → its formula on `Sums`; docs/rosetta.md gives repository and file of each.

Thresholds are the peers' defaults.  What needs a threshold without a default, another policy (the
one after the update), advantages of tokens or whole distributions has no entry.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from paritas.detectors.rosetta_columns import SEQUENCE, TOKEN
from paritas.detectors.rosetta_sums import Sums

__all__ = ["METRICS", "environment_metrics"]

Formula = Callable[[Sums], float]
EPSILON = 1e-8  # verl and ms-swift add it to the mean weight


def _mean(column: str, shift: float = 0.0) -> Formula:
    place = TOKEN[column]
    return lambda s: s.tokens.mean(place) + shift


def _high(column: str) -> Formula:
    place = TOKEN[column]
    return lambda s: float(s.tokens.high[place])


def _low(column: str) -> Formula:
    place = TOKEN[column]
    return lambda s: float(s.tokens.low[place])


def _deviation(column: str) -> Formula:
    place = TOKEN[column]
    return lambda s: s.tokens.deviation(place)


def _each(column: str, shift: float = 0.0) -> Formula:
    """Mean over sequences."""
    place = SEQUENCE[column]
    return lambda s: s.sequences.mean(place) + shift


def _each_high(column: str) -> Formula:
    place = SEQUENCE[column]
    return lambda s: float(s.sequences.high[place])


def _each_low(column: str) -> Formula:
    place = SEQUENCE[column]
    return lambda s: float(s.sequences.low[place])


def _spread(column: str) -> Formula:
    """Standard deviation over sequences."""
    place = SEQUENCE[column]
    return lambda s: s.sequences.deviation(place)


def _effective(column: str) -> Formula:
    """1 / mean((v / (mean v + epsilon))^2) of a token column."""
    place = TOKEN[column]

    def share(s: Sums) -> float:
        mean = s.tokens.mean(place)
        square = s.tokens.variance(place) + mean**2
        return (mean + EPSILON) ** 2 / square if square else float("nan")

    return share


def _weighted(column: str) -> Formula:
    """Mean over tokens of a number of their sequence."""
    place = SEQUENCE[f"weighted_{column}"]
    return lambda s: float(s.sequences.total[place]) / s.tokens.count


def _either(low: str, high: str) -> Formula:
    """Share of sequences with one of two flags that exclude each other."""
    return lambda s: s.sequences.mean(SEQUENCE[low]) + s.sequences.mean(SEQUENCE[high])


def _population_deviation(column: str) -> Formula:
    place = TOKEN[column]
    return lambda s: max(s.tokens.variance(place), 0.0) ** 0.5


def _verl() -> Iterator[tuple[str, Formula]]:
    yield "training/rollout_probs_diff_valid", lambda s: float(s.tokens.count > 0)
    yield "training/rollout_probs_diff_mean", _mean("gap")
    yield "training/rollout_probs_diff_max", _high("gap")
    yield "training/rollout_probs_diff_std", _deviation("gap")
    yield "training/rollout_actor_probs_pearson_corr", Sums.correlation
    corr = "rollout_corr/"
    yield corr + "kl", lambda s: -s.tokens.mean(TOKEN["ell"])
    yield corr + "k3_kl", _mean("k3")
    yield from ((corr + name, formula) for name, formula in _perplexities())
    yield corr + "chi2_token", _mean("w_safe2", -1.0)
    yield corr + "chi2_seq", _each("product2", -1.0)
    yield corr + "rollout_is_mean", _mean("truncated")
    yield corr + "rollout_is_std", _population_deviation("truncated")
    yield corr + "rollout_is_min", _low("truncated")
    yield corr + "rollout_is_max", _high("truncated")
    yield corr + "rollout_is_eff_sample_size", _effective("truncated")
    yield corr + "rollout_is_ratio_fraction_high", _mean("above")
    yield corr + "rollout_is_ratio_fraction_low", _mean("below")
    yield corr + "rollout_is_seq_mean", _each("truncated")
    yield corr + "rollout_is_seq_std", _spread("truncated")
    yield corr + "rollout_is_seq_max", _each_high("truncated")
    yield corr + "rollout_is_seq_min", _each_low("truncated")
    yield corr + "rollout_is_seq_max_deviation", _each_high("deviation")
    yield corr + "rollout_is_seq_fraction_high", _each("raw_high")
    yield corr + "rollout_is_seq_fraction_low", _each("raw_low")
    yield from ((f"{corr}rollout_rs_{name}", formula) for name, formula in _rejections())


def _perplexities() -> Iterator[tuple[str, Formula]]:
    """Shared by verl and ms-swift."""
    yield "training_ppl", _each("ppl_p")
    yield "training_log_ppl", _each("log_ppl_p")
    yield "rollout_ppl", _each("ppl_q")
    yield "rollout_log_ppl", _each("log_ppl_q")
    yield "log_ppl_diff", _each("ppl_gap")
    yield "log_ppl_abs_diff", _each("ppl_size")
    yield "log_ppl_diff_max", _each_high("ppl_gap")
    yield "log_ppl_diff_min", _each_low("ppl_gap")
    yield "ppl_ratio", _each("ppl_ratio")


def _rejections() -> Iterator[tuple[str, Formula]]:
    """What verl prints of each rejection statistic whatever its threshold."""
    for kind, column in (("k1", "k1"), ("k2", "k2"), ("k3", "k3_safe")):
        yield f"token_{kind}_mean", _mean(column)
        yield f"token_{kind}_max", _high(column)
        yield f"token_{kind}_min", _low(column)
        yield f"seq_mean_{kind}_mean", _mean(column)  # spread over tokens, the means are the tokens' mean
        yield f"seq_mean_{kind}_max", _each_high(f"mean_{kind}")
        yield f"seq_mean_{kind}_min", _each_low(f"mean_{kind}")
    for name in ("sum_k1", "sum_k2", "sum_k3", "max_k2", "max_k3"):
        yield f"seq_{name}_mean", _weighted(name)
        yield f"seq_{name}_max", _each_high(name)
        yield f"seq_{name}_min", _each_low(name)


def _trl() -> Iterator[tuple[str, Formula]]:
    yield "sampling/sampling_logp_difference/mean", _mean("size")
    yield "sampling/sampling_logp_difference/max", _high("size")
    yield "sampling/importance_sampling_ratio/mean", _each("masked")
    yield "sampling/importance_sampling_ratio/min", _each_low("masked")
    yield "sampling/importance_sampling_ratio/max", _each_high("masked")


def _nemo() -> Iterator[tuple[str, Formula]]:
    yield "train/token_mult_prob_error", _mean("mult")
    yield "train/gen_kl_error", _mean("k3")
    yield "train/policy_kl_error", _mean("k3_reverse")
    yield "train/js_divergence_error", _mean("js")
    yield "train/sampling_importance_ratio", _mean("w_finite")
    yield "train/max_seq_mult_prob_error", _each_high("mult")
    yield "train/mean_seq_mult_prob_error", _each("mult")
    yield "train/min_seq_mult_prob_error", _each_low("mult")


def _prime() -> Iterator[tuple[str, Formula]]:
    yield "mismatch_kl/all/mean", _mean("k3")
    yield "mismatch_kl/all/std", _deviation("k3")
    yield "mismatch_kl/all/min", _low("k3")
    yield "mismatch_kl/all/max", _high("k3")


def _slime() -> Iterator[tuple[str, Formula]]:
    """Means over samples of their means; `mis_*` is the helper of examples/train_infer_mismatch_helper."""
    yield "train/train_rollout_logprob_abs_diff", _each("size")
    yield "train/tis", _each("w")
    yield "train/tis_abs", _each("w_gap")
    yield "train/tis_clipfrac", _each("above")
    yield "train/mis_kl", _each("k1")
    yield "train/mis_k3_kl", _each("k3")
    yield "train/mis_training_log_ppl", _each("log_ppl_p")
    yield "train/mis_training_ppl", _each("ppl_p")
    yield "train/mis_rollout_log_ppl", _each("log_ppl_q")
    yield "train/mis_rollout_ppl", _each("ppl_q")
    yield "train/mis_log_ppl_diff", _each("ppl_gap")
    yield "train/mis_log_ppl_abs_diff", _each("ppl_size")
    yield "train/mis_ppl_ratio", _each("ppl_ratio")
    yield "train/mis_chi2_token", _each("w_safe2", -1.0)
    yield "train/mis_chi2_seq", _each("product2", -1.0)


def _skyrl() -> Iterator[tuple[str, Formula]]:
    yield "policy/rollout_train_logprobs_abs_diff_mean", _mean("size")
    yield "policy/rollout_train_logprobs_abs_diff_std", _deviation("size")
    yield "policy/rollout_train_logprobs_abs_diff_max", _high("size")
    yield "policy/rollout_train_logprobs_abs_diff_min", _low("size")
    yield "policy/is_ratio_mean", _mean("w_safe")
    yield "policy/is_ratio_max", _high("w_safe")
    yield "policy/tis_token_clip_high_ratio", _mean("above")
    yield "policy/tis_seq_clip_high_ratio", _each("product_capped")
    for kind, name in (("geo", "geometric"), ("product", "product")):
        yield f"policy/{kind}_sequence_mask_masked_ratio", _either(f"{name}_low", f"{name}_high")
        yield f"policy/{kind}_sequence_mask_over_high_ratio", _each(f"{name}_high")
        yield f"policy/{kind}_sequence_mask_under_low_ratio", _each(f"{name}_low")


def _openrlhf() -> Iterator[tuple[str, Formula]]:
    yield "vllm_kl", lambda s: -s.tokens.mean(TOKEN["ell"])


def _swift() -> Iterator[tuple[str, Formula]]:
    names: dict[str, Formula] = {
        "kl": lambda s: -s.tokens.mean(TOKEN["ell"]),
        "k3_kl": _mean("k3_cut"),
        **dict(_perplexities()),
        "chi2_token": _mean("w_safe2", -1.0),
        "chi2_seq": _each("geometric2", -1.0),
        "is_weight_mean": _mean("truncated"),
        "ess": _effective("banded"),
        "clipped_frac": _mean("above"),
    }
    yield from ((f"rollout_correction/{name}", formula) for name, formula in names.items())


def _tinker() -> Iterator[tuple[str, Formula]]:
    yield "optim/kl_sample_train_v1", lambda s: -s.tokens.mean(TOKEN["ell"])
    yield "optim/kl_sample_train_v2", _mean("k2")


_PEERS: Mapping[str, Callable[[], Iterator[tuple[str, Formula]]]] = {
    "verl": _verl,
    "trl": _trl,
    "nemo_rl": _nemo,
    "prime_rl": _prime,
    "slime": _slime,
    "skyrl": _skyrl,
    "openrlhf": _openrlhf,
    "ms_swift": _swift,
    "tinker": _tinker,
}

METRICS: Mapping[str, Formula] = MappingProxyType(
    {f"{peer}:{name}": formula for peer, told in _PEERS.items() for name, formula in told()}
)


def environment_metrics(sums: Sums) -> Iterator[tuple[str, float]]:
    """Yield prime-rl's `mismatch_kl/ENV/...` of every environment that was seen."""
    for name, columns in sorted(sums.environments.items()):
        yield f"prime_rl:mismatch_kl/{name}/mean", columns.mean(0)
        yield f"prime_rl:mismatch_kl/{name}/std", columns.deviation(0)
        yield f"prime_rl:mismatch_kl/{name}/max", float(columns.high[0])
