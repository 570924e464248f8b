"""Everything known of an item → its ``status``.  Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from paritas.controller.operator.conditions import accepted, enforced, violated
from paritas.controller.operator.model import Condition, Item, Sighting, Why
from paritas.controller.operator.publishing import Published
from paritas.controller.operator.summary import Summary, rfc3339

__all__ = ["status_of"]


def status_of(
    item: Item, published: Published, sighting: Sighting, summary: Summary | Why, *, now_ns: int
) -> dict[str, Any]:
    """Return the whole status; equal to the one before unless something has changed."""
    generation = item.generation if published.is_latest else int(item.status.get("acceptedGeneration", 0))
    enforcement = enforced(published, sighting, generation=generation)
    conditions = (accepted(item), enforcement, violated(summary, enforcement))
    told: dict[str, Any] = {"observedGeneration": item.generation}
    if published.contract is not None:
        told |= {"acceptedGeneration": generation, "digest": published.contract.digest}
        told |= {"version": published.contract.version}
    told["conditions"] = list(_timed(conditions, item.status, now_ns))
    return told if isinstance(summary, Why) else {**told, "verdicts": summary.as_dict()}


def _timed(
    conditions: Iterable[Condition], before: Mapping[str, Any], now_ns: int
) -> Iterable[dict[str, Any]]:
    """A condition keeps its time while its status is the same."""
    old = {c["type"]: c for c in before.get("conditions") or ()}
    for condition in conditions:
        known = old.get(condition.about, {})
        is_same = known.get("status") == condition.truth
        yield {
            "type": str(condition.about),
            "status": str(condition.truth),
            "reason": str(condition.why),
            "message": condition.message,
            "lastTransitionTime": known["lastTransitionTime"] if is_same else rfc3339(now_ns),
            "observedGeneration": condition.generation,
        }
