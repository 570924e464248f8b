"""The edge of Publish: what enters the log is whole, of a known kind and of bounded size."""

from collections.abc import Sequence

from paritas.controller.config import Limits
from paritas.controller.convert import escalation_of
from paritas.controller.model import OPEN_PHASES, Draft, EventKind, Subject
from paritas.controller.refusals import invalid
from paritas.controller.wire import suppress
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Escalation

__all__ = ["admit", "subject_of"]

_NAMED = ("event_id", "incident_id", "contract", "clause", "slice")


def admit(messages: Sequence[pb.Escalation], *, limits: Limits) -> list[Draft]:
    """Return the drafts of a batch.

    Raises
    ------
    RefusalError
        INVALID, naming the first field that is wrong; nothing of the batch is taken.
    """
    if len(messages) > limits.batch_events:
        message = f"events: {len(messages)} events in one batch, at most {limits.batch_events} are taken"
        raise invalid(message, "send several batches")
    return [_admit_one(m, limits=limits, place=f"events[{i}]") for i, m in enumerate(messages)]


def _admit_one(message: pb.Escalation, *, limits: Limits, place: str) -> Draft:
    size = message.ByteSize()
    if size > limits.event_bytes:
        raise invalid(f"{place}: {size} bytes, at most {limits.event_bytes} are taken")
    for name in _NAMED:
        if not getattr(message, name):
            raise invalid(f"{place}.{name}: must not be empty")
    event = escalation_of(message, place=place)
    _check_numbers(event, place=place)
    # The message itself is kept, with fields this version does not know.
    suppress(message, suppressed=False)
    return Draft(
        kind=EventKind.ESCALATION,
        event_id=event.event_id,
        payload=message.SerializeToString(deterministic=True),
        subject=subject_of(event),
        transition=event.transition,
        open=event.after in OPEN_PHASES,
    )


def _check_numbers(event: Escalation, *, place: str) -> None:
    if not 1 <= event.transition < 2**63:  # SQLite's integers are signed
        raise invalid(f"{place}.transition: must be at least 1, got {event.transition}")
    if event.issued_ns <= 0:
        raise invalid(f"{place}.issued_ns: must be a Unix time in ns, got {event.issued_ns}")
    if event.valid_until_ns < event.issued_ns:
        raise invalid(f"{place}.valid_until_ns: must not be before issued_ns")


def subject_of(event: Escalation) -> Subject:
    """Return what filters and silences look at."""
    return Subject(
        incident_id=event.incident_id,
        contract=event.contract,
        contract_version=event.contract_version,
        policy=event.policy,
        clause=event.clause,
        slice=event.slice,
        weights_version=event.weights_version,
        severity=event.severity,
    )
