"""Layers: the entries of many interleaved sequences in an order in which whole arrays can advance."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Layers", "Running", "along"]

Places = NDArray[np.int64]
Values = NDArray[Any]  # numbers of any kind: sums of floats, counts and times


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """How i entries fall to a instances, the fullest instance first.

    Attributes
    ----------
    instances : shape (a,), int64
        Instances by rank: the one with most entries first.
    order : shape (i,), int64
        Entries by rank of their instance, each instance's in the order in which they came.
    rank : shape (i,), int64
        Rank of each entry's instance, in that order.
    starts, stops : shape (a,), int64
        Entries of rank r are ``starts[r]:stops[r]`` in that order.
    layered : shape (i,), int64
        Places in that order, by layer: first entries by rank, then second ones, ...
    edges : shape (layers + 1,), int64
        Layer t is ``layered[edges[t]:edges[t + 1]]``, of the ranks from 0.
    last : shape (a,), int64
        Where the last entry of each rank stands in `layered`.
    """

    instances: Places
    order: Places
    rank: Places
    starts: Places
    stops: Places
    layered: Places
    edges: Places
    last: Places

    @classmethod
    def of(cls, instance: Places, instances: int) -> "Layers":
        """Order entries whose instances are `instance`; every instance has at least one.

        Examples
        --------
        >>> layers = Layers.of(np.array([0, 1, 1, 1, 0]), 2)
        >>> layers.order, layers.layered, list(layers.blocks())
        (array([1, 2, 3, 0, 4]), array([0, 3, 1, 4, 2]), [(0, 2), (2, 4), (4, 5)])
        """
        counts = np.bincount(instance, minlength=instances)
        ranked = np.argsort(-counts, kind="stable")
        counts, rank = counts[ranked], np.argsort(ranked)[instance]
        order = np.argsort(rank, kind="stable")
        stops = np.cumsum(counts)
        layer = np.arange(len(order)) - np.repeat(stops - counts, counts)
        layered = np.lexsort((rank[order], layer))
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(layer))])
        last = edges[counts - 1] + np.arange(instances)
        return cls(ranked, order, rank[order], stops - counts, stops, layered, edges, last)

    def blocks(self) -> Iterator[tuple[int, int]]:
        """First and last place of each layer."""
        return pairwise(self.edges.tolist())

    def by_instance(self, values: Values) -> Values:
        """Values that stand in layers, ordered by instance."""
        out = np.empty_like(values)
        out[self.layered] = values
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """A running sum or maximum: `before` and `after` each entry, shape (i, c), and at the `last`, (a, c)."""

    before: Values
    after: Values
    last: Values


def along(function: np.ufunc, start: Values, values: Values, layers: Layers) -> Running:
    """Accumulate `values`, ordered by instance, along each instance from its row of `start`.

    Examples
    --------
    >>> layers = Layers.of(np.array([0, 1, 1]), 2)
    >>> along(np.add, np.array([[10], [20]]), np.array([[1], [2], [3]]), layers).after.ravel()
    array([11, 13, 23])
    """
    shift = np.arange(len(start))
    whole = np.empty((len(values) + len(start), *values.shape[1:]), np.result_type(start, values))
    places = np.arange(len(values)) + 1 + layers.rank
    whole[layers.starts + shift], whole[places] = start, values
    for lo, hi in zip((layers.starts + shift).tolist(), (layers.stops + shift + 1).tolist(), strict=True):
        function.accumulate(whole[lo:hi], axis=0, out=whole[lo:hi])
    return Running(whole[places - 1], whole[places], whole[layers.stops + shift])
