"""The bank: sequential state of all rows at once, folded unit by unit.

Arrays of shape (rows, k) or (rows,); one unit touches the rows of its slices in a few array
operations.  Units are folded one at a time, so cutting the input anywhere changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.pairs import Floats
from paritas.detectors.rows import GRID, Row
from paritas.detectors.sequential import LOG_CEILING, LOG_ZERO, StartMass, log_mean, restart

__all__ = ["Bank", "Crossings"]

RECOVERY_LOG_THRESHOLD = np.log(1e3)  # average run length of a false recovery: a thousand units
QUIET_UNITS = 1000  # the same patience where silence is the only sign of recovery


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
    violated : shape (rows,), bool
        Latched until recovery.
    quiet : shape (rows,), bool
        Rows that no reverse test lets recover; `clean` counts their units since the last alarm.
    log_alarm, log_pass, log_back, log_over : shape (rows, k), nats
        Wealth against "kept" from any unit on (alarm), against "exceeded" from the first (pass),
        against "still exceeded" from any (recovery), against "kept on average" from the first (shown limits).
    """

    def __init__(self, *, period_ns: int, recover: bool) -> None:
        self._period_ns = period_ns
        self._recover = recover
        self._mass = StartMass()
        self._k = GRID.size
        self.tau = np.zeros(0)
        self.log_threshold = np.zeros(0)
        self.certain = np.zeros(0, bool)
        self.quiet = np.zeros(0, bool)
        self.clean = np.zeros(0, np.int64)
        self.units = np.zeros(0, np.int64)
        self.tokens = np.zeros(0, np.int64)
        self.without = np.zeros(0, np.int64)
        self.total = np.zeros(0)
        self.spread = np.zeros(0)
        self.last_ns = np.zeros(0, np.int64)
        self.since_start = np.zeros(0, np.int64)
        self.violated = np.zeros(0, bool)
        self.log_alarm = np.zeros((0, self._k))
        self.log_pass = np.zeros((0, self._k))
        self.log_back = np.zeros((0, self._k))
        self.log_over = np.zeros((0, self._k))
        self.peak = np.zeros(0)

    def __len__(self) -> int:
        return len(self.tau)

    def add(self, row: Row) -> int:
        """Append the state of a new row; return its index."""
        self.tau = np.append(self.tau, row.tau)
        self.log_threshold = np.append(self.log_threshold, -np.log(row.alpha))
        self.certain = np.append(self.certain, row.counterexample)
        self.quiet = np.append(self.quiet, row.counterexample or not row.down.any())
        for name in ("units", "tokens", "without", "last_ns", "since_start", "clean"):
            setattr(self, name, np.append(getattr(self, name), 0))
        for name in ("total", "spread"):
            setattr(self, name, np.append(getattr(self, name), 0.0))
        self.violated = np.append(self.violated, False)
        self.peak = np.append(self.peak, LOG_ZERO)
        for name, start in (
            ("log_alarm", LOG_ZERO),
            ("log_pass", 0.0),
            ("log_back", LOG_ZERO),
            ("log_over", 0.0),
        ):
            setattr(self, name, np.vstack([getattr(self, name), np.full((1, self._k), start)]))
        return len(self) - 1

    def skip(self, rows: Sequence[int] | NDArray[np.int64]) -> None:
        """Count one unit that could not tell, for each of `rows`, which are distinct."""
        self.without[np.asarray(rows, dtype=np.int64)] += 1

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
        self._moments(rows, values)
        alarm = restart(self.log_alarm[rows], self._log_mass(rows, event_ns), growth)
        self.log_alarm[rows] = alarm
        self.log_pass[rows] = np.clip(self.log_pass[rows] + decline, -LOG_CEILING, LOG_CEILING)
        self.log_over[rows] = np.clip(self.log_over[rows] + growth, -LOG_CEILING, LOG_CEILING)
        wealth = log_mean(alarm)
        self.peak[rows] = np.maximum(self.peak[rows], wealth)
        broken = self.certain[rows] & (values > self.tau[rows])
        crossed = (~self.certain[rows] & (wealth >= self.log_threshold[rows])) | broken
        fresh = rows[crossed & ~self.violated[rows]]  # before recovery: its wealth is the closed incident's
        recovered = self._recovered(rows, decline, crossed) if self._recover else rows[:0]
        self.violated[fresh] = True
        return Crossings(fresh, recovered)

    def _recovered(
        self, rows: NDArray[np.int64], decline: Floats, crossed: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Rows that this unit lets recover: by certificate, or by quiet where nothing certifies."""
        done = np.concatenate([self._fold_recovery(rows, decline), self._fold_quiet(rows, crossed)])
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
        self.log_alarm[alarmed] = LOG_ZERO
        self.since_start[alarmed] = 0
        self.clean[rows] += 1
        return np.asarray(rows[self.violated[rows] & self.quiet[rows] & (self.clean[rows] >= QUIET_UNITS)])

    def _moments(self, rows: NDArray[np.int64], values: Floats) -> None:
        guess = (0.5 + self.total[rows]) / (self.units[rows] + 1)
        self.spread[rows] += (values - np.clip(guess, 0.0, 1.0)) ** 2
        self.total[rows] += values
        self.units[rows] += 1

    def _log_mass(self, rows: NDArray[np.int64], event_ns: int) -> Floats:
        self.since_start[rows] += 1
        index = self.since_start[rows]
        elapsed = np.where(index > 1, np.maximum(event_ns - self.last_ns[rows], 0), 0) / self._period_ns
        self.last_ns[rows] = np.maximum(self.last_ns[rows], event_ns)
        return np.asarray(np.log(self._mass.of(index, elapsed)))[:, None]

    def _fold_recovery(self, rows: NDArray[np.int64], decline: Floats) -> NDArray[np.int64]:
        """Reverse e-detector against "still exceeded", running while a row is violated."""
        if not self.violated[rows].any():
            return rows[:0]
        back = restart(self.log_back[rows], np.zeros((len(rows), 1)), decline)
        active = self.violated[rows][:, None]
        self.log_back[rows] = np.where(active, back, LOG_ZERO)
        bets = np.any(decline != 0.0, axis=1)
        done = self.violated[rows] & bets & (log_mean(self.log_back[rows]) >= RECOVERY_LOG_THRESHOLD)
        return np.asarray(rows[done & ~self.quiet[rows]])

    def restart_row(self, index: int) -> None:
        """Forget the incident and start testing afresh: certified recovery, or new weights."""
        self.violated[index] = False
        self.log_alarm[index] = LOG_ZERO
        self.log_back[index] = LOG_ZERO
        self.since_start[index] = 0
        self.peak[index] = LOG_ZERO
        self.restart_certificate(index)

    def restart_certificate(self, index: int) -> None:
        """Begin the PASS process and the shown limits again, as after a change of kernel."""
        self.log_pass[index] = self.log_over[index] = 0.0
        self.units[index] = self.tokens[index] = self.without[index] = 0
        self.total[index] = self.spread[index] = 0.0
