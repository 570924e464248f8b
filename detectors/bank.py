"""The bank: sequential state of all rows at once, folded unit by unit.

Arrays of shape (rows, k) or (rows,); one unit touches the rows of its slices in a few array
operations.  Units are folded one at a time, so cutting the input anywhere changes nothing;
`detectors.runs` folds many units at once, to the same bits, as long as no row changes its state.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.pairs import Floats
from paritas.detectors.rows import GRID, Row
from paritas.detectors.sequential import CEILING, StartMass, grown, log_mean, mean_wealth, scaled

__all__ = ["Bank", "Crossings", "multipliers_of", "squared_distance"]

RECOVERY_LOG_THRESHOLD = np.log(1e3)  # average run length of a false recovery: a thousand units
RECOVERY_WEALTH = 1e3
QUIET_UNITS = 1000  # the same patience where silence is the only sign of recovery
COUNTS = ("units", "tokens", "without", "last_ns", "since_start", "clean")
SUMS = ("total", "spread", "best")
WEALTH = {"alarm": 0.0, "passing": 1.0, "back": 0.0, "over": 1.0}


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Rows whose state one unit changed.

    Attributes
    ----------
    violated, recovered : shape (r,), int64
        Row indices.
    """

    violated: NDArray[np.int64]
    recovered: NDArray[np.int64]


def multipliers_of(log_factors: Floats) -> Floats:
    """Factors from nats, at most `CEILING`."""
    with np.errstate(over="ignore"):
        return np.minimum(np.exp(log_factors), CEILING)


