"""The two directions of one stream; one write at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from paritas.proto.v1 import escalation_pb2 as pb

__all__ = ["GoneError", "Link"]


class GoneError(Exception):
    """The other end has left; there is nobody to tell anything any more."""


class Link:
    """Wraps the context of a streaming call.

    Parameters
    ----------
    context : grpc.aio.ServicerContext
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._turn = asyncio.Lock()

    async def read(self) -> pb.ClientMsg | None:
        """Return the next message; None when the client sends no more.

        Raises
        ------
        GoneError
            The client has left; `write` and `finish` raise it too.
        """
        message = await _reached(self._context.read())
        return None if message is grpc.aio.EOF else message

    async def write(self, make: Callable[[], pb.ServerMsg]) -> None:
        """Send what `make` returns once it is this message's turn; waits while the client does not read.

        Made at its turn, a heartbeat never names an older place than the event before it.
        """
        async with self._turn:
            await _reached(self._context.write(make()))

    async def finish(self, make: Callable[[], pb.ServerMsg] | None, *, timeout_s: float) -> bool:
        """Send the last message, after which nothing is sent; False if the client does not read."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._turn.acquire()  # for good
                if make is not None:
                    await _reached(self._context.write(make()))
        except TimeoutError:
            return False
        return True


async def _reached(operation: Awaitable[Any]) -> Any:
    """Await `operation`; gRPC fails a write of a client that left before it cancels the call."""
    try:
        return await operation
    except grpc.aio.BaseError as error:
        raise GoneError from error
