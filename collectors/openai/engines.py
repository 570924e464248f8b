"""Which engine answers behind an address, which version, and which kernel: from what it says of itself.

Pure: the probes are made elsewhere (`paritas.collectors.openai.probing`).  Where an engine says
nothing, nothing is assumed: a field stays empty, the semantics stay ``unknown``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from paritas.records import KernelIdentity, LogprobSemantics, Role

__all__ = ["PROBES", "Engine", "EngineFacts", "facts_of", "version_at_least"]

# Paths that cost an engine next to nothing.  `/server_info` answers on vLLM only with
# VLLM_SERVER_DEV_MODE=1 (the first time after seconds, in a thread; then from memory), on SGLang
# always; `/get_model_info` is SGLang's older name.
PROBES = (
    "/version",
    "/v1/models",
    "/model_info",
    "/get_model_info",
    "/props",
    "/server_info?config_format=json",
)

VLLM_MODES = {
    "raw_logprobs": LogprobSemantics.RAW,
    "processed_logprobs": LogprobSemantics.PROCESSED,
}
LOGITS_MODES = ("raw_logits", "processed_logits")


class Engine(StrEnum):
    """Families that differ in what one asks for, and in what they answer."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llama.cpp"
    OTHER = "other"  # speaks OpenAI; tells no token ids that we know of


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known of the engine behind a proxy.

    Attributes
    ----------
    engine : Engine
    kernel : KernelIdentity
        Role, engine and version, and what `/server_info` or `/props` told.
    semantics : LogprobSemantics
        Law of its log-probabilities; unknown unless told or fixed in the engine.
    weights_version : str
        As told when probed; an answer that tells its own has precedence.
    are_logits : bool
        The engine is set to report logits under the name of log-probabilities.
    defaults : mapping
        Fields of a request and what they are where it leaves them out; empty when not told.
    """

    engine: Engine
    kernel: KernelIdentity
    semantics: LogprobSemantics = LogprobSemantics.UNKNOWN
    weights_version: str = ""
    are_logits: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Version of the engine, empty when not told."""
        return self.kernel.engine_version


def facts_of(
    answers: Mapping[str, Any],
    *,
    role: Role = Role.INFERENCE,
    engine: Engine | None = None,
    semantics: LogprobSemantics | None = None,
) -> EngineFacts:
    """Read the JSON that the probes brought.

    Parameters
    ----------
    answers : mapping of path to JSON value
        Only answers with status 200; paths of `PROBES`.
    role : Role
        Role of the kernel behind the proxy.
    engine, semantics : optional
        Declared by a person; declared beats probed.

    Examples
    --------
    >>> told = facts_of({"/version": {"version": "0.32.0"}})
    >>> told.engine.value, told.version, told.semantics.value
    ('vllm', '0.32.0', 'unknown')
    """
    found = engine or _recognise(answers)
    base = KernelIdentity(role, engine="" if found is Engine.OTHER else str(found))
    match found:
        case Engine.VLLM:
            facts = _vllm(answers, base)
        case Engine.SGLANG:
            facts = _sglang(answers, base)
        case Engine.LLAMACPP:
            facts = _llamacpp(answers, base)
        case Engine.OTHER:
            facts = EngineFacts(found, base)
    return facts if semantics is None else replace(facts, semantics=semantics)


def version_at_least(version: str, wanted: tuple[int, int, int]) -> bool:
    """Whether a version is surely at least this one; an unreadable one is not.

    Examples
    --------
    >>> version_at_least("0.33.1rc2", (0, 33, 0)), version_at_least("dev", (0, 1, 0))
    (True, False)
    """
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", version)
    return found is not None and tuple(int(part or 0) for part in found.groups()) >= wanted


def _recognise(answers: Mapping[str, Any]) -> Engine:
    owners = {str(_at(model, "owned_by")) for model in _list(_at(answers.get("/v1/models"), "data"))}
    if "sglang" in owners or _at(_model_info(answers), "is_generation") is not None:
        return Engine.SGLANG
    if "llamacpp" in owners or _at(answers.get("/props"), "default_generation_settings") is not None:
        return Engine.LLAMACPP
    if "vllm" in owners or isinstance(_at(answers.get("/version"), "version"), str):
        return Engine.VLLM
    return Engine.OTHER


