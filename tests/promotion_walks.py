"""A promotion of the tests walked to its n-th gate by good evidence."""

from dataclasses import replace

from promotion_cases import BAKE, CANDIDATE, CONTRACT, T0, S, statement

from paritas.contracts.model import Stage
from paritas.controller.promotion.events import Judged, Start
from paritas.controller.promotion.machine import begin, step
from paritas.controller.promotion.model import Gate
from paritas.controller.promotion.statement import candidate_digest

CANARY = [Gate(Stage.CANARY, 0), Gate(Stage.CANARY, 1)]
ORDER = [Gate(Stage.OFFLINE_CI), Gate(Stage.SHADOW), *CANARY, Gate(Stage.FULL)]
LATER = replace(CANDIDATE, weights="step-901")
LATER_DIGEST = candidate_digest(LATER)


def started(attempt=1):
    start = Start("p1", CANDIDATE, "seed", attempt, "ann")
    return begin(start, now_ns=T0, contract=CONTRACT).promotion


def judge(promotion, now_ns, name="e", **changes):
    told = statement(promotion, now_ns, **changes)
    return step(promotion, Judged(told, name), now_ns=now_ns, contract=CONTRACT)


def at(position):
    """A promotion at the n-th gate, one envelope after the other; returns it and the time."""
    promotion, now = started(), T0
    for number in range(position):
        now += BAKE + S
        promotion = judge(promotion, now, f"e{number}").promotion
    return promotion, now
