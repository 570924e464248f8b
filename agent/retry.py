"""How long to wait before the next try, and how fast records may leave; pure."""

from dataclasses import dataclass
from random import Random

__all__ = ["Backoff", "RateCap", "delay_s"]

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits grow from `first_s` to `most_s` by doubling; nobody gives up."""

    first_s: float = 0.5
    most_s: float = 30.0


def delay_s(backoff: Backoff, failures: int, *, random: Random) -> float:
    """Return the wait in seconds after `failures` failures in a row (from 1): full jitter.

    Uniform between nothing and the whole, so that a thousand agents that lost one broker
    together spread over the whole window when it comes back.

    Examples
    --------
    >>> all(delay_s(Backoff(), n, random=Random(1)) <= min(30.0, 0.5 * 2 ** (n - 1)) for n in range(1, 99))
    True
    """
    steps = min(failures - 1, 64)  # a float holds this power; the cap is far below it
    return random.uniform(0.0, min(backoff.first_s * 2.0**steps, backoff.most_s))


class RateCap:
    """A bucket that fills at `per_s` and holds one second of it; a larger batch leaves a debt.

    Examples
    --------
    >>> cap = RateCap(100.0, now_ns=0)
    >>> cap.wait_s(now_ns=0), cap.spend(250), cap.wait_s(now_ns=0), cap.wait_s(now_ns=1_500_000_000)
    (0.0, None, 1.5, 0.0)
    """

    def __init__(self, per_s: float, *, now_ns: int) -> None:
        self._per_s, self._filled_ns, self._room = per_s, now_ns, per_s

    def wait_s(self, *, now_ns: int) -> float:
        """Return the seconds until something may be spent; 0 if it may now, or without a cap."""
        if not self._per_s:
            return 0.0
        grown = self._room + self._per_s * (now_ns - self._filled_ns) / NS
        self._room, self._filled_ns = min(self._per_s, grown), now_ns
        return max(0.0, -self._room / self._per_s)

    def spend(self, amount: float) -> None:
        """Take from the bucket."""
        self._room -= amount
