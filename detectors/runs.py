"""Runs: many units folded into the bank at once, to the bits of folding them one by one.

A unit touches at most one instance of each declared slice, so the work of a slice falls apart into
its instances.  Sums and maxima run along each instance; wealth, which is cut at both ends after
every unit, advances in layers: the first unit of every instance, then the second of every one that
has a second.  Nothing is written where a row would change its state: that unit is for `Bank.multiply`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.bank import QUIET_UNITS, RECOVERY_WEALTH, Bank, Crossings, squared_distance
from paritas.detectors.layers import Layers, along
from paritas.detectors.pairs import Floats
from paritas.detectors.sequential import CEILING, FLOOR, mean_wealth
from paritas.detectors.table import Table

__all__ = ["SliceRun", "fold_alone", "fold_run"]

Places = NDArray[np.int64]
NEVER_NS = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class SliceRun:
    """What some units tell slices that ask the same: i entries for a instances and c clauses.

    Attributes
    ----------
    table : Table
        Where the entries stand.
    names : sequence of str
        Of the instances.
    rows : shape (a, c), int64
        Rows of the bank, by instance and clause.
    columns : shape (c,), int64
        Columns of the table.
    instance, unit, place, event_ns : shape (i,), int64
        Of each entry: instance it belongs to, unit it is of, row of the table, time;
        the entries of one instance stand in the order of units.
    outcome, holder : shape (m,), int64
        Outcomes of the batch that are in the entries, in their order, and the instance of each.
    """

    table: Table
    names: Sequence[str]
    rows: Places
    columns: Places
    instance: Places
    unit: Places
    place: Places
    event_ns: Places
    outcome: Places
    holder: Places

    @classmethod
    def joined(cls, runs: "Sequence[SliceRun]") -> "SliceRun":
        """Join runs of the same columns of the same table: more instances advance in as many steps."""
        firsts = np.cumsum([0, *(len(run.names) for run in runs)]).tolist()
        later = list(zip(runs, firsts, strict=False))
        return cls(
            table=runs[0].table,
            names=[name for run in runs for name in run.names],
            rows=np.concatenate([run.rows for run in runs]),
            columns=runs[0].columns,
            instance=np.concatenate([run.instance + first for run, first in later]),
            unit=np.concatenate([run.unit for run in runs]),
            place=np.concatenate([run.place for run in runs]),
            event_ns=np.concatenate([run.event_ns for run in runs]),
            outcome=np.concatenate([run.outcome for run in runs]),
            holder=np.concatenate([run.holder + first for run, first in later]),
        )

    def by_name(self) -> Iterator[tuple[str, Places]]:
        """Yield the name of each instance and its outcomes in their order."""
        order = np.argsort(self.holder, kind="stable")
        stops = np.cumsum(np.bincount(self.holder, minlength=len(self.names)))
        return zip(self.names, np.split(self.outcome[order], stops[:-1]), strict=True)


def fold_run(bank: Bank, runs: Sequence[SliceRun], first: int, stop: int) -> int:
    """Fold units from `first` to before `stop` unless one changes a row's state.

    Return how many come before it, or all there are; nothing is folded if one does.
    """
    works = [_Work(bank, run) for run in runs]
    change = min((work.first_change(stop) for work in works), default=stop)
    if change == stop:
        for work in works:
            work.write()
    return change - first


def fold_alone(bank: Bank, runs: Sequence[SliceRun]) -> list[Crossings]:
    """Fold one unit in, whatever it changes; return the rows whose state it changed, in order.

    What its sequences tell one by one follows what they tell together.
    """
    (event_ns,) = {int(run.event_ns[0]) for run in runs}
    parts = [_alone(run) for run in runs]
    told = [np.concatenate(part) for part in zip(*parts, strict=True)]
    turn = _turns(told[0])
    return [
        _fold_turn(bank, [part[turn == n] for part in told], event_ns)
        for n in range(int(turn.max(initial=-1)) + 1)
    ]


def _fold_turn(bank: Bank, told: Sequence[NDArray[Any]], event_ns: int) -> Crossings:
    """Fold what one unit tells rows, each of them once."""
    rows, values, up, down, tokens, without = told
    known = ~np.isnan(values)
    bank.without[rows] += without
    bank.tokens[rows[known]] += tokens[known]
    return bank.multiply(rows[known], values[known], up[known], down[known], event_ns)


def _turns(rows: Places) -> Places:
    """How often each row stands before each place, shape of `rows`."""
    order = np.argsort(rows, kind="stable")
    first = np.flatnonzero(np.diff(rows[order], prepend=-1))
    turns = np.empty_like(rows)
    turns[order] = np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
    return turns


def _alone(run: SliceRun) -> tuple[Places, Floats, Floats, Floats, Places, Places]:
    """Rows of a run of one unit, and what it tells each: value, factors, tokens, pairs without."""
    table, at = run.table, run.place
    values = np.where(table.known[at], table.scaled[at], np.nan)[:, run.columns]
    up, down = np.moveaxis(table.factors[at][..., run.columns], (1, 3), (0, 2))
    tokens, without = table.tokens[at][:, run.columns], table.without[at][:, run.columns]
    k = up.shape[-1]
    parts = (run.rows[run.instance].ravel(), values.ravel(), up.reshape(-1, k), down.reshape(-1, k))
    return (*parts, tokens.ravel(), without.ravel())


class _Work:
    """A run on its way into the bank, entries ordered by instance."""

    def __init__(self, bank: Bank, run: SliceRun) -> None:
        self._bank, self._run, table = bank, run, run.table
        self._layers = layers = Layers.of(run.instance, len(run.rows))
        self._rows = run.rows[layers.instances]
        self._at = self._rows[layers.rank]
        self._place = run.place[layers.order]
        self._known = _some(table.known[self._place], run.columns)
        self._values = _some(table.scaled[self._place], run.columns)
        self._tokens = _some(table.tokens[self._place], run.columns)
        self._without = _some(table.without[self._place], run.columns)
        layered = _picked(table.factors, self._place[layers.layered])
        self._factors = layered if _is_all(run.columns, layered) else layered[..., run.columns]
        self._mask_factors()
        self._count()
        self._bet()
        self._back: Floats | None = None

    def _mask_factors(self) -> None:
        """A row that cannot tell keeps its wealth."""
        if not self._known.all():
            known = self._known[self._layers.layered][:, None, None, :]
            self._factors = np.where(known, self._factors, 1.0)

    def _count(self) -> None:
        """Numbers, sums and times along each instance."""
        bank, layers = self._bank, self._layers
        event_ns = self._run.event_ns[layers.order][:, None]
        self._folded = along(np.add, np.zeros_like(self._rows), self._known.astype(np.int64), layers)
        self._total = along(np.add, bank.total[self._rows], self._values, layers)
        units = bank.units[self._at] + self._folded.before
        far = squared_distance(self._values, self._total.before, units)
        self._spread = along(np.add, bank.spread[self._rows], np.where(self._known, far, 0.0), layers)
        seen_ns = np.where(self._known, event_ns, NEVER_NS)
        self._last_ns = along(np.maximum, bank.last_ns[self._rows], seen_ns, layers)
        number = np.maximum(bank.since_start[self._at] + self._folded.after, 1)
        mass = bank.start_mass(number, event_ns - self._last_ns.before)
        self._mass = np.where(self._known, mass, 0.0)

    def _bet(self) -> None:
        """Wealth after each entry, and what the run leaves of the two processes that start once."""
        bank, layers = self._bank, self._layers
        up = self._factors[:, 0]
        self._alarm = _grow(_by_clause(bank.alarm[self._rows]), up, self._mass[layers.layered], layers)
        self._wealth = layers.by_instance(mean_wealth(self._alarm, axis=1))
        both = np.stack([_by_clause(bank.over[self._rows]), _by_clause(bank.passing[self._rows])], axis=1)
        self._over, self._passing = np.moveaxis(_scale(both, self._factors, layers), 1, 0)

    def first_change(self, stop: int) -> int:
        """First unit that changes a row's state, or `stop`."""
        violated = self._bank.violated[self._at]
        crossed = self._bank.crosses(self._at, self._values, self._wealth) & self._known
        changes = crossed & ~violated
        if self._bank.recover:
            changes |= crossed & self._bank.quiet[self._at]
        if self._bank.recover and violated.any():
            changes |= violated & self._known & self._recovers()
        hit = changes.any(axis=1)
        return int(self._run.unit[self._layers.order][hit].min()) if hit.any() else stop

    def _recovers(self) -> NDArray[np.bool_]:
        """Whether a violated row would recover: by certificate, or by quiet where nothing certifies."""
        bank, layers, down = self._bank, self._layers, self._factors[:, 1]
        active = (bank.violated[self._at] & self._known)[layers.layered].astype(np.float64)
        back = self._back = _grow(_by_clause(bank.back[self._rows]), down, active, layers)
        enough = (mean_wealth(back, axis=1) >= RECOVERY_WEALTH) & (down != 1.0).any(axis=1)
        clean = bank.clean[self._at] + self._folded.after >= QUIET_UNITS
        return np.where(bank.quiet[self._at], clean, layers.by_instance(enough))

    def write(self) -> None:
        """Leave the bank as the units do."""
        bank, rows, layers = self._bank, self._rows, self._layers
        bank.clean[rows] += self._folded.last if bank.recover else 0
        bank.since_start[rows] += self._folded.last
        bank.units[rows] += self._folded.last
        bank.total[rows], bank.spread[rows] = self._total.last, self._spread.last
        bank.last_ns[rows] = self._last_ns.last
        told = np.where(self._known, self._tokens, 0)
        bank.tokens[rows] += np.add.reduceat(told, layers.starts, axis=0)
        bank.without[rows] += np.add.reduceat(self._without, layers.starts, axis=0)
        wealth = np.where(self._known, self._wealth, 0.0)
        bank.best[rows] = np.maximum(bank.best[rows], np.maximum.reduceat(wealth, layers.starts, axis=0))
        bank.alarm[rows] = _by_bet(self._alarm[layers.last])
        bank.over[rows], bank.passing[rows] = _by_bet(self._over), _by_bet(self._passing)
        if self._back is not None:
            bank.back[rows] = _by_bet(self._back[layers.last])


