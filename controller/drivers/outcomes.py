"""What drivers answer with: one outcome for every route, from one attempt at all of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from paritas.clock import NS_PER_S, Clock
from paritas.controller.drivers.driver import Applied, Outcome
from paritas.controller.routing.model import Route, RouteKey
from paritas.errors import TransientError

__all__ = ["outcomes"]

Move = Callable[[], Awaitable[tuple[Outcome, str]]]


async def outcomes(
    routes: Sequence[Route], unsupported: Mapping[RouteKey, str], move: Move, *, clock: Clock
) -> list[Applied]:
    """Run `move` and say of every route what became of it, in their order; what was `unsupported` says why."""
    started_ns = clock.monotonic_ns()
    try:
        outcome, detail = await move()
    except TransientError as error:
        outcome, detail = Outcome.FAILED, str(error)
    took_s = (clock.monotonic_ns() - started_ns) / NS_PER_S
    return [
        Applied(route.key, Outcome.UNSUPPORTED, unsupported[route.key])
        if route.key in unsupported
        else Applied(route.key, outcome, detail, took_s)
        for route in routes
    ]
