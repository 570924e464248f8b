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
SLIME = "[slime](https://github.com/THUDM/slime) `slime/backends/megatron_utils/loss.py`"
SKYRL = "[SkyRL](https://github.com/NovaSky-AI/SkyRL) `skyrl/train/trainer.py`"
OPENRLHF = "[OpenRLHF](https://github.com/OpenRLHF/OpenRLHF) `openrlhf/models/loss.py`"
SWIFT = "[ms-swift](https://github.com/modelscope/ms-swift) `swift/rlhf_trainers/grpo_trainer.py`"
TINKER = "[tinker-cookbook](https://github.com/thinking-machines-lab/tinker-cookbook) `tinker_cookbook/rl/metrics.py`"


@dataclass(frozen=True, slots=True)
class Entry:
    """Formula of one peer metric, and where its source says so."""

    formula: str
    source: str


ENTRIES: Mapping[str, Entry] = MappingProxyType(
    {
        "verl:training/rollout_probs_diff_mean": Entry(
            "mean of abs(p − q): a gap of probabilities", VERL_DEBUG
        ),
        "verl:training/rollout_probs_diff_max": Entry("max of abs(p − q)", VERL_DEBUG),
        "verl:training/rollout_probs_diff_std": Entry("sd of abs(p − q)", VERL_DEBUG),
        "verl:training/rollout_actor_probs_pearson_corr": Entry("Pearson r of p and q", VERL_DEBUG),
        "verl:rollout_corr/kl": Entry("k1: mean of −ℓ, can be negative", VERL),
        "verl:rollout_corr/k3_kl": Entry("k3: mean of w − 1 − ℓ", VERL),
        "verl:rollout_corr/chi2_token": Entry("mean of w² − 1, ℓ clamped to ±20", VERL),
        "verl:rollout_corr/rollout_is_mean": Entry("mean of min(w, 2): after truncation", VERL),
        "verl:rollout_corr/rollout_is_eff_sample_size": Entry("1 / mean((v / mean v)²), v = min(w, 2)", VERL),
        "trl:sampling/sampling_logp_difference/mean": Entry(
            "mean of abs ℓ; TRL averages ranks, not tokens", TRL
        ),
        "trl:sampling/sampling_logp_difference/max": Entry("max of abs ℓ", TRL),
        "trl:sampling/importance_sampling_ratio/mean": Entry(
            "mean of W, product over the sequence; here before clip and mask", TRL
        ),
        "trl:sampling/importance_sampling_ratio/min": Entry("min of W", TRL),
        "trl:sampling/importance_sampling_ratio/max": Entry("max of W", TRL),
        "nemo_rl:train/token_mult_prob_error": Entry("mean of exp(abs ℓ)", NEMO),
        "nemo_rl:train/gen_kl_error": Entry("k3: mean of w − 1 − ℓ", NEMO),
        "nemo_rl:train/policy_kl_error": Entry("k3 of −ℓ", NEMO),
        "nemo_rl:train/js_divergence_error": Entry("half the sum of both k3 against the mixture", NEMO),
        "nemo_rl:train/sampling_importance_ratio": Entry("mean of w", NEMO),
        "nemo_rl:train/max_seq_mult_prob_error": Entry("max over sequences of mean exp(abs ℓ)", NEMO),
        "prime_rl:mismatch_kl/all/mean": Entry("k3: mean of w − 1 − ℓ", PRIME),
        "prime_rl:mismatch_kl/all/max": Entry("max of w − 1 − ℓ", PRIME),
        "slime:train/train_rollout_logprob_abs_diff": Entry("mean over sequences of their mean abs ℓ", SLIME),
        "slime:train/tis_clipfrac": Entry("share of w > 2", SLIME),
        "skyrl:policy/rollout_train_logprobs_abs_diff_mean": Entry("mean of abs ℓ", SKYRL),
        "skyrl:policy/rollout_train_logprobs_abs_diff_max": Entry("max of abs ℓ", SKYRL),
        "skyrl:policy/rollout_train_logprobs_abs_diff_std": Entry("sd of abs ℓ", SKYRL),
        "openrlhf:vllm_kl": Entry("k1: mean of −ℓ, can be negative", OPENRLHF),
        "ms_swift:rollout_correction/k3_kl": Entry("k3, clamped", SWIFT),
        "ms_swift:rollout_correction/ess": Entry("1 / mean((v / mean v)²), v = w clamped to [½, 2]", SWIFT),
        "tinker:optim/kl_sample_train_v1": Entry("k1: mean of −ℓ", TINKER),
        "tinker:optim/kl_sample_train_v2": Entry("k2: mean of ℓ²/2", TINKER),
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
