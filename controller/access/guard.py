"""The guard in front of every gRPC method: who calls, and is that enough."""

import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import Message

from paritas.controller.access.authors import sign
from paritas.controller.access.callers import Callers
from paritas.controller.access.grants import Grant, Grants
from paritas.controller.access.roles import Role, may, needed_by

__all__ = ["Guard"]

log = logging.getLogger(__name__)


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc ships no types
    """Lets a call through when a token or a certificate grants the role its method takes.

    Parameters
    ----------
    grants : Grants
        Who may do what.
    counts : Counter, optional
        Somebody else's, to count in.

    Attributes
    ----------
    counts : Counter
        Calls turned away: ``unknown`` and ``forbidden``.
    """

    def __init__(self, grants: Grants, counts: Counter[str] | None = None) -> None:
        self._callers = Callers(grants)
        self.counts: Counter[str] = Counter() if counts is None else counts

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Wrap the method's handler; a method that does not exist stays so."""
        handler = await continuation(handler_call_details)
        needed = needed_by(handler_call_details.method)
        return handler if handler is None or needed is None else self._guarded(handler, needed)

    def _guarded(self, handler: Any, needed: Role) -> Any:
        """Make the same kind of handler with the check before its behaviour."""
        kind = (
            "stream" if handler.request_streaming else "unary",
            "stream" if handler.response_streaming else "unary",
        )
        name = "_".join(kind)
        make = getattr(grpc, f"{name}_rpc_method_handler")
        behaviour = self._checked(getattr(handler, name), needed)
        return make(behaviour, handler.request_deserializer, handler.response_serializer)

    def _checked(self, behaviour: Callable[..., Any], needed: Role) -> Callable[..., Any]:
        async def call(request: Any, context: Any) -> Any:
            grant = await self._admit(context, needed)
            if isinstance(request, Message):  # else a stream of them, in which nobody names himself
                sign(request, grant.name)
            return await behaviour(request, context)

        async def stream(request: Any, context: Any) -> Any:
            await self._admit(context, needed)
            async for response in behaviour(request, context):
                yield response

        return stream if inspect.isasyncgenfunction(behaviour) else call

    async def _admit(self, context: Any, needed: Role) -> Grant:
        """Return the caller's grant, or abort unless it holds `needed`; the answer never says which names exist."""
        grant = self._callers.grant(context)
        if grant is None:
            self.counts["unknown"] += 1
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED, "no token or certificate of a known name was shown"
            )
        elif not may(grant.role, needed):
            self.counts["forbidden"] += 1
            log.warning("Call was refused.", extra={"caller": grant.name, "needs": needed.value})
            detail = f"{grant.name} is {grant.role.value}; this takes {needed.value}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, detail)
        assert grant is not None  # `abort` raises
        return grant
