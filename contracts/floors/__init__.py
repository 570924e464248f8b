"""Measured floors: how much a kernel drifts from itself, signed, and limits relative to it (docs/floors.md)."""

from paritas.contracts.floors.files import read_floor, write_floor
from paritas.contracts.floors.record import FloorValue, MeasuredFloor, options_of
from paritas.contracts.floors.resolve import floor_notes, with_floors

__all__ = [
    "FloorValue",
    "MeasuredFloor",
    "floor_notes",
    "options_of",
    "read_floor",
    "with_floors",
    "write_floor",
]
