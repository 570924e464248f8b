"""Flagger's hooks as pure answers: every hook in every standing."""

from dataclasses import replace

import pytest
from promotion_cases import CANDIDATE, CONTRACT, T0

from paritas.contracts.model import Stage
from paritas.controller.promotion.events import Start
from paritas.controller.promotion.flagger import Hook, answer_hook, answer_rollback, granted_increases
from paritas.controller.promotion.machine import begin
from paritas.controller.promotion.model import Gate, Standing

PROMOTION = begin(Start("p1", CANDIDATE, "seed"), now_ns=T0, contract=CONTRACT).promotion
OVER = [Standing.ROLLED_BACK, Standing.DEMOTED, Standing.ABORTED]


def at(stage, step=0, standing=Standing.RUNNING):
    return replace(PROMOTION, gate=Gate(stage, step), standing=standing)


ALL = [
    *(at(stage, 0, standing) for stage in Stage for standing in Standing if stage is not Stage.FULL),
    at(Stage.CANARY, 1),
    *(at(Stage.FULL, 0, s) for s in (Standing.FULL, Standing.DEMOTED, Standing.ABORTED)),
]


@pytest.mark.parametrize("promotion", ALL, ids=lambda p: f"{p.gate}-{p.standing}")
def test_a_status_is_200_for_yes_and_409_for_no(promotion):
    for hook in Hook:
        assert answer_hook(hook, promotion).status in (200, 409)
    assert (answer_rollback(promotion).status == 200) == (promotion.standing in OVER)


@pytest.mark.parametrize("promotion", ALL, ids=lambda p: f"{p.gate}-{p.standing}")
def test_nothing_goes_on_that_is_over(promotion):
    if promotion.standing in OVER:
        for hook in set(Hook) - {Hook.POST_ROLLOUT, Hook.EVENT}:
            assert answer_hook(hook, promotion).status == 409
            assert answer_hook(hook, promotion).text.startswith("FAIL: p1 is ")


def test_an_undecided_state_waits_at_the_hooks_that_wait_and_never_counts_as_a_failure():
    for promotion in (at(Stage.SHADOW), at(Stage.SHADOW, standing=Standing.PAUSED)):
        answers = {hook: answer_hook(hook, promotion).status for hook in Hook}
        assert {h for h, status in answers.items() if status == 409} == {
            Hook.CONFIRM_ROLLOUT,
            Hook.CONFIRM_TRAFFIC_INCREASE,
            Hook.CONFIRM_PROMOTION,
        }


def test_a_rollout_begins_with_the_canary_and_ends_with_full():
    assert answer_hook(Hook.CONFIRM_ROLLOUT, at(Stage.CANARY)).status == 200
    assert answer_hook(Hook.CONFIRM_PROMOTION, at(Stage.CANARY, 1)).status == 409
    assert answer_hook(Hook.CONFIRM_PROMOTION, at(Stage.FULL, 0, Standing.FULL)).status == 200


def test_traffic_is_increased_once_a_step():
    steps = [at(Stage.OFFLINE_CI), at(Stage.SHADOW), at(Stage.CANARY), at(Stage.CANARY, 1)]
    assert [granted_increases(p) for p in steps] == [0, 0, 1, 2]
    assert granted_increases(at(Stage.CANARY, 1, Standing.PAUSED)) == 0
    assert granted_increases(at(Stage.FULL, 0, Standing.FULL)) > 1000


def test_an_unknown_promotion_is_not_rolled_back():
    told = answer_rollback(None)
    assert (told.status, told.text) == (404, "no such promotion: nothing is rolled back")
