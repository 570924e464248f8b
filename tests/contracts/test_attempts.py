"""Attempts: all tries of one candidate together spend the gate's alpha."""

from math import inf

import pytest
from contract_cases import clause_contract
from hypothesis import given
from hypothesis import strategies as st

from paritas.contracts.attempts import ALPHA, GateLevel, alpha_of_attempt, level_of
from paritas.contracts.model import Gate, Stage

TV = "{id: a, statistic: tv, at_most: 0.02}"
DECLARED = "  promotion: {offline_ci: {alpha: 0.05}}\n"


@given(st.floats(1e-6, 0.5), st.integers(1, 3000))
def test_all_attempts_together_spend_at_most_alpha(alpha, tries):
    spent = [alpha_of_attempt(alpha, k) for k in range(1, tries + 1)]
    assert 0.6 * alpha < sum(spent) < alpha
    assert spent == sorted(spent, reverse=True)


def test_the_first_attempt_is_counted_where_the_contract_declares_the_gate():
    declared = clause_contract(TV, extra=DECLARED)
    (gate,) = declared.promotion.gates
    assert level_of(declared, gate, None) == GateLevel(Stage.OFFLINE_CI, 0.05, 1)
    assert level_of(declared, gate, 4).pass_alpha == pytest.approx(0.05 * 6 / 9.869604 / 16)


def test_without_a_gate_nothing_is_counted_until_an_attempt_is_named():
    plain, gate = clause_contract(TV), Gate(Stage.OFFLINE_CI)
    assert level_of(plain, gate, None).pass_alpha == ALPHA
    assert level_of(plain, gate, 2).pass_alpha == alpha_of_attempt(ALPHA, 2)


def test_a_level_says_what_a_pass_spends():
    assert str(GateLevel(Stage.OFFLINE_CI, 0.01, 3)) == (
        "offline_ci, attempt 3: a pass spends 0.000675 of alpha 0.01"
    )
    assert str(GateLevel(Stage.OFFLINE_CI)) == (
        "no gate: a pass errs with probability 0.01 in this judgement alone"
    )


def test_no_attempt_is_so_late_that_nothing_is_left():
    assert 0 < alpha_of_attempt(0.01, 1 << 30) < inf
