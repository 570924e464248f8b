"""What an experiment returns: tables, figures as numbers, and claims with whether they held."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paritas.commands.jsonable import finite

__all__ = ["Cell", "Claim", "Curve", "Figure", "Floats", "Panel", "Result", "Setting", "Table", "curve"]

Cell = str | int | float | bool | None
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Setting:
    """How an experiment is run.

    Attributes
    ----------
    seed : int
        The same seed gives the same numbers.
    is_quick : bool
        A small run of seconds, for a look and for tests.
    recordings : Path or None
        Folder of recorded pairs NAME.serve.jsonl.gz and NAME.train.jsonl.gz; None takes the shipped ones.
    """

    seed: int = 0
    is_quick: bool = False
    recordings: Path | None = None

    def sized(self, full: int, quick: int) -> int:
        """Return `full`, or `quick` in a quick run."""
        return quick if self.is_quick else full


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under named columns; `says` is one line on how to read it."""

    name: str
    says: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def column(self, name: str) -> tuple[Cell, ...]:
        """Return the cells of one column."""
        place = self.columns.index(name)
        return tuple(row[place] for row in self.rows)


@dataclass(frozen=True, slots=True)
class Curve:
    """One line or cloud of a panel; `kind` is line, dashed or points."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    kind: str = "line"


def curve(label: str, x: Sequence[float] | Floats, y: Sequence[float] | Floats, kind: str = "line") -> Curve:
    """Make a curve from arrays.

    Examples
    --------
    >>> curve("a", np.arange(2.0), [3, 4]).y
    (3.0, 4.0)
    """
    return Curve(label, tuple(map(float, x)), tuple(map(float, y)), kind)


@dataclass(frozen=True, slots=True)
class Panel:
    """Axes with curves; `is_log` says which of x and y are logarithmic, `names` stand at y = 0, 1, …."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    is_log: tuple[bool, bool] = (False, False)
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """Panels side by side, saved as ``name.png``."""

    name: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement, what was measured, and whether it held.

    Attributes
    ----------
    is_promise : bool
        Whether the project promises it: a promise that did not hold makes the command exit with 1.
        A goal is not a promise; a missed one is told with its number.
    goal : str
        What the measured number is held against, for the summary.
    """

    says: str
    measured: str
    holds: bool
    is_promise: bool = True
    goal: str = ""

    @property
    def word(self) -> str:
        """How it ended: held, BROKEN (a promise) or missed (a goal)."""
        return "held" if self.holds else "BROKEN" if self.is_promise else "missed"


@dataclass(frozen=True, slots=True)
class Result:
    """Everything an experiment found."""

    name: str
    seed: int
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    claims: tuple[Claim, ...] = ()
    cases: Mapping[str, object] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """1 where a promise did not hold."""
        return int(any(claim.is_promise and not claim.holds for claim in self.claims))

    def table(self, name: str) -> Table:
        """Return the table of that name; KeyError if there is none."""
        return {table.name: table for table in self.tables}[name]

    def as_dict(self) -> dict[str, object]:
        """JSON-ready values; what is not a number is null.  Figures are left out: their numbers are tables'."""
        told = {
            "experiment": self.name,
            "seed": self.seed,
            "claims": [asdict(claim) for claim in self.claims],
            "tables": {
                table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
                for table in self.tables
            },
            "cases": self.cases,
        }
        return {key: finite(value) for key, value in told.items()}
