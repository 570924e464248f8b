"""What is asked of an engine on top of what the client asked, by route and engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paritas.collectors.openai.engines import Engine, EngineFacts, version_at_least
from paritas.collectors.openai.plans import PassedError, Route, Unobserved

__all__ = ["Draft", "count_in", "drafted", "sampling_params"]

TOP_LIMIT = 1024  # columns of a trace's top-k at most


@dataclass(slots=True)
class Draft:
    """Additions while they are made.

    Attributes
    ----------
    added : dict
        Fields to set in the request.
    null, drop, top, meta, is_native
        What is then to be taken out of the answer, as of `Strip`.
    top_k : int
        Most likely tokens a position that are sure to come.
    """

    added: dict[str, Any] = field(default_factory=dict)
    null: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    top: list[str] = field(default_factory=list)
    meta: tuple[str, ...] = ()
    is_native: bool = False
    top_k: int = 0


def drafted(route: Route, asked: dict[str, Any], facts: EngineFacts, *, takes: bool, top_k: int) -> Draft:
    """Choose the additions by route and engine.

    Raises
    ------
    PassedError
        The request has to pass as it is.
    """
    if facts.are_logits:
        raise PassedError(Unobserved.LOGITS)
    if asked.get("use_beam_search"):
        raise PassedError(Unobserved.BEAM_SEARCH)
    is_llamacpp = facts.engine is Engine.LLAMACPP
    has_asked = _llamacpp_tells(route, asked) > 0 if is_llamacpp else _has_asked(route, asked)
    if not has_asked and not takes:
        raise PassedError(Unobserved.NOT_IN_SHARE)
    if not has_asked and asked.get("echo"):
        raise PassedError(Unobserved.ECHO)
    asked_top_k = _llamacpp_tells if is_llamacpp else _asked_top_k
    draft = Draft(top_k=asked_top_k(route, asked) if has_asked else top_k)
    match facts.engine, route:
        case Engine.VLLM, Route.CHAT | Route.COMPLETIONS | Route.TOKENS:
            _vllm(route, asked, draft, facts, has_asked=has_asked)
        case Engine.SGLANG, Route.CHAT | Route.COMPLETIONS | Route.GENERATE:
            _sglang(route, asked, draft, has_asked=has_asked)
        case Engine.LLAMACPP, Route.CHAT | Route.COMPLETIONS | Route.NATIVE:
            _llamacpp(route, asked, draft, has_asked=has_asked)
        case _:
            raise PassedError(Unobserved.NO_TOKEN_IDS)
    return draft


def _has_asked(route: Route, asked: Mapping[str, Any]) -> bool:
    """Whether the client itself wants log-probabilities."""
    match route:
        case Route.CHAT:
            if not asked.get("logprobs") and asked.get("top_logprobs"):
                raise PassedError(Unobserved.CONFLICT)
            return bool(asked.get("logprobs"))
        case Route.COMPLETIONS | Route.NATIVE:
            return asked.get("logprobs") is not None
        case Route.GENERATE:
            if isinstance(asked.get("return_logprob"), list):
                raise PassedError(Unobserved.CONFLICT)
            return bool(asked.get("return_logprob"))
        case Route.TOKENS:
            return sampling_params(asked).get("logprobs") is not None


def _asked_top_k(route: Route, asked: Mapping[str, Any]) -> int:
    """The top-k that surely comes with what the client asked for."""
    if _chosen_ids(route, asked):  # in place of the most likely tokens
        return 0
    match route:
        case Route.CHAT:  # the sampled token may have taken the last place
            return max(0, count_in(asked.get("top_logprobs")) - 1)
        case Route.COMPLETIONS | Route.NATIVE:
            return count_in(asked.get("logprobs"))
        case Route.GENERATE:
            return count_in(asked.get("top_logprobs_num"))
        case Route.TOKENS:
            return count_in(sampling_params(asked).get("logprobs"))


def _chosen_ids(route: Route, asked: Mapping[str, Any]) -> bool:
    """Whether the client wants the log-probabilities of tokens that it names itself."""
    told = sampling_params(asked) if route is Route.TOKENS else asked
    return bool(told.get("logprob_token_ids"))


def count_in(value: Any) -> int:
    """Return a number of tokens or choices as it was asked for; 0 where it is none or cannot be."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= TOP_LIMIT else 0


