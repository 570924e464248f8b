"""The routing loop as a part of the escalation server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from paritas.controller.core import Core
from paritas.controller.route_service import RouteService
from paritas.controller.routing.loop import RoutingLoop
from paritas.proto.v1 import route_pb2_grpc as pb_grpc

__all__ = ["routing"]


@asynccontextmanager
async def routing(core: Core, server: Any) -> AsyncIterator[RoutingLoop]:
    """Add the service to a gRPC server that is not started yet, and run the loop during the block.

    Raises
    ------
    UsageError
        What is declared cannot work, or a router's driver cannot be opened.
    """
    async with RoutingLoop(
        core.config.routes, store=core.store, hub=core.hub, silences=core.silences, clock=core.clock
    ) as loop:
        service = RouteService(loop, store=core.store, clock=core.clock)
        pb_grpc.add_RouteServiceServicer_to_server(service, server)
        yield loop
