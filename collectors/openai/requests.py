"""What a client asked, and what is asked of the engine in its place.

`plan_of` is pure: path, body and what is known of the engine in, a `Plan` out.  The plan says
what to send and what the answer will hold that the client did not ask for (`Strip`).  Rules:

- what the client asked for is never changed, only added to;
- a request that an engine could refuse for our addition is sent as it came (echo, beam search,
  streaming where token ids are not to be had), and so is one we cannot read;
- on top of that the proxy sends the original again if the changed one is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NoReturn

from paritas.collectors.openai.engines import Engine, EngineFacts, version_at_least
from paritas.collectors.openai.sampling import sampling_of
from paritas.records import Sampling

__all__ = ["ROUTES", "Plan", "Route", "Strip", "Unobserved", "plan_of", "without_observation"]


class Route(StrEnum):
    """The requests that give tokens."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    GENERATE = "generate"  # SGLang's own
    TOKENS = "tokens"  # vLLM's token-in, token-out


TOP_LIMIT = 1024  # columns of a trace's top-k at most


ROUTES: Mapping[str, Route] = {
    "/v1/chat/completions": Route.CHAT,
    "/v1/completions": Route.COMPLETIONS,
    "/generate": Route.GENERATE,
    "/inference/v1/generate": Route.TOKENS,
}


class Unobserved(StrEnum):
    """Why a request passed without being observed; the label of a counter."""

    NOT_IN_SHARE = "not_in_share"  # the declared share left it out
    ENGINE_UNKNOWN = "engine_unknown"  # nothing is known of the engine yet
    BODY_TOO_LARGE = "body_too_large"
    BODY_ENCODED = "body_encoded"  # compressed by the client
    NOT_JSON = "not_json"
    NO_TOKEN_IDS = "no_token_ids"  # noqa: S105 -- this engine does not tell them here
    LOGITS = "logits"  # the engine reports logits, not log-probabilities
    ECHO = "echo"  # asking would make the engine score the prompt
    BEAM_SEARCH = "beam_search"
    CONFLICT = "conflict"  # fields that do not go together: the engine shall say so
    PAUSED = "paused"  # the engine refused such a request a moment ago


