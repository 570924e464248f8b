"""What is known of a contract → its three conditions.  Pure; what is not known is said to be unknown."""

from paritas.contracts.model import Contract
from paritas.controller.operator.model import About, Condition, Item, Sighting, Truth, Why
from paritas.controller.operator.publishing import Published
from paritas.controller.operator.summary import Summary
from paritas.records import State

__all__ = ["accepted", "enforced", "violated"]

_LONGEST = 30_000  # characters of a message; the API takes 32768


def accepted(item: Item) -> Condition:
    """Say whether this generation is a valid contract, with every problem and its hint if not."""
    if item.contract is not None:
        message = f"{item.contract.name} {item.contract.version} ({item.contract.digest[:8]}) is valid"
        return Condition(About.ACCEPTED, Truth.TRUE, Why.VALID, message, item.generation)
    told = "\n".join(f"{said} ({hint})" if hint else said for said, hint in item.problems)
    return Condition(About.ACCEPTED, Truth.FALSE, Why.INVALID, told[:_LONGEST], item.generation)


def enforced(published: Published, sighting: Sighting, *, generation: int) -> Condition:
    """Say whether a detector judges by the text it was given; `generation` is that text's."""
    truth, why, message = _enforced(published, sighting)
    if published.text and not published.is_latest:
        version = published.contract.version if published.contract else "a text that is not valid"
        message += f"; {version} of generation {generation} stays in force"
    return Condition(About.ENFORCED, truth, why, message, generation)


def _enforced(published: Published, sighting: Sighting) -> tuple[Truth, Why, str]:
    if published.held is not None:
        return Truth.FALSE, published.held, published.detail
    if published.contract is None:
        return Truth.FALSE, Why.NOTHING_ACCEPTED, "detectors are given no valid text"
    return _judged(published.contract, sighting)


def _judged(contract: Contract, sighting: Sighting) -> tuple[Truth, Why, str]:
    if sighting.why is not Why.JUDGED:
        return Truth.UNKNOWN, sighting.why, sighting.detail
    if sighting.digest == contract.digest:
        return Truth.TRUE, Why.JUDGED, f"a detector judges by {contract.digest[:8]}"
    message = f"the detector judges by {sighting.digest[:8]}, it is given {contract.digest[:8]}"
    if any(clause.floor is not None for clause in contract.clauses):
        return Truth.UNKNOWN, Why.FLOORS, f"{message}, whose limits it makes absolute by its floors"
    return Truth.FALSE, Why.OTHER_DIGEST, message


def violated(summary: Summary | Why, enforcement: Condition) -> Condition:
    """Say whether an open incident is a violation; no incident counts only where a detector judges."""
    truth, why, message = _violated(summary, enforcement)
    return Condition(About.VIOLATED, truth, why, message, enforcement.generation)


def _violated(summary: Summary | Why, enforcement: Condition) -> tuple[Truth, Why, str]:
    if isinstance(summary, Why):
        return Truth.UNKNOWN, summary, _NOT_ASKED[summary]
    if summary.worst is not None:
        is_violated = summary.counts.get(State.VIOLATED, 0) > 0
        truth, why = (Truth.TRUE, Why.OPEN_INCIDENT) if is_violated else (Truth.UNKNOWN, Why.UNDECIDED)
        return truth, why, summary.worst.current.summary[:_LONGEST]
    if enforcement.truth is Truth.TRUE:
        return Truth.FALSE, Why.NO_OPEN_INCIDENT, "no incident is open"
    return Truth.UNKNOWN, Why.NOT_ENFORCED, "no incident is open, and no detector is known to judge"


_NOT_ASKED = {
    Why.CONTROLLER_AWAY: "the controller cannot be asked",
    Why.NO_CONTROLLER: "the operator was not told where the controller is (--target)",
}
