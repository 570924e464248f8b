"""What a proxy counts, and the page Prometheus reads."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from paritas.collectors.emitter_queue import EmitterReading
from paritas.collectors.openai.columns import Doubt
from paritas.collectors.openai.engines import EngineFacts
from paritas.collectors.openai.observation import Seen
from paritas.collectors.openai.plans import Unobserved

__all__ = ["Outcome", "ProxyFault", "Tally", "page"]


E = TypeVar("E", bound=StrEnum)


class Outcome(StrEnum):
    """How a request to the engine ended."""

    ANSWERED = "answered"
    CLIENT_LEFT = "client_left"
    UPSTREAM_DOWN = "upstream_down"
    UPSTREAM_BROKE = "upstream_broke"  # in the middle of an answer


class ProxyFault(StrEnum):
    """What went wrong with observing; the answer passed all the same."""

    REFUSED = "refused"  # the engine refused our addition: the original was sent again
    OBSERVING = "observing"  # a fault of ours while reading or building traces
    STRIPPING = "stripping"  # an answer or event that could not be read passed as it came
    ANSWER_TOO_LARGE = "answer_too_large"  # too large to be stripped: passed as it came
    ANSWER_ENCODED = "answer_encoded"  # compressed although identity was asked for


@dataclass(slots=True)
class Tally:
    """Counters of one proxy; one event loop writes them."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    observed: int = 0
    unobserved: Counter[Unobserved] = field(default_factory=Counter)
    faults: Counter[ProxyFault] = field(default_factory=Counter)
    doubts: Counter[Doubt] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    sequences: int = 0

    def add(self, seen: Seen) -> None:
        """Count what came of one observed request."""
        self.sequences += len(seen.traces)
        self.doubts.update(seen.doubts)
        for trace in seen.traces:
            self.tokens.update({status.name.lower(): n for status, n in trace.counts().items()})


def page(tally: Tally, emitted: EmitterReading, facts: EngineFacts | None) -> str:
    """Return the metrics in the Prometheus text format; every label of a closed list, zeros included."""
    tokens = {f'{{status="{status}"}}': count for status, count in sorted(tally.tokens.items())}
    lines = [
        *_by_label("requests", "requests to the engine, by how they ended", tally.outcomes, Outcome),
        *_by_label("unobserved", "requests that passed unobserved", tally.unobserved, Unobserved),
        *_by_label("faults", "faults of observing; the answers passed", tally.faults, ProxyFault),
        *_by_label("doubts", "odd answers, by kind", tally.doubts, Doubt),
        *_family("tokens", "tokens of traces, by status", tokens),
        *_family("observed", "requests that were observed", {"": tally.observed}),
        *_family("sequences", "traces that were built", {"": tally.sequences}),
        *_emitted(emitted),
        *_engine(facts),
    ]
    return "\n".join(lines) + "\n"


def _by_label(name: str, told: str, counts: Counter[E], labels: type[E]) -> Iterable[str]:
    key = "outcome" if issubclass(labels, Outcome) else "reason"
    return _family(name, told, {f'{{{key}="{one}"}}': counts[one] for one in labels})


def _emitted(emitted: EmitterReading) -> list[str]:
    dropped = {f'{{reason="{reason}"}}': count for reason, count in sorted(emitted.dropped.items())}
    return [
        *_family("traces_accepted", "traces handed to the emitter", {"": emitted.accepted}),
        *_family("traces_delivered", "traces the agent has", {"": emitted.delivered}),
        *_family("traces_dropped", "traces lost, by reason", dropped),
        *_family("traces_queued", "traces that wait", {"": emitted.queued}, kind="gauge"),
    ]


def _engine(facts: EngineFacts | None) -> Iterable[str]:
    if facts is None:
        return _family("engine", "what answers upstream", {}, kind="gauge")
    labels = f'{{engine="{facts.engine}",version="{_escaped(facts.version)}",semantics="{facts.semantics}"}}'
    return _family("engine", "what answers upstream", {labels: 1}, kind="gauge")


def _family(name: str, told: str, values: Mapping[str, int], *, kind: str = "counter") -> Iterable[str]:
    full = f"paritas_proxy_{name}" + ("_total" if kind == "counter" else "")
    yield f"# HELP {full} {told}"
    yield f"# TYPE {full} {kind}"
    yield from (f"{full}{labels} {value}" for labels, value in values.items())


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