class Bank:
    """Sequential state of many rows.

    Parameters
    ----------
    period_ns : int
        Period of the false-alarm budget.
    recover : bool
        Whether a violated row may recover by a certificate; recordings are judged as a whole
        and stay violated.

    Attributes
    ----------
    units : shape (rows,), int64
        Units folded in.
    total, spread : shape (rows,), float64
        Sum of values and sum of squared distances from the running predictable mean (D16), on the
        test's scale.
    best : shape (rows,), float64
        Largest mixture wealth against "kept" since the test began.
    violated : shape (rows,), bool
        Latched until recovery.
    quiet : shape (rows,), bool
        Rows that no reverse test lets recover; `clean` counts their units since the last alarm.
    alarm, passing, back, over : shape (rows, k)
        Wealth against "kept" from any unit on (alarm), against "exceeded" from the first (pass),
        against "still exceeded" from any (recovery), against "kept on average" from the first (shown limits).
    """

    def __init__(self, *, period_ns: int, recover: bool) -> None:
        self.period_ns = period_ns
        self.recover = recover
        self.mass = StartMass()
        self.tau, self.alpha = np.zeros(0), np.zeros(0)
        self.certain, self.quiet, self.violated = (np.zeros(0, bool) for _ in range(3))
        self.units, self.tokens, self.without = (np.zeros(0, np.int64) for _ in range(3))
        self.last_ns, self.since_start, self.clean = (np.zeros(0, np.int64) for _ in range(3))
        self.total, self.spread, self.best = (np.zeros(0) for _ in range(3))
        self.alarm, self.passing, self.back, self.over = (np.zeros((0, GRID.size)) for _ in range(4))

    def __len__(self) -> int:
        return len(self.tau)

    def add(self, row: Row) -> int:
        """Append the state of a new row; return its index."""
        self.tau = np.append(self.tau, row.tau)
        self.alpha = np.append(self.alpha, row.alpha)
        self.certain = np.append(self.certain, row.counterexample)
        self.quiet = np.append(self.quiet, row.counterexample or not row.down.any())
        self.violated = np.append(self.violated, False)
        for name in (*COUNTS, *SUMS):
            setattr(self, name, np.append(getattr(self, name), getattr(self, name).dtype.type(0)))
        for name, start in WEALTH.items():
            setattr(self, name, np.vstack([getattr(self, name), np.full((1, GRID.size), start)]))
        return len(self) - 1

    @property
    def log_threshold(self) -> Floats:
        """Evidence at which each row alarms, shape (rows,), nats."""
        return np.asarray(-np.log(self.alpha))

    @property
    def peak(self) -> Floats:
        """Largest evidence against "kept" since the test began, shape (rows,), nats."""
        return _logs(self.best)

    @property
    def log_alarm(self) -> Floats:
        """`alarm` in nats."""
        return _logs(self.alarm)

    @property
    def log_pass(self) -> Floats:
        """`passing` in nats."""
        return _logs(self.passing)

    @property
    def log_back(self) -> Floats:
        """`back` in nats."""
        return _logs(self.back)

    @property
    def log_over(self) -> Floats:
        """`over` in nats."""
        return _logs(self.over)

    def evidence(self, name: str, index: int) -> float:
        """Mixture evidence of one row, nats; `name` is one of `alarm`, `passing`, `back`, `over`."""
        return float(log_mean(_logs(getattr(self, name)[index : index + 1]))[0])

    def fold(
        self, rows: NDArray[np.int64], values: Floats, growth: Floats, decline: Floats, event_ns: int
    ) -> Crossings:
        """Fold one unit in and return the rows whose state it changed.

        Parameters
        ----------
        rows : shape (r,), int64
            Rows the unit belongs to and has a value for, each once.
        values : shape (r,)
            On the test's scale.
        growth, decline : shape (r, k), nats
            Log-factors of the bets against "kept" and against "exceeded".
        """
        return self.multiply(rows, values, multipliers_of(growth), multipliers_of(decline), event_ns)

    def multiply(
        self, rows: NDArray[np.int64], values: Floats, up: Floats, down: Floats, event_ns: int
    ) -> Crossings:
        """Do the same with the factors themselves, which are at most `CEILING`."""
        self._moments(rows, values)
        alarm = grown(self.alarm[rows], self._mass(rows, event_ns)[:, None], up)
        self.alarm[rows] = alarm
        self.passing[rows] = scaled(self.passing[rows], down)
        self.over[rows] = scaled(self.over[rows], up)
        wealth = mean_wealth(alarm, axis=1)
        self.best[rows] = np.maximum(self.best[rows], wealth)
        crossed = self.crosses(rows, values, wealth)
        fresh = rows[crossed & ~self.violated[rows]]  # before recovery: its wealth is the closed incident's
        recovered = self._recovered(rows, down, crossed) if self.recover else rows[:0]
        self.violated[fresh] = True
        return Crossings(fresh, recovered)

    def crosses(self, rows: NDArray[np.int64], values: Floats, wealth: Floats) -> NDArray[np.bool_]:
        """Whether a unit's value or wealth is an alarm, for rows, values and wealth of one shape."""
        certain = self.certain[rows]
        return np.where(certain, values > self.tau[rows], wealth >= 1.0 / self.alpha[rows])

    def _recovered(
        self, rows: NDArray[np.int64], down: Floats, crossed: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Rows that this unit lets recover: by certificate, or by quiet where nothing certifies."""
        done = np.concatenate([self._fold_recovery(rows, down), self._fold_quiet(rows, crossed)])
        for index in done:
            self.restart_row(int(index))
        return done

    def _fold_quiet(self, rows: NDArray[np.int64], crossed: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Rows without a reverse test recover after `QUIET_UNITS` units without a new alarm.

        Each alarm, also one while violated, starts their test afresh, so that an ongoing fault
        goes on alarming and an ended one falls silent.
        """
        alarmed = rows[crossed & self.quiet[rows]]
        self.clean[alarmed] = -1
        self.alarm[alarmed] = 0.0
        self.since_start[alarmed] = 0
        self.clean[rows] += 1
        return np.asarray(rows[self.violated[rows] & self.quiet[rows] & (self.clean[rows] >= QUIET_UNITS)])

    def _moments(self, rows: NDArray[np.int64], values: Floats) -> None:
        self.spread[rows] += squared_distance(values, self.total[rows], self.units[rows])
        self.total[rows] += values
        self.units[rows] += 1

    def _mass(self, rows: NDArray[np.int64], event_ns: int) -> Floats:
        self.since_start[rows] += 1
        mass = self.start_mass(self.since_start[rows], event_ns - self.last_ns[rows])
        self.last_ns[rows] = np.maximum(self.last_ns[rows], event_ns)
        return mass

    def start_mass(self, number: NDArray[np.int64], since_ns: NDArray[np.int64]) -> Floats:
        """Mass that may start at a row's unit `number`, `since_ns` after the one before."""
        elapsed = np.where(number > 1, np.maximum(since_ns, 0), 0) / self.period_ns
        return self.mass.of(number, elapsed)

    def _fold_recovery(self, rows: NDArray[np.int64], down: Floats) -> NDArray[np.int64]:
        """Reverse e-detector against "still exceeded", running while a row is violated."""
        if not self.violated[rows].any():
            return rows[:0]
        active = self.violated[rows]
        self.back[rows] = np.where(active[:, None], grown(self.back[rows], np.ones(1), down), 0.0)
        bets = np.any(down != 1.0, axis=1)
        done = active & bets & (mean_wealth(self.back[rows], axis=1) >= RECOVERY_WEALTH)
        return np.asarray(rows[done & ~self.quiet[rows]])

    def restart_row(self, index: int) -> None:
        """Forget the incident and start testing afresh: certified recovery, or new weights."""
        self.violated[index] = False
        self.alarm[index] = self.back[index] = 0.0
        self.since_start[index] = 0
        self.best[index] = 0.0
        self.restart_certificate(index)

    def restart_certificate(self, index: int) -> None:
        """Begin the PASS process and the shown limits again, as after a change of kernel."""
        self.passing[index] = self.over[index] = 1.0
        self.units[index] = self.tokens[index] = self.without[index] = 0
        self.total[index] = self.spread[index] = 0.0


def squared_distance(values: Floats, total: Floats, units: NDArray[np.int64]) -> Floats:
    """(value - predictable mean)^2 from the sum and number of the values before (D16)."""
    return np.asarray((values - np.clip((0.5 + total) / (units + 1), 0.0, 1.0)) ** 2)


def _logs(wealth: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(wealth))
