"""Trial: fold one value into one row of the bank, and take it back if it changed the row's state."""

from typing import Any

from paritas.detectors.bank import COUNTS, SUMS, WEALTH, Bank

__all__ = ["put_back", "state_of"]

NAMES = (*COUNTS, *SUMS, *WEALTH, "violated")


def state_of(bank: Bank, index: int) -> dict[str, Any]:
    """Return a copy of everything the bank holds of one row."""
    return {name: getattr(bank, name)[index].copy() for name in NAMES}


def put_back(bank: Bank, index: int, state: dict[str, Any]) -> None:
    """Undo everything that happened to a row since `state_of`."""
    for name, value in state.items():
        getattr(bank, name)[index] = value
