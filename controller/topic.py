"""Escalations as records of the topic `paritas.escalations`; no gRPC is needed to write or read them."""

from google.protobuf.message import DecodeError

from paritas.controller.convert import escalation_of, escalation_to
from paritas.errors import PermanentError
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Escalation

__all__ = ["ESCALATIONS", "escalation_bytes", "escalation_from"]

ESCALATIONS = "paritas.escalations"


def escalation_bytes(escalation: Escalation) -> bytes:
    """Return a record's value: the message subscribers receive, the same bytes for the same escalation."""
    return escalation_to(escalation).SerializeToString(deterministic=True)


def escalation_from(value: bytes) -> Escalation:
    """Return the escalation a record holds.

    Raises
    ------
    PermanentError
        The value is no escalation.
    """
    try:
        return escalation_of(pb.Escalation.FromString(value))
    except DecodeError as error:
        raise PermanentError(
            "the record is no escalation", hint="does another program write to the topic?"
        ) from error
