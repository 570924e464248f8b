"""Small things a proxy does with requests and responses of aiohttp."""

import json
from collections.abc import AsyncIterator

from aiohttp import web

from paritas.collectors.openai.naming import Names, Traceparent, traceparent_of
from paritas.collectors.openai.plans import Plan
from paritas.records import trace_id_of

__all__ = ["cut_off", "error_response", "read_at_most", "rest_of", "streamed", "trace_context", "write"]


async def write(response: web.StreamResponse, out: bytes, *, is_last: bool) -> None:
    """Send a piece, waiting while the client is slow; OSError when it left."""
    if out:
        await response.write(out)
    if is_last:
        await response.write_eof()


def cut_off(request: web.Request) -> None:
    """End a connection so that a half answer cannot pass for a whole one."""
    if request.transport is not None:
        request.transport.abort()


def error_response(status: int, kind: str, message: str) -> web.Response:
    """An error in the form of the OpenAI API."""
    body = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return web.json_response(body, status=status, dumps=json.dumps)


def streamed(request: web.Request) -> AsyncIterator[bytes] | None:
    """Return the body as it comes; None where there is none."""
    return request.content.iter_any() if request.body_exists else None


async def rest_of(read: bytes, request: web.Request) -> AsyncIterator[bytes]:
    """Yield what was read of a body, then what is still to come."""
    yield read
    async for piece in request.content.iter_any():
        yield piece


async def read_at_most(request: web.Request, limit_bytes: int) -> tuple[bytes, bool]:
    """Return the body, and whether it is whole; at most one piece beyond the limit is read."""
    read = bytearray()
    async for piece in request.content.iter_any():
        read += piece
        if len(read) > limit_bytes:
            return bytes(read), False
    return bytes(read), True


def trace_context(request: web.Request, names: Names, plan: Plan, fresh: str) -> tuple[str, str]:
    """Return the ``traceparent`` for the engine, and the one our span links to.

    A client's own context is kept.  Ours is the trace of the sequence where the client named it,
    so that the engine's spans stand in it; without a name the trace is only known with the answer,
    and a link leads from one to the other.
    """
    if (given := traceparent_of(request.headers.get("traceparent", ""))) is not None:
        return request.headers["traceparent"], str(given)
    if names.sequence_id and not plan.is_many:
        return str(Traceparent(trace_id_of(names.run_id, names.sequence_id), fresh[:16])), ""
    made = str(Traceparent(fresh, fresh[:16]))
    return made, made
