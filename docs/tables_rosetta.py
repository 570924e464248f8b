"""The Rosetta table: what other frameworks print, by name, formula and source, with measured values."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from types import MappingProxyType

from markdown_table import markdown

from paritas.commands.offline import judge_recording
from paritas.contracts.load import load_preset

__all__ = ["ENTRIES", "Entry", "rosetta_table"]

VERL_DEBUG = "[verl](https://github.com/verl-project/verl) `verl/utils/debug/metrics.py`"
VERL = "verl `verl/trainer/ppo/rollout_corr_helper.py`"
TRL = "[TRL](https://github.com/huggingface/trl) `trl/trainer/grpo_trainer.py`"
NEMO = "[NeMo-RL](https://github.com/NVIDIA-NeMo/RL) `nemo_rl/algorithms/loss/loss_functions.py`"
PRIME = "[prime-rl](https://github.com/PrimeIntellect-ai/prime-rl) `src/prime_rl/trainer/rl/loss.py`"
NEMO_GRPO = "NeMo-RL `nemo_rl/algorithms/grpo.py`"
SLIME = "[slime](https://github.com/THUDM/slime) `slime/backends/megatron_utils/loss.py`"
SLIME_MIS = "slime `examples/train_infer_mismatch_helper/mis.py`"
SKYRL = "[SkyRL](https://github.com/NovaSky-AI/SkyRL) `skyrl/train/trainer.py`"
SKYRL_UTILS = "SkyRL `skyrl/backends/skyrl_train/utils/off_policy_correction_utils.py`"
OPENRLHF = "[OpenRLHF](https://github.com/OpenRLHF/OpenRLHF) `openrlhf/models/loss.py`"
SWIFT = "[ms-swift](https://github.com/modelscope/ms-swift) `swift/rlhf_trainers/grpo_trainer.py`"
TINKER = "[tinker-cookbook](https://github.com/thinking-machines-lab/tinker-cookbook) `tinker_cookbook/rl/metrics.py`"


@dataclass(frozen=True, slots=True)
class Entry:
    """Formula of one peer metric, and where its source says so."""

    formula: str
    source: str


def _perplexities(prefix: str, source: str, over: str) -> dict[str, Entry]:
    """verl, ms-swift and slime's helper share these; `over` says what is averaged."""
    told = {
        "training_ppl": f"mean {over} of exp(−mean log p)",
        "training_log_ppl": f"mean {over} of −mean log p",
        "rollout_ppl": f"mean {over} of exp(−mean log q)",
        "rollout_log_ppl": f"mean {over} of −mean log q",
        "log_ppl_diff": f"mean {over} of d = mean log q − mean log p",
        "log_ppl_abs_diff": f"mean {over} of abs d",
        "ppl_ratio": f"mean {over} of exp d",
    }
    return {prefix + name: Entry(formula, source) for name, formula in told.items()}


def _extremes(prefix: str, source: str) -> dict[str, Entry]:
    told = {"log_ppl_diff_max": "max over sequences of d", "log_ppl_diff_min": "min over sequences of d"}
    return {prefix + name: Entry(formula, source) for name, formula in told.items()}


def _rejections() -> dict[str, Entry]:
    """verl's rejection statistics: what does not depend on a threshold."""
    kinds = {"k1": "−ℓ", "k2": "ℓ²/2", "k3": "w − 1 − ℓ"}
    units = {
        **{f"token_{k}": (f"{f}", "tokens") for k, f in kinds.items()},
        **{f"seq_sum_{k}": (f"the sum of {f}", "sequences") for k, f in kinds.items()},
        **{f"seq_mean_{k}": (f"the mean of {f}", "sequences") for k, f in kinds.items()},
        **{f"seq_max_{k}": (f"the max of {kinds[k]}", "sequences") for k in ("k2", "k3")},
    }
    told = {}
    for name, (what, over) in units.items():
        weights = "" if over == "tokens" else ", each as often as it has tokens"
        for part, text in (("mean", f"mean{weights}"), ("max", "max"), ("min", "min")):
            formula = f"{text} over {over} of {what}, ℓ clamped to ±20"
            told[f"verl:rollout_corr/rollout_rs_{name}_{part}"] = Entry(formula, VERL)
    return told


