"""gRPC status codes to and from our errors; the only place that knows both."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

import grpc

from paritas.controller.refusals import RefusalError, Refused
from paritas.errors import ParitasError, TransientError

__all__ = ["answered", "error_of", "status_of", "text_of"]

T = TypeVar("T")

_CODES = {
    Refused.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Refused.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Refused.OUT_OF_RANGE: grpc.StatusCode.OUT_OF_RANGE,
    Refused.EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refused.PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    Refused.REPLACED: grpc.StatusCode.ABORTED,
    Refused.DAMAGED: grpc.StatusCode.DATA_LOSS,
}
_REASONS = {code: reason for reason, code in _CODES.items()} | {
    grpc.StatusCode.UNAUTHENTICATED: Refused.FORBIDDEN,
    grpc.StatusCode.PERMISSION_DENIED: Refused.FORBIDDEN,
    grpc.StatusCode.UNIMPLEMENTED: Refused.UNSUPPORTED,
}
# A full server empties again; everything not named a refusal may work later.
_LATER = frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED})


def status_of(error: ParitasError) -> grpc.StatusCode:
    """Return the status that carries `error`."""
    if isinstance(error, RefusalError):
        return _CODES.get(error.reason, grpc.StatusCode.INTERNAL)
    return grpc.StatusCode.UNAVAILABLE if isinstance(error, TransientError) else grpc.StatusCode.INTERNAL


def text_of(error: ParitasError) -> str:
    """Return the details of the status: message, then hint.

    Examples
    --------
    >>> text_of(TransientError("disk full", hint="free some"))
    'disk full (free some)'
    """
    return f"{error} ({error.hint})" if error.hint else str(error)


def error_of(error: grpc.RpcError, *, target: str) -> ParitasError:
    """Return our error for a failed call: a refusal, or one worth trying again."""
    code, details = error.code(), error.details() or "no details"
    reason = _REASONS.get(code)
    if reason is None or code in _LATER:
        return TransientError(f"{target}: {code.name}: {details}", hint=_hint(details))
    return RefusalError(details, reason=reason)


def _hint(details: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return "it runs; does --ca name the authority of its certificate?"
    return "is the controller running?"


def answered(method: Callable[[Any, Any, Any], Awaitable[T]]) -> Callable[[Any, Any, Any], Awaitable[T]]:
    """Make a method of the service answer our errors with their status."""

    @wraps(method)
    async def call(service: Any, request: Any, context: Any) -> T:
        try:
            return await method(service, request, context)
        except ParitasError as error:
            await context.abort(status_of(error), text_of(error))
            raise  # not reached: abort raises

    return call
