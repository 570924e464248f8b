"""What a request asked for, how it is named, and whether it is observed: pure functions of its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paritas.collectors.openai.engines import EngineFacts
from paritas.collectors.openai.naming import Names, is_in_share
from paritas.collectors.openai.sampling import sampling_of
from paritas.collectors.vllm.account import Unobserved
from paritas.records import Sampling

__all__ = ["Asked", "Declared", "Identity", "asked_of", "identity_of", "names_in"]

# Columns of a top-k list that a trace carries at most; a request may ask for more.
TOP_LIMIT = 32
# Before this version log-probabilities of a request switched its speculative decoding off
# (vllm issue 34497): asking for them would change how it is served.
SPECULATIVE_SINCE = (0, 14, 0)
PREFIX = "paritas_"
LAWS = (
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
    "min_tokens",
    "logits_processors",
)


@dataclass(frozen=True, slots=True)
class Declared:
    """What the environment declares.

    Attributes
    ----------
    share : float
        Of the sequences that ask for no log-probabilities, by name.
    top_k : int
        Columns asked for with them.
    """

    run_id: str = "default"
    share: float = 0.05
    top_k: int = 0
    weights_version: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Identity:
    """Which sequence this is: `Names` completed, and the base that names its choices."""

    names: Names
    sequence_id: str
    group_id: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What is done with one request.

    Attributes
    ----------
    unobserved : Unobserved or None
    inject : int or None
        Log-probabilities to ask the engine core for; None where the request asks itself.
    width : int
        Columns the request's own log-probabilities have, the sampled token's first.
    top : int
        How many of the others are the k most likely.
    """

    unobserved: Unobserved | None = None
    inject: int | None = None
    width: int = 1
    top: int = 0
    sampling: Sampling = Sampling()


def asked_of(params: Any, facts: EngineFacts, declared: Declared, *, key: str, is_speculative: bool) -> Asked:
    """Decide by the declared policy.

    Parameters
    ----------
    params : vllm.SamplingParams
    facts : EngineFacts
        Engine, kernel and semantics.
    declared : Declared
    key : str
        The name that the share is drawn by: samples of one prompt have one, so groups stay whole.
    is_speculative : bool
        The engine drafts tokens.
    """
    if facts.are_logits:
        return Asked(Unobserved.LOGITS)
    wanted, ids = getattr(params, "logprobs", None), getattr(params, "logprob_token_ids", None)
    if wanted == -1:
        return Asked(Unobserved.WHOLE_VOCABULARY)
    sampling = law_of(params, facts)
    if ids:  # columns of ids somebody chose are no list of the most likely
        return Asked(width=len(ids) + 1, sampling=sampling)
    if wanted is not None:
        return Asked(width=wanted + 1, top=min(wanted, TOP_LIMIT), sampling=sampling)
    if not is_in_share(key, declared.share):
        return Asked(Unobserved.SHARE)
    if is_speculative and not _is_since(facts.version):
        return Asked(Unobserved.SPECULATIVE)
    top = min(declared.top_k, TOP_LIMIT)
    return Asked(inject=top, width=top + 1, top=top, sampling=sampling)


def _is_since(version: str) -> bool:
    from paritas.collectors.openai.engines import version_at_least

    return version_at_least(version, SPECULATIVE_SINCE)


def law_of(params: Any, facts: EngineFacts) -> Sampling:
    """Return how tokens are drawn, and what the reported numbers then mean (`sampling_of`)."""
    told = {name: getattr(params, name, None) for name in ("temperature", "top_p", "top_k", "min_p")}
    laws = {name: _plain(getattr(params, name, None)) for name in LAWS}
    structured = getattr(params, "structured_outputs", None) or getattr(params, "guided_decoding", None)
    laws["structured_outputs"] = None if structured is None else str(structured)
    return sampling_of({**told, **laws}, facts)


def _plain(told: Any) -> Any:
    """A value that JSON takes; masks and biases keep their content, other objects their text."""
    if isinstance(told, Mapping):
        return {str(key): value for key, value in told.items()}
    if isinstance(told, list | tuple | set | frozenset):
        return [one if isinstance(one, str | int | float) else str(one) for one in told]
    return told if told is None or isinstance(told, bool | int | float | str) else str(told)


def names_in(params: Any, headers: Names | None) -> Names:
    """Return what a request says of itself: ``extra_args`` before headers.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> names_in(SimpleNamespace(extra_args={"paritas_sequence_id": "s"}), Names(run_id="r")).run_id
    'r'
    """
    base, extra = headers or Names(), getattr(params, "extra_args", None)
    if not isinstance(extra, Mapping):
        return base
    told = {
        name: extra.get(PREFIX + name) for name in ("run_id", "sequence_id", "group_id", "weights_version")
    }
    given = {name: str(value)[:256] for name, value in told.items() if value not in (None, "")}
    return replace(base, **given) if given else base  # type: ignore[arg-type]  # only texts of its fields


def identity_of(told: Names, external_id: str, index: int, *, choices: int, instance: str) -> Identity:
    """Name one sequence; `index` is its number among the `choices` of one prompt.

    An engine that is called as a library numbers its requests from 0: such a number means nothing
    outside, so the instance stands before it.  `cmpl-ID-N` is prompt N of a completion that clients
    know as `cmpl-ID`.

    Examples
    --------
    >>> identity_of(Names(), "7", 0, choices=1, instance="host:4").sequence_id
    'host:4/7'
    >>> identity_of(Names(), "cmpl-a-0", 1, choices=2, instance="").sequence_id
    'cmpl-a/1'
    """
    base, number = external_id, index
    if external_id.isdecimal():
        base = f"{instance}/{external_id}"
    elif external_id.startswith("cmpl-"):
        head, _, prompt = external_id.rpartition("-")
        if head != "cmpl" and prompt.isdecimal() and len(prompt) < 6:
            base, number = head, int(prompt) * choices + index
    sequence_id, group_id = told.of_choice(base, number, is_many=choices > 1 or number > 0)
    return Identity(told, sequence_id, group_id)
