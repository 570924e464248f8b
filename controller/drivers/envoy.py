"""Envoy, driven by runtime discovery: weights of replicas and shares of shadow traffic, acknowledged.

`envoy_config.bootstrap` writes the Envoy configuration that obeys it.  When the controller is lost
Envoy keeps the newest layer: a fleet whose fail mode is ``fallback`` needs a gateway that resolves
by lease (`controller.route_client`).
"""

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import grpc

from paritas.clock import Clock
from paritas.controller.calls import Calls
from paritas.controller.config import check_listen
from paritas.controller.drivers.driver import Applied, Observed, Outcome
from paritas.controller.drivers.envoy_keys import layer_of, observed_shares
from paritas.controller.drivers.envoy_stream import Acks, RuntimeStreams
from paritas.controller.drivers.outcomes import outcomes
from paritas.controller.routing.model import ALL, Fleet, Route, RouteKey
from paritas.errors import TransientError, UsageError
from paritas.listen_probe import why_not_free

__all__ = ["RESOURCE", "EnvoyDriver", "EnvoySettings"]

RESOURCE = "paritas"


@dataclass(frozen=True, slots=True)
class EnvoySettings:
    """Where Envoys find the runtime layer, and how long one may take to acknowledge it.

    Attributes
    ----------
    listen : str
        ``host:port`` of this machine or ``unix:/path``; port 0 picks one.
    ack_s : float
        An Envoy that did not answer within it is reported as not having applied.
    """

    listen: str = "127.0.0.1:4321"
    ack_s: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot work; Envoy beside the controller needs no other address."""
        check_listen(self.listen, None)
        if not self.ack_s > 0:
            raise UsageError(f"ack_s: must be positive, got {self.ack_s!r}")


class EnvoyDriver:
    """One layer for every Envoy that connects.

    Parameters
    ----------
    settings : EnvoySettings
        Address and patience.
    fleet : Fleet
        Its replicas are Envoy clusters (`envoy_keys.cluster_name`).
    clock : Clock
        For the time an acknowledgement took.

    Attributes
    ----------
    target : str
        What Envoys connect to.
    """

    name = "envoy"

    def __init__(self, settings: EnvoySettings, fleet: Fleet, clock: Clock) -> None:
        self._settings, self._fleet, self._clock = settings, fleet, clock
        self._streams = RuntimeStreams(RESOURCE)
        self._wanted: dict[RouteKey, Route] = {}
        self._stack = AsyncExitStack()
        self.target = ""

    async def __aenter__(self) -> Self:
        calls = Calls()
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),), interceptors=(calls,))
        server.add_generic_rpc_handlers((self._streams.handler(),))
        self.target = _bound(server, self._settings.listen)
        await server.start()
        self._stack.push_async_callback(calls.stop, server, 0.0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def connected(self, *, timeout_s: float) -> tuple[str, ...]:
        """Wait until an Envoy follows, at most `timeout_s`; return the names of all that do."""
        await self._streams.joined(timeout_s=timeout_s)
        return self._streams.connected

    async def apply(self, routes: Sequence[Route]) -> Sequence[Applied]:
        """Publish the layer of `routes` and wait for every Envoy's answer."""
        known, strange = self._split(routes)
        self._wanted = {route.key: route for route in known}
        version = self._streams.publish(layer_of(self._fleet, known))

        async def acknowledged() -> tuple[Outcome, str]:
            return _outcome(await self._streams.taken(version, timeout_s=self._settings.ack_s), self.target)

        return await outcomes(routes, strange, acknowledged, clock=self._clock)

    async def observe(self) -> Observed:
        """Say what the Envoys acknowledged.

        Raises
        ------
        TransientError
            No Envoy follows, or not all hold the newest layer.
        """
        acks = await self._streams.taken(self._streams.version, timeout_s=self._settings.ack_s)
        outcome, detail = _outcome(acks, self.target)
        if outcome is not Outcome.APPLIED:
            raise TransientError(f"envoy: {detail}")
        return self._read()

    def _read(self) -> Observed:
        read = {key: observed_shares(self._fleet, self._streams.layer, key) for key in self._wanted}
        return Observed(
            {key: weights for key, (weights, _, _) in read.items()},
            {key: shadow for key, (_, shadow, _) in read.items()},
            frozenset().union(*(names for _, _, names in read.values())),
        )

    def _split(self, routes: Iterable[Route]) -> tuple[list[Route], dict[RouteKey, str]]:
        """Tell the routes Envoy can match from those whose slice has no header."""
        known, strange = [], {}
        for route in routes:
            if route.key.policy == self._fleet.policy and route.key.slice in {ALL, *self._fleet.slices}:
                known.append(route)
            else:
                strange[route.key] = f"no header is declared for slice {route.key.slice!r}"
        return known, strange


def _bound(server: grpc.aio.Server, listen: str) -> str:
    if reason := why_not_free(listen):
        raise UsageError(f"envoy: cannot bind {listen!r}: {reason}", hint="choose another address")
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise UsageError(f"envoy: cannot bind {listen!r}", hint="choose another address") from error
    return listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"


def _outcome(acks: Acks, target: str) -> tuple[Outcome, str]:
    """One answer for all Envoys: applied only if every one holds the layer."""
    if acks.refused:
        return Outcome.FAILED, "; ".join(f"{node} refused: {why}" for node, why in acks.refused.items())
    if acks.silent:
        return Outcome.ACCEPTED, f"not yet acknowledged by {', '.join(acks.silent)}"
    if not acks.held:
        return Outcome.FAILED, f"no Envoy is connected to {target}"
    return Outcome.APPLIED, f"held by {', '.join(acks.held)}"
