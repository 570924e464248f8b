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
from typing import Any, NoReturn

from paritas.collectors.openai.additions import Draft, count_in, drafted, sampling_params
from paritas.collectors.openai.engines import Engine, EngineFacts
from paritas.collectors.openai.naming import USER_PREFIX
from paritas.collectors.openai.plans import PassedError, Plan, Route, Strip, Unobserved, without_observation
from paritas.collectors.openai.sampling import sampling_of

__all__ = ["plan_of", "user_of"]


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
        draft = drafted(route, asked, facts, takes=takes, top_k=top_k)
        return _plan(route, body, asked, draft, facts)
    except PassedError as passed:
        return without_observation(route, body, passed.reason)


def user_of(body: bytes) -> str:
    """Return the ``user`` field of a request that may name its sequence there; empty for any other.

    Examples
    --------
    >>> user_of(b'{"user": "paritas:sequence=s-41"}'), user_of(b'{"user": "me"}'), user_of(b"paritas: no JSON")
    ('paritas:sequence=s-41', '', '')
    """
    if USER_PREFIX.encode() not in body:  # most requests: not worth a second reading
        return ""
    try:
        user = _read(body).get("user")
    except PassedError:
        return ""
    return user if isinstance(user, str) else ""


def _read(body: bytes) -> dict[str, Any]:
    """Return the JSON object, strictly: NaN and Infinity are not JSON, and the engine shall say so."""
    try:
        asked = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PassedError(Unobserved.NOT_JSON) from error
    if not isinstance(asked, dict):
        raise PassedError(Unobserved.NOT_JSON)
    return asked


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _plan(route: Route, body: bytes, asked: dict[str, Any], draft: Draft, facts: EngineFacts) -> Plan:
    params = sampling_params(asked) if route in (Route.GENERATE, Route.TOKENS) else asked
    texts = asked.get("prompt", asked.get("text", asked.get("input_ids")))
    return Plan(
        route,
        body=_written({**asked, **draft.added}) if draft.added else body,
        original=body,
        sampling=sampling_of(params, facts),
        strip=Strip(tuple(draft.null), tuple(draft.drop), tuple(draft.top), draft.meta, draft.is_native),
        is_stream=bool(asked.get("stream")),
        is_many=count_in(params.get("n")) > 1 or (isinstance(texts, list) and not _is_one_prompt(texts)),
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
    """A list of token ids is one prompt, to llama.cpp with texts among them too; so is a list of one."""
    return len(texts) < 2 or any(isinstance(one, int) for one in texts)


def _written(asked: Mapping[str, Any]) -> bytes:
    """Return JSON; ASCII where a text holds half a surrogate pair, as an escape may."""
    try:
        return json.dumps(asked, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        return json.dumps(asked, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:  # 1e999 was read as infinity
        raise PassedError(Unobserved.NOT_JSON) from error
