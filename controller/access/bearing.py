"""A client's channel that shows a token with every call, also where there is no TLS (this machine)."""

from collections import namedtuple
from pathlib import Path
from typing import Any

import grpc

from paritas.controller.secret_files import bearer

__all__ = ["bearing"]


class _Details(
    namedtuple(  # noqa: PYI024  # grpc asks for its own class, which is a named tuple
        "_Details", ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")
    ),
    grpc.ClientCallDetails,  # type: ignore[misc]  # grpc ships no types
):
    """What one call is made with."""


class _Bearer(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]  # grpc ships no types
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]  # the same
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]  # the same
):
    """Reads the file for every call: a token that was renewed on disk is the one shown."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._with_token(details), request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._with_token(details), request)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(self._with_token(details), requests)

    def _with_token(self, details: Any) -> _Details:
        shown = [(name.lower(), value) for name, value in bearer(self._file).items()]
        metadata = [*(details.metadata or ()), *shown]
        return _Details(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )


def bearing(channel: Any, token_file: Path | None) -> Any:
    """Return `channel`, showing the token in `token_file` if there is one.

    Raises
    ------
    UsageError
        Now and from any call: the file cannot be read.
    """
    if token_file is None:
        return channel
    bearer(token_file)
    return grpc.intercept_channel(channel, _Bearer(token_file))
