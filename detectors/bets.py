"""Bets: by what one unit multiplies the wealth of each bet of each row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paritas.detectors.pairs import Floats
from paritas.detectors.rows import Row
from paritas.detectors.sequential import CEILING

__all__ = ["Bets", "factors", "multipliers"]


@dataclass(frozen=True, slots=True, eq=False)
class Bets:
    """The bets of c rows, k each way, as ``base + up x`` and ``1 - down min(x, ceiling)``.

    ``x`` is the value's distance from the limit.  Bets on a signed mean play "above the limit" with
    a positive sign and "below its opposite" with a negative one; their ``x`` is the value itself.

    Attributes
    ----------
    base, up, down : shape (k, c)
    zero, width, ceiling : shape (c,)
        ``x = width * value + zero``, value on the test's scale.
    """

    base: Floats
    up: Floats
    down: Floats
    zero: Floats
    width: Floats
    ceiling: Floats

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Bets":
        """Collect the bets of `rows`, of which there is at least one."""
        signed = np.array([row.two_sided for row in rows])
        tau, limit = (np.array([getattr(row, name) for row in rows]) for name in ("tau", "limit"))
        up = np.stack([row.up for row in rows], axis=1)
        return cls(
            np.where(signed, 1.0 - np.abs(up) * limit, 1.0),
            up,
            np.stack([row.down for row in rows], axis=1),
            np.where(signed, [row.scale.zero for row in rows], -tau),
            np.where(signed, [row.scale.width for row in rows], 1.0),
            np.where(signed, np.inf, np.maximum(1.0 - tau, 0.0)),
        )

    def multiply(self, values: Floats) -> Floats:
        """Factors against "kept" and against "exceeded" for values of shape (n, c), shape (n, 2, k, c).

        1 where a value is NaN; between 0 and `CEILING`.
        """
        unknown = np.isnan(values)
        x = (self.width * np.where(unknown, 0.0, values) + self.zero)[:, None, :]
        out = np.empty((len(values), 2, *self.up.shape))
        with np.errstate(over="ignore"):
            out[:, 0] = self.base + self.up * x
            out[:, 1] = 1.0 - self.down * np.minimum(x, self.ceiling)
        np.clip(out, 0.0, CEILING, out=out)
        if unknown.any():
            np.copyto(out, 1.0, where=unknown[:, None, None, :])
        return out


def multipliers(row: Row, values: Floats) -> tuple[Floats, Floats]:
    """Factors of a row's bets for scaled values of shape (n,): two (n, k) arrays."""
    both = Bets.of([row]).multiply(values[:, None])
    return both[:, 0, :, 0], both[:, 1, :, 0]


def factors(row: Row, values: Floats) -> tuple[Floats, Floats]:
    """Do the same in nats."""
    up, down = multipliers(row, values)
    with np.errstate(divide="ignore"):
        return np.log(up), np.log(down)