def sampling_params(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what stands under ``sampling_params``; empty where nothing does."""
    inner = asked.get("sampling_params")
    return inner if isinstance(inner, Mapping) else {}


def _vllm(
    route: Route, asked: Mapping[str, Any], draft: Draft, facts: EngineFacts, *, has_asked: bool
) -> None:
    if not has_asked:
        if _chosen_ids(route, asked):
            raise PassedError(Unobserved.CONFLICT)  # it refuses them without log-probabilities
        draft.null.append("logprobs")
    if route is Route.COMPLETIONS and asked.get("echo") and not _echoes_as_it_is(asked):
        raise PassedError(Unobserved.ECHO)
    if route is Route.TOKENS:  # token ids come anyway
        if not has_asked:
            draft.added["sampling_params"] = {**sampling_params(asked), "logprobs": draft.top_k}
        return
    if not has_asked:
        if route is Route.CHAT:
            draft.added |= {"logprobs": True, "top_logprobs": draft.top_k and draft.top_k + 1}
        else:
            draft.added["logprobs"] = draft.top_k
        draft.added["return_tokens_as_token_ids"] = True
    if not asked.get("return_token_ids"):
        draft.added["return_token_ids"] = True
        draft.null += ["token_ids", "prompt_token_ids"]
        draft.top += ["prompt_token_ids"]
    if version_at_least(facts.version, (0, 33, 0)) and not asked.get("return_weight_versions"):
        draft.added["return_weight_versions"] = True
        draft.null.append("weight_versions")


def _echoes_as_it_is(asked: Mapping[str, Any]) -> bool:
    """Whether asking changes no echo: with token ids vLLM leaves the prompt out of the text.

    A prompt that is only echoed has one token sampled after it, whose log-probability is not told.
    """
    return bool(asked.get("return_token_ids")) and asked.get("max_tokens") != 0


def _sglang(route: Route, asked: Mapping[str, Any], draft: Draft, *, has_asked: bool) -> None:
    match route:
        case Route.GENERATE:
            _sglang_generate(asked, draft, has_asked=has_asked)
        case Route.CHAT if asked.get("stream"):
            raise PassedError(Unobserved.NO_TOKEN_IDS)  # SGLang refuses to tell them there
        case Route.CHAT:
            if not has_asked:
                draft.added |= {"logprobs": True, "top_logprobs": draft.top_k}
                draft.null.append("logprobs")
            if not asked.get("return_meta_info"):  # holds ids, log-probabilities and weights together
                draft.added["return_meta_info"] = True
                draft.drop.append("meta_info")
        case _:
            if not has_asked:
                draft.added["logprobs"] = draft.top_k
                draft.null.append("logprobs")
            if not asked.get("return_token_ids"):
                draft.added["return_token_ids"] = True
                draft.drop += ["token_ids", "prompt_token_ids"]


SGLANG_META = tuple(
    f"{side}_{name}"
    for side in ("input", "output")
    for name in ("token_logprobs", "token_logprobs_length", "top_logprobs", "token_ids_logprobs")
)


def _sglang_generate(asked: Mapping[str, Any], draft: Draft, *, has_asked: bool) -> None:
    if has_asked:
        return
    draft.added["return_logprob"] = True
    if asked.get("logprob_start_len") is None:
        draft.added["logprob_start_len"] = -1  # outputs only: the prefix cache stays in use
    if draft.top_k:
        draft.added["top_logprobs_num"] = draft.top_k
    draft.meta = SGLANG_META


LLAMACPP_TOP = 20  # what it tells in chat where `top_logprobs` is not said


def _llamacpp_tells(route: Route, asked: Mapping[str, Any]) -> int:
    """How many most likely tokens llama.cpp tells unasked by us; with 0 it tells no log-probability at all.

    Its own ``n_probs`` counts on its OpenAI routes too, and there beats ``logprobs``.
    """
    is_asked = bool(asked.get("logprobs"))
    if route is Route.CHAT:
        if asked.get("top_logprobs") and not is_asked:
            raise PassedError(Unobserved.CONFLICT)
        if is_asked:
            return _whole(asked.get("top_logprobs"), unsaid=LLAMACPP_TOP)
    told = _whole(asked.get("n_probs"), unsaid=-1)
    if told == 0:
        raise PassedError(Unobserved.CONFLICT)  # it forbids what we would add
    return told if told > 0 else _whole(asked.get("logprobs"), unsaid=0)


def _whole(value: Any, *, unsaid: int) -> int:
    """Read a number as llama.cpp does: true is 1, 2.0 is 2, below zero is none."""
    if value is None:
        return unsaid
    if not isinstance(value, int | float):
        raise PassedError(Unobserved.CONFLICT)
    return int(max(0, min(value, TOP_LIMIT)))


def _llamacpp(route: Route, asked: Mapping[str, Any], draft: Draft, *, has_asked: bool) -> None:
    """Its entries carry ids; it counts top_logprobs without the sampled token, and needs at least one."""
    if route is Route.NATIVE and asked.get("response_fields"):
        raise PassedError(Unobserved.NO_TOKEN_IDS)  # the client has the answer cut to what it names
    if has_asked:
        return
    if route is Route.CHAT and asked.get("stream") and asked.get("tools"):
        raise PassedError(Unobserved.CONFLICT)  # it refuses log-probabilities of streamed tool calls
    if route is Route.CHAT:
        draft.added |= {"logprobs": True, "top_logprobs": max(1, draft.top_k)}
        draft.drop.append("logprobs")
    elif route is Route.NATIVE:
        if asked.get("logprobs") is not None:
            raise PassedError(Unobserved.CONFLICT)  # the answer would repeat another number than was asked
        draft.added["n_probs"] = max(1, draft.top_k)
        draft.is_native = True
    else:
        draft.added["logprobs"] = max(1, draft.top_k)
        draft.null.append("logprobs")