def _verl() -> dict[str, Entry]:
    v = "v = min(w, 2)"
    weights = {
        "kl": "k1: mean of −ℓ, can be negative",
        "k3_kl": "k3: mean of w − 1 − ℓ, not clamped",
        "chi2_token": "mean of w² − 1, ℓ clamped to ±20",
        "chi2_seq": "mean over sequences of W² − 1, log W clamped to ±20",
        "rollout_is_mean": f"mean of {v}: after truncation",
        "rollout_is_std": f"population sd of {v}",
        "rollout_is_min": f"min of {v}",
        "rollout_is_max": f"max of {v}",
        "rollout_is_eff_sample_size": f"1 / mean((v / mean v)²), {v}",
        "rollout_is_ratio_fraction_high": "share of w > 2",
        "rollout_is_ratio_fraction_low": "share of w < ½",
        "rollout_is_seq_mean": f"mean over sequences of their mean v, {v}",
        "rollout_is_seq_std": "sd over sequences of their mean v",
        "rollout_is_seq_max": "max over sequences of their mean v",
        "rollout_is_seq_min": "min over sequences of their mean v",
        "rollout_is_seq_max_deviation": "max over sequences of abs(mean v − 1)",
        "rollout_is_seq_fraction_high": "share of sequences with mean w > 2",
        "rollout_is_seq_fraction_low": "share of sequences with mean w < ½",
    }
    gaps = {
        "rollout_probs_diff_valid": "1 where there is a token",
        "rollout_probs_diff_mean": "mean of abs(p − q): a gap of probabilities",
        "rollout_probs_diff_max": "max of abs(p − q)",
        "rollout_probs_diff_std": "sd of abs(p − q)",
        "rollout_actor_probs_pearson_corr": "Pearson r of p and q",
    }
    return {
        **{f"verl:training/{name}": Entry(text, VERL_DEBUG) for name, text in gaps.items()},
        **{f"verl:rollout_corr/{name}": Entry(text, VERL) for name, text in weights.items()},
        **_perplexities("verl:rollout_corr/", VERL, "over sequences"),
        **_extremes("verl:rollout_corr/", VERL),
        **_rejections(),
    }


def _slime() -> dict[str, Entry]:
    over = "over samples of their mean"
    own = {
        "train_rollout_logprob_abs_diff": f"mean {over} abs ℓ",
        "tis": f"mean {over} w, not truncated",
        "tis_abs": f"mean {over} abs(w − 1)",
        "tis_clipfrac": f"mean {over} 1{{w > 2}}",
    }
    helper = {
        "kl": f"mean {over} −ℓ",
        "k3_kl": f"mean {over} w − 1 − ℓ",
        "chi2_token": f"mean {over} w² − 1, ℓ clamped to ±20",
        "chi2_seq": "mean over samples of W² − 1, log W clamped to ±20",
    }
    return {
        **{f"slime:train/{name}": Entry(text, SLIME) for name, text in own.items()},
        **{f"slime:train/mis_{name}": Entry(text, SLIME_MIS) for name, text in helper.items()},
        **_perplexities("slime:train/mis_", SLIME_MIS, "over samples"),
    }


def _skyrl() -> dict[str, Entry]:
    masks = {"geo": ("exp(mean ℓ)", "[0.99, 1.01]"), "product": ("W", "[½, 2]")}
    told = {
        "rollout_train_logprobs_abs_diff_mean": (SKYRL, "mean of abs ℓ"),
        "rollout_train_logprobs_abs_diff_max": (SKYRL, "max of abs ℓ"),
        "rollout_train_logprobs_abs_diff_min": (SKYRL, "min of abs ℓ"),
        "rollout_train_logprobs_abs_diff_std": (SKYRL, "sd of abs ℓ"),
        "is_ratio_mean": (SKYRL_UTILS, "mean of w, ℓ clamped to ±20"),
        "is_ratio_max": (SKYRL_UTILS, "max of w, ℓ clamped to ±20"),
        "tis_token_clip_high_ratio": (SKYRL_UTILS, "share of w > 2"),
        "tis_seq_clip_high_ratio": (SKYRL_UTILS, "share of sequences with W > 5"),
    }
    for kind, (what, band) in masks.items():
        name = f"{kind}_sequence_mask"
        told[f"{name}_masked_ratio"] = (SKYRL_UTILS, f"share of sequences with {what} outside {band}")
        told[f"{name}_over_high_ratio"] = (SKYRL_UTILS, f"share of sequences with {what} above {band}")
        told[f"{name}_under_low_ratio"] = (SKYRL_UTILS, f"share of sequences with {what} below {band}")
    return {f"skyrl:policy/{name}": Entry(text, source) for name, (source, text) in told.items()}


