"""The calls a gRPC server is answering, so that whoever stops it can wait for their ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

__all__ = ["Calls"]

_ENDING_S = 1.0  # after their cancellation; a handler that does not end must not keep the process


class Calls(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc ships no types
    """Knows the task of every call that is being answered.

    `grpc.aio.Server.stop` returns when the calls are cancelled, not when their handlers have ended; a loop that
    closes between the two makes gRPC print the traceback of each.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Note the call's task; change nothing."""
        task = asyncio.current_task()
        assert task is not None, "gRPC answers each call in a task of its own"
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await continuation(handler_call_details)

    async def stop(self, server: Any, grace_s: float) -> None:
        """Stop `server`, whose calls these are, and wait until their handlers have ended."""
        await server.stop(grace_s)
        if self._running:
            await asyncio.wait(self._running, timeout=_ENDING_S)
