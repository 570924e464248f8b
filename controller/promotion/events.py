"""What can happen to a promotion, and what came of it."""

from dataclasses import dataclass

from paritas.contracts.model import Contract
from paritas.controller.promotion.model import Blocked, Candidate, Promotion, Transition
from paritas.controller.promotion.statement import Statement

__all__ = ["Aborted", "Event", "Judged", "Outcome", "Rebound", "Resumed", "Start", "Ticked"]


@dataclass(frozen=True, slots=True)
class Start:
    """What a promotion is started with; `attempt` counts this candidate's tries so far, plus one."""

    promotion_id: str
    candidate: Candidate
    seed: str
    attempt: int = 1
    actor: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict whose signature a trusted key made; `envelope` is the digest of what was signed."""

    statement: Statement
    envelope: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A person says: go on, with another attempt."""

    actor: str


@dataclass(frozen=True, slots=True)
class Rebound:
    """A person gives another version of the contract."""

    contract: Contract
    actor: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """A person says: stop."""

    actor: str
    text: str = ""


Event = Judged | Ticked | Resumed | Rebound | Aborted


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an event did.

    Attributes
    ----------
    blocked : Blocked or None
        Why it did not move on as asked; a transition may have happened all the same, such as a rollback.
    """

    promotion: Promotion
    transitions: tuple[Transition, ...] = ()
    blocked: Blocked | None = None