def _is_all(columns: Places, array: Floats) -> bool:
    return len(columns) == array.shape[-1] and bool((np.diff(columns) == 1).all())


def _some(array: NDArray[Any], columns: Places) -> NDArray[Any]:
    """Columns of an array, which stays what it is where they are all."""
    return array if _is_all(columns, array) else array[:, columns]


def _picked(array: NDArray[Any], places: Places) -> NDArray[Any]:
    """Rows of an array; a view where they stand together."""
    if (np.diff(places) == 1).all():
        return array[places[0] : places[-1] + 1]
    return array[places]


def _by_clause(state: Floats) -> Floats:
    """(a, c, k) of the bank as (a, k, c) of the table."""
    return np.ascontiguousarray(np.swapaxes(state, 1, 2))


def _by_bet(state: Floats) -> Floats:
    return np.swapaxes(state, 1, 2)


def _grow(start: Floats, factors: Floats, mass: Floats, layers: Layers) -> Floats:
    """Wealth of the e-detector after each entry, in layers, shape (i, k, c); `sequential.grown` says how.

    The ceiling is for alarms long past: it is laid on only where wealth turned out to reach it.
    """
    out, fresh = np.empty(factors.shape), mass[:, None, :] * factors
    with np.errstate(over="ignore", invalid="ignore"):
        for is_cut in (False, True):
            before = start
            for lo, hi in layers.blocks():
                now = out[lo:hi]
                np.multiply(before[: hi - lo], factors[lo:hi], out=now)
                before = np.add(now, fresh[lo:hi], out=now)
                if is_cut:
                    np.minimum(now, CEILING, out=now)
            if out.max(initial=0.0) <= CEILING:
                break
    return out


def _scale(wealth: Floats, factors: Floats, layers: Layers) -> Floats:
    """Wealth of processes that start once after the run, shape (a, 2, k, c); `sequential.scaled` says how."""
    with np.errstate(over="ignore"):
        for lo, hi in layers.blocks():
            now = wealth[: hi - lo]
            np.multiply(now, factors[lo:hi], out=now)
            np.maximum(now, FLOOR, out=now)
            np.minimum(now, CEILING, out=now)
    return wealth
