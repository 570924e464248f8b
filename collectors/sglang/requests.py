"""One finished request of SGLang, its parameters and its ``meta_info`` → a trace: pure."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paritas.collectors.openai.columns import Doubt, columns_of
from paritas.collectors.openai.engines import Engine, EngineFacts, facts_of
from paritas.collectors.openai.meta import received_ns, timings_in
from paritas.collectors.openai.naming import Names
from paritas.collectors.openai.responses import Spoken
from paritas.collectors.openai.sampling import sampling_of
from paritas.collectors.prefix_cache import cache_attributes
from paritas.records import TokenTrace
from paritas.tokens import TokenHasher

__all__ = ["Finished", "SglangSource", "request_in_line", "trace_of_request"]

PREFIX = "paritas_"
TOP_LIMIT = 32


def _facts() -> EngineFacts:
    return facts_of({}, engine=Engine.SGLANG)


@dataclass(frozen=True, slots=True)
class SglangSource:
    """What all requests of an engine share; an answer that tells its own has precedence."""

    hasher: TokenHasher
    run_id: str = "default"
    weights_version: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    facts: EngineFacts = field(default_factory=_facts)


@dataclass(frozen=True, slots=True)
class Finished:
    """A request at its end.

    Attributes
    ----------
    parameters : mapping
        The request: ``rid``, ``sampling_params``, ``top_logprobs_num``.
    meta : mapping
        ``meta_info`` of its answer.
    """

    parameters: Mapping[str, Any]
    meta: Mapping[str, Any]


def request_in_line(row: Mapping[str, Any]) -> Finished:
    """Read one line of SGLang's log of requests: parameters as a text in JSON, ``meta_info`` beside them.

    Examples
    --------
    >>> request_in_line({"request_parameters": '{"rid": "r"}', "id": "r"}).parameters["rid"]
    'r'
    """
    told = row.get("request_parameters")
    try:
        parameters = json.loads(told) if isinstance(told, str) else told
    except (ValueError, RecursionError):
        parameters = None
    meta = {name: value for name, value in row.items() if name != "request_parameters"}
    return Finished(parameters if isinstance(parameters, Mapping) else {}, meta)


def trace_of_request(finished: Finished, source: SglangSource) -> tuple[TokenTrace | None, Counter[Doubt]]:
    """Return the trace of a request, None where it told no tokens, and what was odd.

    A request names its sequence with ``rid``, or with ``paritas_sequence_id``, ``paritas_group_id``,
    ``paritas_run_id`` and ``paritas_weights_version`` in ``custom_params`` of its ``sampling_params``.
    """
    meta, asked = finished.meta, _mapping(finished.parameters.get("sampling_params"))
    spoken = Spoken()
    spoken.read_generate({"meta_info": meta}, now_ns=0)
    if not spoken.is_finished:
        return None, Counter({Doubt.UNFINISHED: 1})
    columns = columns_of(spoken, source.hasher, top_k=_top_k(finished.parameters))
    if columns is None:
        return None, Counter({Doubt.NO_TOKEN_IDS: 1})
    if len(spoken.weights) > 1:
        columns.doubts[Doubt.MIXED_WEIGHTS] += 1
    names = _names(asked)
    cached = cache_attributes(_whole(meta.get("cached_tokens")), spoken.prompt_tokens)
    trace = TokenTrace(
        run_id=names.run_id or source.run_id,
        sequence_id=names.sequence_id or str(meta.get("id") or finished.parameters.get("rid") or ""),
        group_id=names.group_id,
        kernel=source.facts.kernel,
        weights_version=names.weights_version or "+".join(spoken.weights) or source.weights_version,
        sampling=sampling_of(asked, source.facts),
        attributes={**source.attributes, **cached},
        event_ns=received_ns(meta),
        logprob=columns.logprob,
        token=source.hasher.hash(columns.ids),
        status=columns.status,
        top=columns.top,
        timings=timings_in(meta),
    )
    return trace, columns.doubts


def _names(asked: Mapping[str, Any]) -> Names:
    custom = _mapping(asked.get("custom_params"))
    told = {
        name: custom.get(PREFIX + name) for name in ("run_id", "sequence_id", "group_id", "weights_version")
    }
    given = {name: str(value)[:256] for name, value in told.items() if value not in (None, "")}
    return replace(Names(), **given) if given else Names()  # type: ignore[arg-type]  # only texts of its fields


def _top_k(parameters: Mapping[str, Any]) -> int:
    return max(0, min(_whole(parameters.get("top_logprobs_num")) or 0, TOP_LIMIT))


def _mapping(told: Any) -> Mapping[str, Any]:
    return told if isinstance(told, Mapping) else {}


def _whole(told: Any) -> int | None:
    return told if isinstance(told, int) and not isinstance(told, bool) else None
