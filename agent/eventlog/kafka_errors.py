"""What a Kafka cluster may answer, as our errors: which are worth another try, and which never are."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from paritas.errors import ParitasError, PermanentError, TransientError, UsageError

__all__ = [
    "Fault",
    "KafkaProblem",
    "KafkaTransientError",
    "KafkaUsageError",
    "closed",
    "diagnose",
    "is_corrupt",
    "is_out_of_range",
    "translated",
]


class KafkaProblem(StrEnum):
    """Why something did not work: the bounded names under which it is counted."""

    UNREACHABLE = "unreachable"  # no broker can be connected to
    NOT_LET_IN = (
        "not_let_in"  # it connects, and is not served: credentials, listener, or an overloaded broker
    )
    TLS = "tls"  # the encrypted connection is refused by one side
    NOT_ALLOWED = "not_allowed"  # known, but without the right
    NO_TOPIC = "no_topic"
    TOO_LARGE = "too_large"
    INVALID_RECORD = "invalid_record"
    TIMEOUT = "timeout"  # no acknowledgement in time
    BROKER = "broker"  # anything else that the cluster answers
    CLOSED = "closed"  # this client was closed meanwhile
    SETTINGS = "settings"  # this client cannot even try


class KafkaTransientError(TransientError):
    """The same call may work later; `problem` says under which name it is counted."""

    def __init__(self, problem: KafkaProblem, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problem = problem


class KafkaUsageError(UsageError):
    """A person must act; `problem` says under which name it is counted."""

    def __init__(self, problem: KafkaProblem, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem with its error; only a `PermanentError` means that a record must be given up."""

    problem: KafkaProblem
    error: ParitasError


_TOO_LARGE = {"MessageSizeTooLargeError", "RecordListTooLargeError", "RecordTooLargeError"}
_INVALID = {"InvalidRecordError", "UnsupportedForMessageFormatError"}
_NO_TOPIC = {"UnknownTopicOrPartitionError", "UnknownTopicIdError"}
_NOT_ALLOWED = {
    "TopicAuthorizationFailedError",
    "ClusterAuthorizationFailedError",
    "GroupAuthorizationFailedError",
}


def diagnose(error: Exception, place: str) -> Fault:
    """Return what an error of the client library means for the caller.

    An error nobody foresaw is transient: a record is never given up without a known reason.
    """
    if isinstance(error, (KafkaTransientError, KafkaUsageError)):
        return Fault(error.problem, error)
    if isinstance(error, ParitasError):
        return Fault(KafkaProblem.SETTINGS if isinstance(error, UsageError) else KafkaProblem.BROKER, error)
    name = type(error).__name__
    if name in _TOO_LARGE:
        return Fault(KafkaProblem.TOO_LARGE, too_large(place))
    if name in _INVALID:
        return Fault(
            KafkaProblem.INVALID_RECORD, PermanentError(f"{place}: the broker calls the record invalid")
        )
    if name in _NO_TOPIC:
        return Fault(KafkaProblem.NO_TOPIC, no_topic(place))
    if name in _NOT_ALLOWED:
        return Fault(KafkaProblem.NOT_ALLOWED, not_allowed(place))
    transient = _transient(error, name, place)
    return Fault(transient.problem, transient)


def _transient(error: Exception, name: str, place: str) -> KafkaTransientError:
    if name == "KafkaTimeoutError":
        return KafkaTransientError(
            KafkaProblem.TIMEOUT, f"{place}: no answer in time", hint="is the broker up?"
        )
    if name == "IllegalStateError":
        return closed(place)
    detail = str(error).splitlines()[0][:200] if str(error) else name
    return KafkaTransientError(KafkaProblem.BROKER, f"{place}: {detail}")


def closed(place: str) -> KafkaTransientError:
    """Return the error for a client that was closed meanwhile."""
    return KafkaTransientError(KafkaProblem.CLOSED, f"{place}: the client was closed")


def too_large(place: str) -> PermanentError:
    """Return the error for a record above the broker's own limit."""
    return PermanentError(
        f"{place}: a record exceeds the limit of the broker",
        hint="raise the topic's max.message.bytes above record_limit_bytes",
    )


def no_topic(place: str) -> KafkaUsageError:
    """Return the error for a topic that is not there."""
    return KafkaUsageError(
        KafkaProblem.NO_TOPIC,
        f"{place} does not exist",
        hint="make it with `paritas topics`, or correct its name",
    )


def not_allowed(place: str) -> KafkaUsageError:
    """Return the error for a client without the right."""
    return KafkaUsageError(
        KafkaProblem.NOT_ALLOWED,
        f"{place}: this client may not use it",
        hint="grant Read, Write and Describe to its user",
    )


def is_corrupt(error: Exception) -> bool:
    """Whether the bytes of a record batch do not match their checksum."""
    return type(error).__name__ in {"CorruptRecordError", "CorruptRecordException"}


def is_out_of_range(error: Exception) -> bool:
    """Whether a position is outside what the partition holds; its first argument tells the positions."""
    return type(error).__name__ == "OffsetOutOfRangeError"


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Turn the library's errors into ours while something is done at a place."""
    try:
        yield
    except ParitasError:
        raise
    except Exception as error:
        raise diagnose(error, place).error from error
