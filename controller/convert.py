"""Escalation records to and from their messages; the only place that knows both forms.

Numbers pass bit for bit, NaN and infinity included.  Names that an enum lacks are refused
with their place, never mapped to something near.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor

from paritas.controller.refusals import RefusalError, invalid
from paritas.controller.values import map_of, map_to
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Action, Escalation, Finding, Phase, Reason, Severity, State, Verdict

__all__ = [
    "action_of",
    "action_to",
    "enum_of",
    "escalation_of",
    "escalation_to",
    "finding_of",
    "finding_to",
    "severity_of",
    "severity_to",
    "verdict_of",
    "verdict_to",
]

E = TypeVar("E", bound=StrEnum)

_VERDICT_PLAIN = (
    "clause",
    "slice",
    "statistic",
    "family",
    "estimate",
    "lower",
    "upper",
    "limit",
    "log10_e",
    "log10_pass",
    "threshold_log10",
    "units",
    "tokens",
    "needed_units",
    "unit",
)
_ESCALATION_PLAIN = (
    "event_id",
    "incident_id",
    "transition",
    "contract",
    "contract_version",
    "policy",
    "clause",
    "slice",
    "weights_version",
    "level",
    "issued_ns",
    "valid_until_ns",
    "summary",
)


def _plain(source: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def enum_of(kind: type[E], wire: EnumDescriptor, *, number: int, place: str) -> E:
    """Return the member of `kind` that `number` of the wire enum stands for.

    Raises
    ------
    RefusalError
        INVALID when it is unset (0) or unknown.
    """
    if number == 0:
        raise invalid(f"{place}: must be set")
    value = wire.values_by_number.get(number)
    if value is None:
        raise invalid(f"{place}: unknown value {number}")
    return kind[value.name.removeprefix(f"{wire.name.upper()}_")]


def severity_to(severity: Severity) -> pb.Severity.ValueType:
    """Return the wire value."""
    return pb.Severity.Value(f"SEVERITY_{severity.name}")


def severity_of(number: int, *, place: str) -> Severity:
    """Return the severity of a wire value."""
    return enum_of(Severity, pb.Severity.DESCRIPTOR, number=number, place=place)


def verdict_to(verdict: Verdict) -> pb.Verdict:
    """Return the message of `verdict`."""
    state = pb.State.Value(f"STATE_{verdict.state.name}")
    return pb.Verdict(state=state, reason=verdict.reason.value, **_plain(verdict, _VERDICT_PLAIN))


def verdict_of(message: pb.Verdict, *, place: str = "verdict") -> Verdict:
    """Return the record of `message`."""
    try:
        reason = Reason(message.reason)
    except ValueError as error:
        raise invalid(f"{place}.reason: unknown name {message.reason!r}") from error
    state = enum_of(State, pb.State.DESCRIPTOR, number=message.state, place=f"{place}.state")
    return Verdict(state=state, reason=reason, **_plain(message, _VERDICT_PLAIN))


def finding_to(finding: Finding, *, place: str = "finding") -> pb.Finding:
    """Return the message of `finding`."""
    return pb.Finding(
        cause=finding.cause,
        slice=finding.slice,
        confidence=finding.confidence,
        facts=map_to(finding.facts, place=f"{place}.facts"),
        advice=finding.advice,
    )


def finding_of(message: pb.Finding, *, place: str = "finding") -> Finding:
    """Return the record of `message`; facts are numbers and text."""
    facts: dict[str, float | str] = {}
    for name, value in map_of(message.facts).items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise invalid(f"{place}.facts.{name}: must be a number or text")
        facts[name] = value
    return Finding(message.cause, message.slice, message.confidence, facts, message.advice)


def action_to(action: Action, *, place: str = "action") -> pb.Action:
    """Return the message of `action`, not suppressed."""
    return pb.Action(kind=action.kind, arguments=map_to(action.arguments, place=f"{place}.arguments"))


def action_of(message: pb.Action) -> Action:
    """Return the record of `message`; whether it is suppressed is said beside it."""
    return Action(message.kind, map_of(message.arguments))


def escalation_to(event: Escalation) -> pb.Escalation:
    """Return the message of `event`.

    Raises
    ------
    RefusalError
        INVALID when a field holds what no message can carry.
    """
    place = f"event {event.event_id!r}"
    try:
        return pb.Escalation(
            before=pb.Phase.Value(f"PHASE_{event.before.name}"),
            after=pb.Phase.Value(f"PHASE_{event.after.name}"),
            severity=severity_to(event.severity),
            verdict=verdict_to(event.verdict),
            diagnosis=[finding_to(f, place=f"diagnosis[{i}]") for i, f in enumerate(event.diagnosis)],
            actions=[action_to(a, place=f"actions[{i}]") for i, a in enumerate(event.actions)],
            trace_ids=event.trace_ids,
            **_plain(event, _ESCALATION_PLAIN),
        )
    except RefusalError as error:
        raise invalid(f"{place}: {error}") from error
    except (TypeError, ValueError) as error:  # out of range, wrong type, lone surrogate
        raise invalid(f"{place}: cannot be sent: {error}") from error


def escalation_of(message: pb.Escalation, *, place: str = "event") -> Escalation:
    """Return the record of `message`.

    Raises
    ------
    RefusalError
        INVALID, naming the field below `place`.
    """
    return Escalation(
        before=enum_of(Phase, pb.Phase.DESCRIPTOR, number=message.before, place=f"{place}.before"),
        after=enum_of(Phase, pb.Phase.DESCRIPTOR, number=message.after, place=f"{place}.after"),
        severity=severity_of(message.severity, place=f"{place}.severity"),
        verdict=verdict_of(message.verdict, place=f"{place}.verdict"),
        diagnosis=tuple(
            finding_of(f, place=f"{place}.diagnosis[{i}]") for i, f in enumerate(message.diagnosis)
        ),
        actions=tuple(action_of(a) for a in message.actions),
        trace_ids=tuple(message.trace_ids),
        **_plain(message, _ESCALATION_PLAIN),
    )
