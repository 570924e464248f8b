"""Flagger's webhooks: what each hook asks, and what the state of a promotion answers.

Flagger takes 200 to 202 for yes and everything else for no.  No pauses a rollout at the three
``confirm-*`` hooks without counting as a failed check; at ``pre-rollout`` and ``rollout`` it counts, so
those say no to a FAIL only.  Yes to ``rollback`` rolls back: that answer is a function of its own.
"""

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

from paritas.contracts.model import Stage
from paritas.controller.promotion.model import Promotion, Standing

__all__ = ["ASKED_NOTHING", "Hook", "HookAnswer", "answer_hook", "answer_rollback", "granted_increases"]

UNLIMITED = 2**31


class Hook(StrEnum):
    """The types of Flagger's webhooks; `rollback` is answered elsewhere."""

    CONFIRM_ROLLOUT = "confirm-rollout"
    PRE_ROLLOUT = "pre-rollout"
    ROLLOUT = "rollout"
    CONFIRM_TRAFFIC_INCREASE = "confirm-traffic-increase"
    CONFIRM_PROMOTION = "confirm-promotion"
    POST_ROLLOUT = "post-rollout"
    EVENT = "event"


ASKED_NOTHING = (Hook.POST_ROLLOUT, Hook.EVENT)  # Flagger tells, and asks nothing


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """Status and text of one answer."""

    status: HTTPStatus
    text: str


def answer_hook(hook: Hook, promotion: Promotion) -> HookAnswer:
    """Return the answer of every hook but `rollback`; traffic increases are counted by the caller."""
    where = f"{promotion.promotion_id} is {promotion.standing} at {promotion.gate}"
    if hook in ASKED_NOTHING:
        return HookAnswer(HTTPStatus.OK, where)
    if promotion.standing.is_over:
        return HookAnswer(HTTPStatus.CONFLICT, f"FAIL: {where}")
    if _is_open(hook, promotion):
        return HookAnswer(HTTPStatus.OK, where)
    return HookAnswer(HTTPStatus.CONFLICT, f"INSUFFICIENT: {where}")


def _is_open(hook: Hook, promotion: Promotion) -> bool:
    match hook:
        case Hook.CONFIRM_ROLLOUT | Hook.CONFIRM_TRAFFIC_INCREASE:
            return granted_increases(promotion) > 0
        case Hook.CONFIRM_PROMOTION:
            return promotion.standing is Standing.FULL
        case _:
            return True


def granted_increases(promotion: Promotion) -> int:
    """Return how often traffic may have been increased: once on entering the canary, once more a step passed."""
    if promotion.standing is Standing.FULL:
        return UNLIMITED
    is_canary = promotion.gate.stage is Stage.CANARY and promotion.standing is Standing.RUNNING
    return promotion.gate.step + 1 if is_canary else 0


def answer_rollback(promotion: Promotion | None) -> HookAnswer:
    """Return yes to a rollback on FAIL only: not for an unknown promotion, not for a missing verdict."""
    if promotion is None:
        return HookAnswer(HTTPStatus.NOT_FOUND, "no such promotion: nothing is rolled back")
    where = f"{promotion.promotion_id} is {promotion.standing} at {promotion.gate}"
    if promotion.standing.is_over:
        return HookAnswer(HTTPStatus.OK, f"FAIL: {where}")
    return HookAnswer(HTTPStatus.CONFLICT, f"no FAIL: {where}")
