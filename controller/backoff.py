"""How long to wait before the next try; pure."""

from dataclasses import dataclass
from random import Random

__all__ = ["Backoff", "delay_s"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits grow from `first_s` by `factor` up to `most_s`; give up after `tries` tries."""

    first_s: float = 0.1
    factor: float = 2.0
    most_s: float = 5.0
    tries: int = 6


def delay_s(backoff: Backoff, failures: int, *, random: Random) -> float:
    """Return the wait in seconds after `failures` failures in a row (from 1).

    Half of it is random, so that clients that failed together do not return together.

    Examples
    --------
    >>> [delay_s(Backoff(), n, random=Random(0)) <= 0.1 * 2 ** (n - 1) for n in (1, 2, 3)]
    [True, True, True]
    >>> delay_s(Backoff(), 10_000, random=Random(0)) <= 5.0
    True
    """
    steps = min(failures - 1, 64)  # a float holds this power; the cap is far below it
    whole_s = min(backoff.first_s * backoff.factor**steps, backoff.most_s)
    return whole_s * (0.5 + 0.5 * random.random())
