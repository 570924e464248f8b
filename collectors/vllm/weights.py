"""The weights of an engine: a sample of them read in its workers, and when they may have changed."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paritas.collectors.vllm.kernel import read_worker
from paritas.collectors.weights.digest import Digest, Unknown, digest_of, merge
from paritas.collectors.weights.engine import EngineLayout, engine_pieces
from paritas.collectors.weights.naming import canonical_name
from paritas.collectors.weights.sampling import Sample, Sampled, SamplePlan, sample

__all__ = ["METHOD", "Told", "answer_of", "digest_in", "is_change", "told_in"]

# A method that the plugin gives to every worker; the front end calls it by name, so that nothing
# has to be pickled.
METHOD = "paritas_describe"
USUAL = SamplePlan()
# Calls into the workers that leave the weights as they are.  Any other may load new ones.
HARMLESS = frozenset(
    {
        METHOD,
        "add_lora",
        "check_health",
        "execute_dummy_batch",
        "get_cache_block_size_bytes",
        "get_kv_cache_spec",
        "get_model_inspection",
        "get_supported_tasks",
        "list_loras",
        "pin_lora",
        "profile",
        "remove_lora",
        "reset_encoder_cache",
        "reset_mm_cache",
        "save_sharded_state",
        "sleep",
    }
)


def is_change(method: Any) -> bool:
    """Whether a call into the workers may have changed their weights.

    Examples
    --------
    >>> is_change("reload_weights"), is_change("list_loras"), is_change(print)
    (True, False, True)
    """
    return not (isinstance(method, str) and method in HARMLESS)


def answer_of(worker: Any, weighs: bool = True) -> dict[str, Any]:
    """Describe this worker, in its own process: plain values that every transport takes; never raises.

    Reading some thousand elements from a GPU waits for what it computes, milliseconds; without `weighs`
    none is read.
    """
    told: dict[str, Any] = {"kernel": {}, "unknown": Unknown.LAYOUT.value}
    try:
        told["kernel"] = read_worker(worker)
        told |= _sample_of(worker) if weighs else {"unknown": Unknown.NOTHING.value}
    except Exception as error:  # noqa: BLE001 -- an engine's worker: unknown is an answer
        told["reason"] = f"{type(error).__name__}: {error}"[:200]
    return told


def _sample_of(worker: Any) -> dict[str, Any]:
    from paritas.collectors.torch.weights import named_blocks

    config, model = worker.model_config.hf_text_config, worker.get_model()
    bad = {
        str(parameter.dtype)
        for name, parameter in model.named_parameters()
        if canonical_name(name) and str(parameter.dtype) not in ("torch.float32", "torch.bfloat16")
    }
    if bad:
        return {"unknown": Unknown.DTYPE.value, "reason": ", ".join(sorted(bad))}
    parallel_state = importlib.import_module("vllm.distributed.parallel_state")
    tp = parallel_state.get_tensor_model_parallel_world_size()
    rank = parallel_state.get_tensor_model_parallel_rank()
    pieces = engine_pieces(named_blocks(model, tp=tp, tp_rank=rank), _layout(config))
    if isinstance(pieces, Unknown):
        return {"unknown": pieces.value}
    return {"unknown": "", "total": int(config.num_hidden_layers), **_packed(sample(USUAL, pieces))}


def _layout(config: Any) -> EngineLayout:
    heads = int(config.num_attention_heads)
    return EngineLayout(
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
        intermediate=int(config.intermediate_size),
    )


def _packed(found: Sample) -> dict[str, Any]:
    tensors = {
        name: [list(one.shape), one.known.astype(np.uint8).tolist(), one.bits.tolist()]
        for name, one in found.tensors.items()
    }
    return {"layers": sorted(found.layers), "tensors": tensors}


@dataclass(frozen=True, slots=True)
class Told:
    """What all workers together told."""

    digest: Digest
    kernel: Mapping[str, str]
    reason: str = ""


def told_in(answers: Sequence[Any]) -> Told:
    """Put the workers' answers together."""
    known = [one for one in answers if isinstance(one, Mapping)]
    kernel = dict(known[0].get("kernel") or {}) if known else {}
    reasons = [str(one.get("reason") or "") for one in known]
    return Told(digest_in(known), kernel, next(filter(None, reasons), ""))


def digest_in(answers: Sequence[Mapping[str, Any]]) -> Digest:
    """Return the digest of the whole model, or why there is none."""
    unknown = [str(one.get("unknown")) for one in answers if one.get("unknown") != ""]
    if unknown or not answers:
        return Digest(unknown=Unknown(unknown[0]) if unknown else Unknown.NOTHING)
    whole = merge(_unpacked(one) for one in answers)
    if isinstance(whole, Unknown):
        return Digest(unknown=whole)
    return digest_of(whole, layers=int(answers[0]["total"]))


def _unpacked(told: Mapping[str, Any]) -> Sample:
    tensors = {
        name: Sampled(tuple(shape), np.array(known, np.bool_), np.array(bits, np.uint16))
        for name, (shape, known, bits) in told["tensors"].items()
    }
    return Sample(tensors, frozenset(told["layers"]))
