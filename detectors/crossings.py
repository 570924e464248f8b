"""Crossings: one row changed its state at one unit."""

from dataclasses import dataclass
from enum import StrEnum

from paritas.contracts.model import Clause

__all__ = ["Change", "Crossing"]


class Change(StrEnum):
    """What happened to a row."""

    VIOLATED = "violated"
    RECOVERED = "recovered"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Crossing:
    """One row changed its state at one unit.

    Attributes
    ----------
    slice, declared : str
        Name of the slice instance, and of the slice the contract declares it by.
    index : int
        Row in the evaluator; -1 for the kernel identity.
    no_data : bool
        Whether it is about missing data rather than about a limit.
    event_ns : int
        Start time of the deciding sequence.
    refit : bool
        Whether the refit gate rejected weights by the clause, rather than a row being violated.
    """

    change: Change
    clause: Clause
    slice: str
    declared: str
    index: int
    event_ns: int
    weights_version: str
    no_data: bool = False
    refit: bool = False