def _vllm(answers: Mapping[str, Any], base: KernelIdentity) -> EngineFacts:
    told = _at(answers.get(PROBES[-1]), "vllm_config")
    environ = _at(answers.get(PROBES[-1]), "vllm_env")
    model, parallel = _at(told, "model_config"), _at(told, "parallel_config")
    mode = _text(_at(model, "logprobs_mode"))
    eager = _flag(_at(model, "enforce_eager"))
    kernel = replace(
        base,
        engine_version=_text(_at(answers.get("/version"), "version")),
        dtype=_text(_at(model, "dtype")).removeprefix("torch."),
        quantization=_text(_at(model, "quantization")),
        kv_cache_dtype=_text(_at(told, "cache_config", "cache_dtype")),
        attention_backend=_text(_at(told, "attention_config", "backend")),
        tp=_whole(_at(parallel, "tensor_parallel_size")),
        pp=_whole(_at(parallel, "pipeline_parallel_size")),
        batch_invariant=_flag(_at(environ, "VLLM_BATCH_INVARIANT")),
        cuda_graphs=None if eager is None else not eager,
        prefix_caching=_flag(_at(told, "cache_config", "enable_prefix_caching")),
        chunked_prefill=_flag(_at(told, "scheduler_config", "enable_chunked_prefill")),
        speculative=_text(_at(told, "speculative_config", "method")),
        extra=_told(model=_model_name(answers), logprobs_mode=mode),
    )
    semantics = VLLM_MODES.get(mode, LogprobSemantics.UNKNOWN)
    return EngineFacts(Engine.VLLM, kernel, semantics, are_logits=mode in LOGITS_MODES)


def _sglang(answers: Mapping[str, Any], base: KernelIdentity) -> EngineFacts:
    told, model = answers.get(PROBES[-1]), _model_info(answers)
    no_radix = _flag(_at(told, "disable_radix_cache"))
    no_graph = _flag(_at(told, "disable_cuda_graph"))
    kernel = replace(
        base,
        engine_version=_text(_at(told, "version")),
        dtype=_text(_at(told, "dtype")),
        quantization=_text(_at(told, "quantization")),
        kv_cache_dtype=_text(_at(told, "kv_cache_dtype")),
        attention_backend=_text(_at(told, "attention_backend")),
        lm_head_dtype="float32" if _at(told, "enable_fp32_lm_head") is True else "",
        tp=_whole(_at(told, "tp_size")),
        pp=_whole(_at(told, "pp_size")),
        ep=_whole(_at(told, "ep_size")),
        batch_invariant=_flag(_at(told, "enable_deterministic_inference")),
        cuda_graphs=None if no_graph is None else not no_graph,
        prefix_caching=None if no_radix is None else not no_radix,
        speculative=_text(_at(told, "speculative_algorithm")),
        extra=_told(model=_text(_at(model, "model_path")) or _model_name(answers)),
    )
    # log softmax(logits / T), before top-k and top-p; SGLANG_RETURN_ORIGINAL_LOGPROB=1 changes
    # that and is not told: declare it with --semantics raw.
    return EngineFacts(
        Engine.SGLANG, kernel, LogprobSemantics.TEMPERATURE_ONLY, _text(_at(model, "weight_version"))
    )


def _llamacpp(answers: Mapping[str, Any], base: KernelIdentity) -> EngineFacts:
    props = answers.get("/props")
    settings = _at(props, "default_generation_settings")
    defaults = _at(settings, "params")
    ftype = _text(_at(props, "model_ftype"))
    kernel = replace(
        base,
        engine_version=_text(_at(props, "build_info")),
        quantization=f"gguf {ftype}" if ftype else "",
        speculative=_drafting(settings),
        extra=_told(model=_text(_at(props, "model_path")) or _model_name(answers)),
    )
    # Values before the samplers, unless a request asks for post_sampling_probs; these are many, and on.
    defaults = defaults if isinstance(defaults, Mapping) else {}
    return EngineFacts(Engine.LLAMACPP, kernel, LogprobSemantics.RAW, defaults=defaults)


def _drafting(settings: Any) -> str:
    """How drafts are made: newer servers name it, older ones say whether."""
    named = _text(_at(settings, "params", "speculative.types"))
    if named:
        return "" if named == "none" else named
    return "draft" if _flag(_at(settings, "speculative")) else ""


def _model_info(answers: Mapping[str, Any]) -> Any:
    return answers.get("/model_info") or answers.get("/get_model_info")


def _model_name(answers: Mapping[str, Any]) -> str:
    models = _list(_at(answers.get("/v1/models"), "data"))
    return _text(_at(models[0], "id")) if len(models) == 1 else ""


def _told(**named: str) -> dict[str, str]:
    return {name: text for name, text in named.items() if text}


def _at(value: Any, *path: str) -> Any:
    """Return what stands at a path of keys, None where there is no such way."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
