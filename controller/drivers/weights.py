"""Shares of kernels as whole weights of replicas: what a router can be told."""

from collections.abc import Mapping, Sequence

from paritas.controller.routing.model import Fleet, Replica, Route

__all__ = ["TOTAL_WEIGHT", "kernel_shares", "replica_weights", "serving", "whole"]

TOTAL_WEIGHT = 10_000  # a hundredth of a percent


def serving(fleet: Fleet, route: Route) -> dict[str, tuple[Replica, ...]]:
    """Return the replicas of each kernel that may take requests of `route`, in the fleet's order."""
    kernels: dict[str, tuple[Replica, ...]] = {replica.kernel: () for replica in fleet.replicas}
    for replica in fleet.replicas:
        if replica.name not in route.drained:
            kernels[replica.kernel] += (replica,)
    return kernels


def replica_weights(fleet: Fleet, route: Route, *, total: int = TOTAL_WEIGHT) -> dict[str, int]:
    """Split each kernel's share evenly over its replicas in rotation; drained ones get 0.

    The share of a kernel that has no replica in rotation goes to the others in proportion, so that
    no request is sent to nobody.

    Returns
    -------
    dict of str to int
        Weight by the replica's name, in the fleet's order; they sum to `total`, or are all 0 when
        no replica with a share is in rotation.

    Examples
    --------
    >>> from paritas.controller.routing.model import RouteKey
    >>> fleet = Fleet("p", (Replica("a", "inference"), Replica("b", "inference"), Replica("c", "reference")))
    >>> route = Route(RouteKey("p"), {"inference": 0.75, "reference": 0.25}, drained=frozenset({"b"}))
    >>> replica_weights(fleet, route)
    {'a': 7500, 'b': 0, 'c': 2500}
    """
    kernels = serving(fleet, route)
    shares = {
        replica.name: route.weights.get(kernel, 0.0) / len(replicas)
        for kernel, replicas in kernels.items()
        for replica in replicas
    }
    counted = dict(zip(shares, whole(list(shares.values()), total), strict=True))
    return {replica.name: counted.get(replica.name, 0) for replica in fleet.replicas}


def whole(shares: Sequence[float], total: int) -> list[int]:
    """Round `shares` to whole numbers that sum to `total` (largest remainder); all 0 if the shares are.

    Examples
    --------
    >>> whole([1 / 3, 1 / 3, 1 / 3], 100)
    [34, 33, 33]
    """
    mass = sum(shares)
    if mass <= 0.0:
        return [0] * len(shares)
    exact = [share / mass * total for share in shares]
    weights = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (weights[i] - exact[i], i))
    for i in by_remainder[: total - sum(weights)]:
        weights[i] += 1
    return weights


def kernel_shares(fleet: Fleet, weights: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each kernel, from weights by replica; empty when nothing has a weight."""
    total = sum(weights.values())
    shares = {replica.kernel: 0.0 for replica in fleet.replicas}
    for replica in fleet.replicas:
        shares[replica.kernel] += weights.get(replica.name, 0.0)
    return {kernel: share / total for kernel, share in shares.items()} if total > 0 else {}
