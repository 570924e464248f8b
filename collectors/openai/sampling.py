"""How a request asked for its tokens to be drawn, and by which law the engine then reports."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paritas.collectors.openai.engines import Engine, EngineFacts
from paritas.records import LogprobSemantics, Sampling

__all__ = ["sampling_of"]

# Fields that change the law beyond temperature and truncation, with the value that does nothing.
PROCESSORS: Mapping[str, object] = {
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repetition_penalty": 1,
    "repeat_penalty": 1,
    "logit_bias": {},
    "bad_words": [],
    "allowed_token_ids": [],
    "min_tokens": 0,
    "min_new_tokens": 0,
    "ignore_eos": False,
    "logits_processors": [],
    "custom_logit_processor": "",
    "response_format": {"type": "text"},
    "structured_outputs": {},
    "guided_json": "",
    "guided_regex": "",
    "guided_choice": [],
    "guided_grammar": "",
    "json_schema": "",
    "regex": "",
    "ebnf": "",
    "grammar": "",
    "xtc_probability": 0,
    "dry_multiplier": 0,
    "typical_p": 1,
    "mirostat": 0,
    "top_n_sigma": -1,
    "dynatemp_range": 0,
    "adaptive_target": -1,
    "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
}
# SGLang draws greedily below this and reports log-probabilities of T = 1.
SGLANG_GREEDY = 1e-6


def sampling_of(asked: Mapping[str, Any], facts: EngineFacts) -> Sampling:
    """Return the sampling of a request; what neither it nor the engine's defaults say is None.

    llama.cpp tells its defaults, and they are no neutral ones: temperature 0.8, top-k 40, top-p 0.95,
    min-p 0.05.  It truncates first and divides by the temperature then.

    At temperature 0 vLLM reports the law of temperature 1, in either mode: the raw one unless
    penalties, biases or masks act on it, and then nothing that has a name.

    Examples
    --------
    >>> from paritas.collectors.openai.engines import facts_of
    >>> told = sampling_of({"temperature": 0.6, "top_k": -1}, facts_of({}, engine=Engine.SGLANG))
    >>> told.temperature, told.top_k, told.top_p, told.semantics.value
    (0.6, -1, None, 'temperature_only')
    """
    asked = {**facts.defaults, **{name: value for name, value in asked.items() if value is not None}}
    temperature, top_k = _number(asked.get("temperature")), _whole(asked.get("top_k"))
    if facts.engine is Engine.LLAMACPP and temperature is not None:
        temperature = max(temperature, 0.0)  # below zero is greedy too
    if facts.engine is Engine.SGLANG and temperature is not None and temperature < SGLANG_GREEDY:
        temperature, top_k = 1.0, 1
    sampling = Sampling(
        temperature=temperature,
        top_p=_number(asked.get("top_p")),
        top_k=top_k,
        min_p=_number(asked.get("min_p")),
        processors=_processors(asked),
        semantics=_semantics(asked, facts),
    )
    return _greedy_of_vllm(sampling) if facts.engine is Engine.VLLM else sampling


def _greedy_of_vllm(sampling: Sampling) -> Sampling:
    if sampling.temperature != 0.0 or sampling.semantics is not LogprobSemantics.PROCESSED:
        return sampling
    law = LogprobSemantics.UNKNOWN if sampling.processors else LogprobSemantics.RAW
    return replace(sampling, semantics=law)


def _semantics(asked: Mapping[str, Any], facts: EngineFacts) -> LogprobSemantics:
    """The engine's law, or the one that this request asked llama.cpp for."""
    is_after = facts.engine is Engine.LLAMACPP and asked.get("post_sampling_probs") is True
    return LogprobSemantics.PROCESSED if is_after else facts.semantics


def _processors(asked: Mapping[str, Any]) -> str:
    """Digest of everything else that changes the law; empty when nothing does."""
    active = {
        name: asked[name]
        for name, neutral in PROCESSORS.items()
        if asked.get(name) is not None and asked[name] != neutral and asked[name] not in ("", [], {})
    }
    if _forces_a_tool(asked.get("tool_choice")):
        active["tool_choice"] = [asked.get("tool_choice"), asked.get("tools")]
    if not active:
        return ""
    text = json.dumps(active, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _forces_a_tool(choice: Any) -> bool:
    """Engines force the form of a call only where one is required or named."""
    return choice == "required" or isinstance(choice, Mapping)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(f"{value:.7g}")  # llama.cpp tells its defaults as widened float32


def _whole(value: Any) -> int | None:
    small = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31
    return value if small else None
