"""Why the escalation service says no: a named reason, and the text the caller reads."""

from enum import StrEnum

from paritas.errors import PermanentError

__all__ = ["RefusalError", "Refused", "invalid"]


class Refused(StrEnum):
    """The closed list of reasons; each is one gRPC status (`controller.statuses`)."""

    INVALID = "invalid_argument"
    NOT_FOUND = "not_found"
    OUT_OF_RANGE = "out_of_range"
    EXHAUSTED = "resource_exhausted"
    PRECONDITION = "failed_precondition"
    REPLACED = "replaced"
    DAMAGED = "data_loss"
    FORBIDDEN = "forbidden"
    UNSUPPORTED = "unsupported"


class RefusalError(PermanentError):
    """The same request always fails, for `reason`.

    Examples
    --------
    >>> str(RefusalError("events[0].event_id: must not be empty", reason=Refused.INVALID))
    'events[0].event_id: must not be empty'
    """

    def __init__(self, message: str, *, reason: Refused, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


def invalid(message: str, hint: str = "") -> RefusalError:
    """Return the refusal of a request that is wrong in itself; `message` begins with the field's place.

    Examples
    --------
    >>> invalid("matchers: must not be empty").reason
    <Refused.INVALID: 'invalid_argument'>
    """
    return RefusalError(message, reason=Refused.INVALID, hint=hint)