def _swift() -> dict[str, Entry]:
    own = {
        "kl": "k1: mean of −ℓ",
        "k3_kl": "k3, ℓ clamped to ±20 and each token to 10",
        "chi2_token": "mean of w² − 1, ℓ clamped to ±20",
        "chi2_seq": "mean over sequences of exp(mean ℓ)² − 1: a geometric mean, not W",
        "is_weight_mean": "mean of min(w, 2)",
        "ess": "1 / mean((v / mean v)²), v = w clamped to [½, 2]",
        "clipped_frac": "share of w > 2",
    }
    prefix = "ms_swift:rollout_correction/"
    return {
        **{prefix + name: Entry(text, SWIFT) for name, text in own.items()},
        **_perplexities(prefix, SWIFT, "over sequences"),
        **_extremes(prefix, SWIFT),
    }


_PLAIN = {
    "trl:sampling/sampling_logp_difference/mean": ("mean of abs ℓ; TRL averages ranks, not tokens", TRL),
    "trl:sampling/sampling_logp_difference/max": ("max of abs ℓ", TRL),
    "trl:sampling/importance_sampling_ratio/mean": (
        "mean of W, 0 where W > 3 (sequence_mask, the default)",
        TRL,
    ),
    "trl:sampling/importance_sampling_ratio/min": ("min of the same", TRL),
    "trl:sampling/importance_sampling_ratio/max": ("max of the same", TRL),
    "nemo_rl:train/token_mult_prob_error": ("mean of exp(abs ℓ)", NEMO),
    "nemo_rl:train/gen_kl_error": ("k3: mean of w − 1 − ℓ, not clamped", NEMO),
    "nemo_rl:train/policy_kl_error": ("k3 of −ℓ, not clamped", NEMO),
    "nemo_rl:train/js_divergence_error": (
        "half the sum of both k3 against the mixture: mean of log cosh(ℓ/2)",
        NEMO,
    ),
    "nemo_rl:train/sampling_importance_ratio": ("mean of w, infinite ones counted as 0", NEMO),
    "nemo_rl:train/max_seq_mult_prob_error": ("max over sequences of mean exp(abs ℓ)", NEMO_GRPO),
    "nemo_rl:train/mean_seq_mult_prob_error": ("mean over sequences of mean exp(abs ℓ)", NEMO_GRPO),
    "nemo_rl:train/min_seq_mult_prob_error": ("min over sequences of mean exp(abs ℓ)", NEMO_GRPO),
    "prime_rl:mismatch_kl/all/mean": ("k3: mean of w − 1 − ℓ", PRIME),
    "prime_rl:mismatch_kl/all/std": ("sd of w − 1 − ℓ", PRIME),
    "prime_rl:mismatch_kl/all/min": ("min of w − 1 − ℓ", PRIME),
    "prime_rl:mismatch_kl/all/max": ("max of w − 1 − ℓ", PRIME),
    "openrlhf:vllm_kl": ("k1: mean of −ℓ, can be negative", OPENRLHF),
    "tinker:optim/kl_sample_train_v1": ("k1: mean of −ℓ", TINKER),
    "tinker:optim/kl_sample_train_v2": ("k2: mean of ℓ²/2", TINKER),
}

ENTRIES: Mapping[str, Entry] = MappingProxyType(
    {
        **{name: Entry(*told) for name, told in _PLAIN.items()},
        **_verl(),
        **_slime(),
        **_skyrl(),
        **_swift(),
    }
)


def rosetta_table() -> str:
    """Return the table; a name that the detectors print and `ENTRIES` lacks is a KeyError."""
    recordings = {name: _values(*pair) for name, pair in _PAIRS.items()}
    head = ["metric", "formula", *recordings, "source"]
    return markdown(head, (_row(name, recordings) for name in recordings["healthy"]))


_PAIRS = {
    "healthy": ("healthy", "healthy"),
    "stale replica": ("healthy", "stale"),
    "top-p on one side": ("top_p", "top_p"),
}


def _row(name: str, recordings: Mapping[str, Mapping[str, float]]) -> list[str]:
    entry = ENTRIES[name]
    return [
        f"`{name}`",
        entry.formula,
        *(f"{values[name]:.4g}" for values in recordings.values()),
        entry.source,
    ]


def _values(serve: str, train: str) -> Mapping[str, float]:
    data = files("paritas") / "data"
    with (
        as_file(data / f"{serve}.serve.jsonl.gz") as served,
        as_file(data / f"{train}.train.jsonl.gz") as trained,
    ):
        return judge_recording(load_preset("dense-bf16"), served, trained).rosetta
