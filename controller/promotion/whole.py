"""A promotion with everything that is kept of it."""

from dataclasses import dataclass

from paritas.contracts.model import Contract
from paritas.controller.promotion.proof import Kept
from paritas.controller.promotion.store import Stored

__all__ = ["Whole"]


@dataclass(frozen=True, slots=True)
class Whole:
    """One promotion, the contract it is bound to, and its transitions in order."""

    stored: Stored
    contract: Contract
    kept: tuple[Kept, ...]
