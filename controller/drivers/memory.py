"""A router in this process: a table that splits requests by weight and leaves drained replicas out.

It is no stand-in for one over a network: it is exact, cannot be away, and counts what it sent
where.  Programs that route by themselves use it as it is; tests of the loop do too.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from paritas.controller.drivers.driver import Applied, Observed, Outcome
from paritas.controller.drivers.weights import kernel_shares, replica_weights
from paritas.controller.routing.model import ALL, Fleet, Route, RouteKey

__all__ = ["MemoryRouter"]


class MemoryRouter:
    """Smooth weighted round robin over the replicas of a fleet.

    Before anything is applied, all requests go to the inference kernel.

    Attributes
    ----------
    sent : Counter of str
        Requests sent, by replica.

    Examples
    --------
    >>> import asyncio
    >>> from paritas.controller.routing.model import Replica
    >>> fleet = Fleet("p", (Replica("a", "inference"), Replica("b", "reference")))
    >>> router = MemoryRouter(fleet)
    >>> asyncio.run(router.apply([Route(RouteKey("p"), {"inference": 0.75, "reference": 0.25})]))[0].outcome.value
    'applied'
    >>> [router.route() for _ in range(4)]
    ['a', 'a', 'b', 'a']
    """

    name = "memory"

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._weights: dict[RouteKey, dict[str, int]] = {}
        self._credits: dict[RouteKey, Counter[str]] = {}
        self.sent: Counter[str] = Counter()
        self.table(
            {
                RouteKey(fleet.policy): replica_weights(
                    fleet, Route(RouteKey(fleet.policy), {"inference": 1.0})
                )
            }
        )

    def table(self, weights: Mapping[RouteKey, Mapping[str, int]]) -> None:
        """Replace the table: weight of each replica, by route."""
        self._weights = {key: dict(of) for key, of in weights.items()}
        self._credits = {key: Counter() for key in weights}

    def route(self, name: str = ALL) -> str:
        """Return the replica that the next request of a slice goes to."""
        key = RouteKey(self._fleet.policy, name)
        key = key if key in self._weights else RouteKey(self._fleet.policy)
        weights, credits_of = self._weights[key], self._credits[key]
        for replica, weight in weights.items():
            credits_of[replica] += weight
        chosen = max((r for r in weights if weights[r] > 0), key=lambda r: credits_of[r])
        credits_of[chosen] -= sum(weights.values())
        self.sent[chosen] += 1
        return chosen

    async def apply(self, routes: Sequence[Route]) -> Sequence[Applied]:
        """Take the routes at once."""
        self.table({route.key: replica_weights(self._fleet, route) for route in routes})
        return [Applied(route.key, Outcome.APPLIED) for route in routes]

    async def observe(self) -> Observed:
        """Say what the table holds."""
        shares = {key: kernel_shares(self._fleet, of) for key, of in self._weights.items()}
        serving = {name for of in self._weights.values() for name, weight in of.items() if weight > 0}
        return Observed(shares, serving=frozenset(serving))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to let go; the table stays."""
