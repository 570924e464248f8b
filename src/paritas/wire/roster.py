"""Rosters: who is expected to report, told by whoever knows it, such as an orchestrator; there and back."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from paritas import __version__
from paritas.errors import RecordError
from paritas.wire import names
from paritas.wire.attributes import put, read, text_of, values_of
from paritas.wire.reasons import DecodeProblem
from paritas.wire.records import Origin, WireRecord, stamp

__all__ = ["MOST_AGENTS", "SIDECAR", "Expected", "Roster", "encode_roster", "fitting", "roster_of"]

MOST_AGENTS = 4096  # of one roster
ROSTER_BYTES = 400 * 1024  # of its list: a record has room for it
SIDECAR = ("present", "absent", "unknown")
SHORTEST_NS = 1_000  # backends count microseconds, and warn of a span without length
SCHEMA_HEADERS = ((names.HEADER_SCHEMA, b"%d" % names.SCHEMA),)


@dataclass(frozen=True, slots=True)
class Expected:
    """One agent that must report.

    Attributes
    ----------
    agent : str
        Its name, as in the header ``paritas-agent``; no whitespace.
    since_ns : int
        Unix ns from which it is expected to; 0 while it is known, but not yet expected.
    sidecar : str
        Whether its place has an agent at all, as far as the writer sees: one of `SIDECAR`.
    """

    agent: str
    since_ns: int = 0
    sidecar: str = "unknown"

    @property
    def line(self) -> str:
        """How the list holds it."""
        return f"{self.agent} {self.since_ns} {self.sidecar}"


@dataclass(frozen=True, slots=True)
class Roster:
    """Everyone that one source expects; takes the place of what that source said before.

    Attributes
    ----------
    name : str
        Of the source, such as ``roster:serving``; rosters of different names do not touch each other.
    epoch, number : int
        When the source began (Unix ns), and how many rosters it has told since.
    agents : tuple of Expected
    left_out : int
        Agents for which there was no room.
    """

    name: str
    epoch: int
    number: int
    agents: tuple[Expected, ...]
    left_out: int = 0


def fitting(agents: Iterable[Expected]) -> tuple[tuple[Expected, ...], int]:
    """Return the agents for which a roster has room, those expected for longest first, and how many have none.

    Examples
    --------
    >>> fitting([Expected("pod-2", 7), Expected("pod-1", 7), Expected("pod-3")])[0][0].agent
    'pod-1'
    """
    ordered = sorted(agents, key=lambda one: (one.since_ns == 0, one.since_ns, one.agent))
    kept = tuple(_within(ordered))
    return kept, len(ordered) - len(kept)


def _within(agents: Iterable[Expected]) -> Iterator[Expected]:
    size_bytes = 0
    for place, one in enumerate(agents):
        size_bytes += len(one.line.encode()) + 1
        if place == MOST_AGENTS or size_bytes > ROSTER_BYTES:
            return
        yield one


def encode_roster(roster: Roster, *, now_ns: int) -> WireRecord:
    """Return the record of a roster, with the headers that tell a copy of it.

    All rosters of one name share a trace, so they stay in order.

    Examples
    --------
    >>> record = encode_roster(Roster("roster:a", 5, 1, (Expected("pod-7", 3, "absent"),)), now_ns=9)
    >>> record.headers[1:]
    (('paritas-agent', b'roster:a'), ('paritas-epoch', b'5'), ('paritas-seq', b'1'))
    """
    trace_id = hashlib.blake2b(roster.name.encode(), digest_size=16, person=b"paritas.roster").digest()
    request = ExportTraceServiceRequest()
    source = request.resource_spans.add()
    put(source.resource.attributes, {"service.name": "paritas-roster", names.INSTANCE_ID: roster.name})
    scope = source.scope_spans.add()
    scope.scope.name, scope.scope.version = names.SCOPE_NAME, __version__
    identity = f"{roster.name}\n{roster.epoch}\n{roster.number}".encode()
    span = scope.spans.add(
        name=names.ROSTER_SPAN,
        kind=Span.SPAN_KIND_INTERNAL,
        trace_id=trace_id,
        span_id=hashlib.blake2b(identity, digest_size=8).digest(),
        start_time_unix_nano=now_ns,
        end_time_unix_nano=now_ns + SHORTEST_NS,
    )
    put(span.attributes, _told(roster))
    record = WireRecord(trace_id.hex().encode(), request.SerializeToString(), SCHEMA_HEADERS)
    return stamp(record, Origin(roster.name, roster.epoch, roster.number))


def _told(roster: Roster) -> dict[str, int | str]:
    return {
        names.ROSTER_EPOCH: roster.epoch,
        names.ROSTER_NUMBER: roster.number,
        names.ROSTER_LEFT_OUT: roster.left_out,
        names.ROSTER_AGENTS: "\n".join(one.line for one in roster.agents),
    }


def roster_of(span: Span, resource: Resource) -> Roster:
    """Return the roster a span tells; RecordError with a `DecodeProblem` when it is broken."""
    values = values_of(span.attributes)
    numbers = [read(values, n, kind=int) for n in (names.ROSTER_EPOCH, names.ROSTER_NUMBER)]
    text = read(values, names.ROSTER_AGENTS, kind=str)
    if None in numbers or text is None:
        raise RecordError("a roster lacks its number or its list", reason=DecodeProblem.MISSING_ATTRIBUTE)
    lines = text.split("\n") if text else []
    if len(lines) > MOST_AGENTS:
        raise RecordError(f"a roster of {len(lines)} agents", reason=DecodeProblem.BAD_ATTRIBUTE)
    return Roster(
        text_of(values_of(resource.attributes), names.INSTANCE_ID, required=True),
        numbers[0] or 0,
        numbers[1] or 0,
        tuple(map(_expected, lines)),
        read(values, names.ROSTER_LEFT_OUT, kind=int) or 0,
    )


def _expected(line: str) -> Expected:
    agent, _, rest = line.partition(" ")
    since, _, sidecar = rest.partition(" ")
    if not agent or not since.isascii() or not since.isdigit() or len(since) > 19 or sidecar not in SIDECAR:
        raise RecordError(f"a roster's line is {line[:80]!r}", reason=DecodeProblem.BAD_ATTRIBUTE)
    return Expected(agent, int(since), sidecar)
