"""What the service keeps beside escalations, to and from its messages: silences, filters, acks."""

from paritas.contracts.model import Operator, Requirement
from paritas.controller.convert import enum_of, escalation_of, severity_of, severity_to
from paritas.controller.filters import Filter
from paritas.controller.model import Acknowledgement, Incident, IncidentRow, Suppression
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.silences import OPERATORS, Silence
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Severity

__all__ = [
    "acknowledgement_of",
    "acknowledgement_to",
    "filter_of",
    "filter_to",
    "incident_of",
    "incident_to",
    "matchers_of",
    "matchers_to",
    "silence_of",
    "silence_to",
    "suppress",
    "suppression_of",
    "suppression_to",
]


def acknowledgement_to(ack: Acknowledgement) -> pb.Acknowledgement:
    """Return the message of `ack`."""
    return pb.Acknowledgement(
        incident_id=ack.incident_id,
        transition=ack.transition,
        author=ack.author,
        comment=ack.comment,
        acknowledged_ns=ack.acknowledged_ns,
    )


def acknowledgement_of(message: pb.Acknowledgement) -> Acknowledgement:
    """Return the record of `message`."""
    return Acknowledgement(
        message.incident_id, message.transition, message.author, message.comment, message.acknowledged_ns
    )


def suppression_to(suppression: Suppression) -> pb.Suppression:
    """Return the message of `suppression`."""
    return pb.Suppression(
        silence_id=suppression.silence_id,
        author=suppression.author,
        comment=suppression.comment,
        ends_ns=suppression.ends_ns,
    )


def suppression_of(message: pb.Suppression) -> Suppression:
    """Return the record of `message`."""
    return Suppression(message.silence_id, message.author, message.comment, message.ends_ns)


def suppress(message: pb.Escalation, *, suppressed: bool) -> None:
    """Mark every action of `message`, in place; what a publisher wrote there does not count."""
    for action in message.actions:
        action.suppressed = suppressed


def matchers_to(matchers: tuple[Requirement, ...]) -> list[pb.Matcher]:
    """Return the messages of `matchers`; refuse operators that silences do not have."""
    return [_matcher_to(matcher, place=f"matchers[{i}]") for i, matcher in enumerate(matchers)]


def _matcher_to(matcher: Requirement, *, place: str) -> pb.Matcher:
    if matcher.op not in OPERATORS:
        message = f"{place}.op: {matcher.op} is not an operator of silences"
        raise RefusalError(message, reason=Refused.INVALID, hint=f"one of {', '.join(OPERATORS)}")
    op = pb.Operator.Value(f"OPERATOR_{matcher.op.name}")
    return pb.Matcher(field=matcher.field, op=op, values=[str(value) for value in matcher.values])


def matchers_of(messages: list[pb.Matcher]) -> tuple[Requirement, ...]:
    """Return the records of `messages`."""
    return tuple(_matcher_of(message, place=f"matchers[{i}]") for i, message in enumerate(messages))


def _matcher_of(message: pb.Matcher, *, place: str) -> Requirement:
    op = enum_of(Operator, pb.Operator.DESCRIPTOR, number=message.op, place=f"{place}.op")
    return Requirement(message.field, op, tuple(message.values))


def silence_to(silence: Silence) -> pb.Silence:
    """Return the message of `silence`."""
    return pb.Silence(
        silence_id=silence.silence_id,
        matchers=matchers_to(silence.matchers),
        starts_ns=silence.starts_ns,
        ends_ns=silence.ends_ns,
        author=silence.author,
        comment=silence.comment,
        created_ns=silence.created_ns,
        expired_by=silence.expired_by,
    )


def silence_of(message: pb.Silence) -> Silence:
    """Return the record of `message`."""
    return Silence(
        silence_id=message.silence_id,
        matchers=matchers_of(list(message.matchers)),
        starts_ns=message.starts_ns,
        ends_ns=message.ends_ns,
        author=message.author,
        comment=message.comment,
        created_ns=message.created_ns,
        expired_by=message.expired_by,
    )


def filter_to(only: Filter) -> pb.Filter:
    """Return the message of `only`."""
    return pb.Filter(
        contracts=sorted(only.contracts),
        clauses=sorted(only.clauses),
        slices=sorted(only.slices),
        policies=sorted(only.policies),
        min_severity=severity_to(only.min_severity),
    )


def filter_of(message: pb.Filter, *, place: str = "filter") -> Filter:
    """Return the record of `message`; no severity means every severity."""
    unset = message.min_severity == pb.SEVERITY_UNSPECIFIED
    return Filter(
        contracts=frozenset(message.contracts),
        clauses=frozenset(message.clauses),
        slices=frozenset(message.slices),
        policies=frozenset(message.policies),
        min_severity=Severity.INFO
        if unset
        else severity_of(message.min_severity, place=f"{place}.min_severity"),
    )


def incident_to(row: IncidentRow, suppression: Suppression | None) -> pb.Incident:
    """Return the message of a stored incident, its actions marked when suppressed."""
    message = pb.Incident(
        current=pb.Escalation.FromString(row.payload),
        open=row.open,
        peak=severity_to(row.subject.severity),
        opened_ns=row.opened_ns,
    )
    suppress(message.current, suppressed=suppression is not None)
    if suppression:
        message.suppressed.CopyFrom(suppression_to(suppression))
    if row.acknowledgement:
        message.acknowledgement.MergeFromString(row.acknowledgement)
    return message


def incident_of(message: pb.Incident) -> Incident:
    """Return the record of `message`."""
    acknowledged, suppressed = message.HasField("acknowledgement"), message.HasField("suppressed")
    return Incident(
        current=escalation_of(message.current, place="incident.current"),
        open=message.open,
        peak=severity_of(message.peak, place="incident.peak"),
        opened_ns=message.opened_ns,
        acknowledgement=acknowledgement_of(message.acknowledgement) if acknowledged else None,
        suppression=suppression_of(message.suppressed) if suppressed else None,
    )
