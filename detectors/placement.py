"""Placement: which instances of which slices a sequence belongs to, looked up by the labels that decide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.model import Slice
from paritas.detectors.pairs import PairOutcome
from paritas.detectors.slices import LabelReader, SliceBook

__all__ = ["NOWHERE", "Placement", "Plan", "Slots"]

Places = NDArray[np.int64]
RowsOf = Callable[[Slice, str], Places]

NOWHERE = -1
REMEMBERED = 1024  # label combinations; more are worked out again


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Where a sequence with certain labels belongs.

    Attributes
    ----------
    instances : tuple of (Slice, str)
    numbers : tuple of int
        Instance of each declared slice by number, `NOWHERE` for slices it does not belong to.
    rows, columns : shape (r,), int64
        All rows it touches, and their columns of the table.
    """

    instances: tuple[tuple[Slice, str], ...]
    numbers: tuple[int, ...]
    rows: Places
    columns: Places


class Slots:
    """Numbered instances of one declared slice, and the rows of each.

    Parameters
    ----------
    declared : Slice
    columns : shape (c,), int64
        Table columns of its clauses.
    """

    def __init__(self, declared: Slice, columns: Places) -> None:
        self.declared, self.columns = declared, columns
        self._rows: list[Places] = []
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str, rows_of: RowsOf) -> int:
        """Return the number of an instance; a new one gets the next, and its rows."""
        if name not in self._numbers:
            self._numbers[name] = len(self._rows)
            self._names.append(name)
            self._rows.append(rows_of(self.declared, name))
        return self._numbers[name]

    def names(self, numbers: Places) -> list[str]:
        """Names of some instances."""
        return [self._names[number] for number in numbers.tolist()]

    def rows(self, numbers: Places) -> Places:
        """Rows of some instances, shape (a, c)."""
        return np.stack([self._rows[number] for number in numbers.tolist()])


class Placement:
    """Remembers where sequences with the same labels belong.

    Parameters
    ----------
    slices : sequence of Slice
    columns : sequence of arrays, shape (c,), int64
        Table columns of each slice's clauses.
    """

    def __init__(self, slices: Sequence[Slice], columns: Sequence[Places]) -> None:
        self.book = SliceBook(slices)
        self._slots = tuple(Slots(*one) for one in zip(slices, columns, strict=True))
        self._labels = LabelReader(slices)
        self._by_labels: dict[tuple[str | None, ...], Plan] = {}
        self._by_names: dict[tuple[str, ...], Plan] = {}

    def __getstate__(self) -> dict[str, object]:
        """Leave out what can be worked out again."""
        return {**vars(self), "_by_labels": {}, "_by_names": {}}

    def known(self, outcome: PairOutcome) -> Plan | None:
        """Return the plan of an outcome if one with its labels was placed before."""
        return self._by_labels.get(self._labels.key(outcome))

    def place(self, outcome: PairOutcome, rows_of: RowsOf) -> Plan:
        """Return the plan of an outcome; `rows_of` makes the rows of an instance that is new."""
        key = self._labels.key(outcome)
        if key not in self._by_labels:
            if len(self._by_labels) >= REMEMBERED:
                self._by_labels.clear()
                self._by_names.clear()
            self._by_labels[key] = self._plan(tuple(self.book.instances(outcome)), rows_of)
        return self._by_labels[key]

    def of(self, number: int) -> Slots:
        """Instances of the slice declared at `number`."""
        return self._slots[number]

    def _plan(self, instances: tuple[tuple[Slice, str], ...], rows_of: RowsOf) -> Plan:
        names = tuple(name for _, name in instances)
        if names not in self._by_names:
            self._by_names[names] = self._new_plan(instances, rows_of)
        return self._by_names[names]

    def _new_plan(self, instances: tuple[tuple[Slice, str], ...], rows_of: RowsOf) -> Plan:
        held = {declared.name: name for declared, name in instances}
        touched = [slots for slots in self._slots if slots.declared.name in held]
        number = {s.declared.name: s.number(held[s.declared.name], rows_of) for s in touched}
        numbers = tuple(number.get(s.declared.name, NOWHERE) for s in self._slots)
        rows = [s.rows(np.array([number[s.declared.name]]))[0] for s in touched]
        none = np.zeros(0, np.int64)
        columns = np.concatenate([none, *(s.columns for s in touched)])
        return Plan(instances, numbers, np.concatenate([none, *rows]), columns)
