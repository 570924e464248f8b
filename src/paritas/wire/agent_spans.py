"""What an agent says of itself in the log: which records are lost, and how it is."""

from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from paritas.errors import RecordError
from paritas.wire import names
from paritas.wire.attributes import read, text_of, values_of
from paritas.wire.reasons import DecodeProblem

__all__ = ["AgentHealth", "Gap", "gap_of", "health_of"]


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that were accepted and will never come.

    Attributes
    ----------
    stream : str
        Whose numbering: the agent's name, and for what it kept in memory a suffix.
    first_seq, last_seq : int
        Numbers lost, both included.
    reason : str
        Why: the agent's own closed list.
    """

    stream: str
    first_seq: int
    last_seq: int
    reason: str

    @property
    def lost(self) -> int:
        """How many records.

        Examples
        --------
        >>> Gap("pod-7", 3, 8, "overflow").lost
        6
        """
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """One report of an agent.

    Attributes
    ----------
    agent : str
    note : str
        ``ready``, or why it is not.
    """

    agent: str
    note: str


def gap_of(span: Span) -> Gap:
    """Return the gap a span tells of; RecordError with a `DecodeProblem` when it is broken."""
    values = values_of(span.attributes)
    first_seq, last_seq = (_number(values, name) for name in (names.GAP_FIRST_SEQ, names.GAP_LAST_SEQ))
    if last_seq < first_seq:
        raise RecordError("a gap ends before it begins", reason=DecodeProblem.BAD_ATTRIBUTE)
    stream = text_of(values, names.GAP_STREAM, required=True)
    return Gap(stream, first_seq, last_seq, text_of(values, names.GAP_REASON, required=True))


def _number(values: Mapping[str, object], name: str) -> int:
    number = read(values, name, kind=int)
    if number is None:
        raise RecordError(f"{name} is missing", reason=DecodeProblem.MISSING_ATTRIBUTE)
    return number


def health_of(span: Span, resource: Resource) -> AgentHealth:
    """Return what a span says of its agent; RecordError with a `DecodeProblem` when it is broken."""
    agent = text_of(values_of(resource.attributes), names.INSTANCE_ID, required=True)
    return AgentHealth(agent, text_of(values_of(span.attributes), names.HEALTH_NOTE, required=True))