@dataclass(frozen=True, slots=True)
class Strip:
    """What the client did not ask for, by where it stands and what an engine writes in its place."""

    null_in_choice: tuple[str, ...] = ()
    drop_in_choice: tuple[str, ...] = ()
    null_at_top: tuple[str, ...] = ()
    drop_in_meta: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.null_in_choice or self.drop_in_choice or self.null_at_top or self.drop_in_meta)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with one request.

    Attributes
    ----------
    body : bytes
        What to send; `original` where nothing was added.
    original : bytes
        What the client sent.
    unobserved : Unobserved or None
        Why nothing is to be observed.
    is_stream : bool
        The client asked for server-sent events.
    is_many : bool
        More than one choice may come.
    echo : bool
        The log-probabilities of the prompt come first.
    top_k : int
        Most likely tokens a position that are sure to be there, see `paritas.collectors.openai.columns`.
    user : str
        The client's ``user`` field.
    stops : str
        The client's stop texts, joined; an engine may not tell the tokens of such an end.
    """

    route: Route
    body: bytes
    original: bytes
    sampling: Sampling = Sampling()
    strip: Strip = Strip()
    unobserved: Unobserved | None = None
    is_stream: bool = False
    is_many: bool = False
    echo: bool = False
    top_k: int = 0
    user: str = ""
    stops: str = ""

    @property
    def is_changed(self) -> bool:
        """Whether something was added."""
        return self.body is not self.original


@dataclass(slots=True)
class _Draft:
    """Additions while they are made."""

    added: dict[str, Any] = field(default_factory=dict)
    null: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    top: list[str] = field(default_factory=list)
    meta: tuple[str, ...] = ()
    top_k: int = 0


class _PassError(Exception):
    """Ends the planning: pass the request as it is."""

    def __init__(self, reason: Unobserved) -> None:
        super().__init__(reason)
        self.reason = reason


def without_observation(route: Route, body: bytes, reason: Unobserved) -> Plan:
    """Return the plan to send a request as it came."""
    return Plan(route, body, body, unobserved=reason)


def plan_of(route: Route, body: bytes, facts: EngineFacts, *, takes: bool, top_k: int = 0) -> Plan:
    """Plan one request.

    Parameters
    ----------
    body : bytes
        As the client sent it.
    facts : EngineFacts
    takes : bool
        Whether the declared share takes this request, should it not ask for log-probabilities.
    top_k : int
        Most likely tokens to ask for beside the sampled one.

    Examples
    --------
    >>> from paritas.collectors.openai.engines import facts_of
    >>> vllm = facts_of({"/version": {"version": "0.32.0"}})
    >>> plan_of(Route.COMPLETIONS, b'{"prompt": "a"}', vllm, takes=True).body
    b'{"prompt":"a","logprobs":0,"return_tokens_as_token_ids":true,"return_token_ids":true}'
    """
    try:
        asked = _read(body)
        draft = _drafted(route, asked, facts, takes=takes, top_k=top_k)
        return _plan(route, body, asked, draft, facts)
    except _PassError as passed:
        return without_observation(route, body, passed.reason)


def _read(body: bytes) -> dict[str, Any]:
    """Return the JSON object, strictly: NaN and Infinity are not JSON, and the engine shall say so."""
    try:
        asked = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _PassError(Unobserved.NOT_JSON) from error
    if not isinstance(asked, dict):
        raise _PassError(Unobserved.NOT_JSON)
    return asked


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _drafted(route: Route, asked: dict[str, Any], facts: EngineFacts, *, takes: bool, top_k: int) -> _Draft:
    """Choose the additions by route and engine."""
    if facts.are_logits:
        raise _PassError(Unobserved.LOGITS)
    if asked.get("use_beam_search"):
        raise _PassError(Unobserved.BEAM_SEARCH)
    is_llamacpp = facts.engine is Engine.LLAMACPP
    has_asked = _llamacpp_tells(route, asked) > 0 if is_llamacpp else _has_asked(route, asked)
    if not has_asked and not takes:
        raise _PassError(Unobserved.NOT_IN_SHARE)
    if not has_asked and asked.get("echo"):
        raise _PassError(Unobserved.ECHO)
    asked_top_k = _llamacpp_tells if is_llamacpp else _asked_top_k
    draft = _Draft(top_k=asked_top_k(route, asked) if has_asked else top_k)
    match facts.engine, route:
        case Engine.VLLM, Route.CHAT | Route.COMPLETIONS | Route.TOKENS:
            _vllm(route, asked, draft, facts, has_asked=has_asked)
        case Engine.SGLANG, Route.CHAT | Route.COMPLETIONS | Route.GENERATE:
            _sglang(route, asked, draft, has_asked=has_asked)
        case Engine.LLAMACPP, Route.CHAT | Route.COMPLETIONS:
            _llamacpp(route, asked, draft, has_asked=has_asked)
        case _:
            raise _PassError(Unobserved.NO_TOKEN_IDS)
    return draft


def _has_asked(route: Route, asked: Mapping[str, Any]) -> bool:
    """Whether the client itself wants log-probabilities."""
    match route:
        case Route.CHAT:
            if not asked.get("logprobs") and asked.get("top_logprobs"):
                raise _PassError(Unobserved.CONFLICT)
            return bool(asked.get("logprobs"))
        case Route.COMPLETIONS:
            return asked.get("logprobs") is not None
        case Route.GENERATE:
            if isinstance(asked.get("return_logprob"), list):
                raise _PassError(Unobserved.CONFLICT)
            return bool(asked.get("return_logprob"))
        case Route.TOKENS:
            return _inner(asked).get("logprobs") is not None


def _asked_top_k(route: Route, asked: Mapping[str, Any]) -> int:
    """The top-k that surely comes with what the client asked for."""
    match route:
        case Route.CHAT:  # the sampled token may have taken the last place
            return max(0, _count(asked.get("top_logprobs")) - 1)
        case Route.COMPLETIONS:
            return _count(asked.get("logprobs"))
        case Route.GENERATE:
            return _count(asked.get("top_logprobs_num"))
        case Route.TOKENS:
            return _count(_inner(asked).get("logprobs"))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= TOP_LIMIT else 0


def _inner(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = asked.get("sampling_params")
    return inner if isinstance(inner, Mapping) else {}


def _vllm(
    route: Route, asked: Mapping[str, Any], draft: _Draft, facts: EngineFacts, *, has_asked: bool
) -> None:
    if not has_asked:
        draft.null.append("logprobs")
    if route is Route.TOKENS:  # token ids come anyway
        if not has_asked:
            draft.added["sampling_params"] = {**_inner(asked), "logprobs": draft.top_k}
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


def _sglang(route: Route, asked: Mapping[str, Any], draft: _Draft, *, has_asked: bool) -> None:
    match route:
        case Route.GENERATE:
            _sglang_generate(asked, draft, has_asked=has_asked)
        case Route.CHAT if asked.get("stream"):
            raise _PassError(Unobserved.NO_TOKEN_IDS)  # SGLang refuses to tell them there
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


def _sglang_generate(asked: Mapping[str, Any], draft: _Draft, *, has_asked: bool) -> None:
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
            raise _PassError(Unobserved.CONFLICT)
        if is_asked:
            return _whole(asked.get("top_logprobs"), unsaid=LLAMACPP_TOP)
    told = _whole(asked.get("n_probs"), unsaid=-1)
    if told == 0:
        raise _PassError(Unobserved.CONFLICT)  # it forbids what we would add
    return told if told > 0 else _whole(asked.get("logprobs"), unsaid=0)


def _whole(value: Any, *, unsaid: int) -> int:
    """Read a number as llama.cpp does: true is 1, 2.0 is 2, below zero is none."""
    if value is None:
        return unsaid
    if not isinstance(value, int | float):
        raise _PassError(Unobserved.CONFLICT)
    return int(max(0, min(value, TOP_LIMIT)))


def _llamacpp(route: Route, asked: Mapping[str, Any], draft: _Draft, *, has_asked: bool) -> None:
    """Its entries carry ids; it counts top_logprobs without the sampled token, and needs at least one."""
    if has_asked:
        return
    if route is Route.CHAT and asked.get("stream") and asked.get("tools"):
        raise _PassError(Unobserved.CONFLICT)  # it refuses log-probabilities of streamed tool calls
    if route is Route.CHAT:
        draft.added |= {"logprobs": True, "top_logprobs": max(1, draft.top_k)}
        draft.drop.append("logprobs")
    else:
        draft.added["logprobs"] = max(1, draft.top_k)
        draft.null.append("logprobs")


def _plan(route: Route, body: bytes, asked: dict[str, Any], draft: _Draft, facts: EngineFacts) -> Plan:
    params = _inner(asked) if route in (Route.GENERATE, Route.TOKENS) else asked
    texts = asked.get("prompt", asked.get("text", asked.get("input_ids")))
    return Plan(
        route,
        body=_written({**asked, **draft.added}) if draft.added else body,
        original=body,
        sampling=sampling_of(params, facts),
        strip=Strip(tuple(draft.null), tuple(draft.drop), tuple(draft.top), draft.meta),
        is_stream=bool(asked.get("stream")),
        is_many=_count(params.get("n")) > 1 or (isinstance(texts, list) and not _is_one_prompt(texts)),
        echo=bool(asked.get("echo")) and facts.engine is not Engine.LLAMACPP,  # which ignores it
        top_k=draft.top_k,
        user=asked["user"] if isinstance(asked.get("user"), str) else "",
        stops=_joined(asked.get("stop")),
    )


def _joined(stops: Any) -> str:
    """One text of all stop texts."""
    many = stops if isinstance(stops, list) else [stops]
    return "".join(one for one in many if isinstance(one, str))


def _is_one_prompt(texts: list[Any]) -> bool:
    """A list of token ids is one prompt; so is a list of one."""
    return len(texts) == 1 or all(isinstance(one, int) for one in texts)


def _written(asked: Mapping[str, Any]) -> bytes:
    """Return JSON; ASCII where a text holds half a surrogate pair, as an escape may."""
    try:
        return json.dumps(asked, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        return json.dumps(asked, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:  # 1e999 was read as infinity
        raise _PassError(Unobserved.NOT_JSON) from error
