"""Errors as gRPC statuses and back."""

import grpc
import pytest

from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.statuses import error_of, status_of, text_of
from paritas.errors import TransientError, UsageError


class Failed(grpc.RpcError):
    """A failed call with a chosen status; a server gives only some of them on demand."""

    def __init__(self, code, details="because"):
        super().__init__()
        self._code, self._details = code, details

    def code(self):
        return self._code

    def details(self):
        return self._details


AGAIN = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED", "INTERNAL", "UNKNOWN"}
NEVER = {
    "INVALID_ARGUMENT": Refused.INVALID,
    "NOT_FOUND": Refused.NOT_FOUND,
    "OUT_OF_RANGE": Refused.OUT_OF_RANGE,
    "FAILED_PRECONDITION": Refused.PRECONDITION,
    "ABORTED": Refused.REPLACED,
    "DATA_LOSS": Refused.DAMAGED,
    "UNAUTHENTICATED": Refused.FORBIDDEN,
    "PERMISSION_DENIED": Refused.FORBIDDEN,
    "UNIMPLEMENTED": Refused.UNSUPPORTED,
}


@pytest.mark.parametrize("name", sorted(AGAIN))
def test_these_are_worth_trying_again(name):
    error = error_of(Failed(grpc.StatusCode[name]), target="t")
    assert type(error) is TransientError
    assert error.render() == f"[transient] t: {name}: because\n  hint: is the controller running?"


@pytest.mark.parametrize(("name", "reason"), NEVER.items())
def test_these_are_not(name, reason):
    error = error_of(Failed(grpc.StatusCode[name]), target="t")
    assert (type(error), error.reason, str(error)) == (RefusalError, reason, "because")


@pytest.mark.parametrize("reason", [r for r in Refused if r.value not in ("forbidden", "unsupported")])
def test_a_refusal_crosses_the_wire(reason):
    error = RefusalError("no", reason=reason, hint="ask less")
    back = error_of(Failed(status_of(error), text_of(error)), target="t")
    assert "no (ask less)" in str(back)
    if reason is not Refused.EXHAUSTED:
        assert back.reason is reason


def test_other_errors():
    assert status_of(TransientError("x")) is grpc.StatusCode.UNAVAILABLE
    assert status_of(UsageError("x")) is grpc.StatusCode.INTERNAL
    assert "no details" in str(error_of(Failed(grpc.StatusCode.UNKNOWN, ""), target="t"))
