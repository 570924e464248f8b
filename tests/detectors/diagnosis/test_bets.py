"""Bets on signs: fair under the null at every moment, and growing where one side is larger."""

import numpy as np
import pytest

from paritas.detectors.diagnosis.bets import CLEAR, SignBets


def peak(rng, signs, chance):
    """Return the largest evidence seen on the way."""
    bets, best = SignBets(), -np.inf
    for positive in rng.random(signs) < chance:
        bets.fold(1.0 if positive else -1.0)
        best = max(best, bets.log10_e())
    return best


def test_a_fair_coin_is_seldom_called_unfair_however_often_one_looks():
    rng = np.random.default_rng(1)
    alarms = np.mean([peak(rng, 120, 0.5) >= CLEAR for _ in range(300)])
    assert 0.0 < alarms <= 0.05


@pytest.mark.parametrize(("chance", "signs"), [(1.0, 10), (0.9, 20), (0.75, 80)])
def test_an_unfair_coin_is_found(chance, signs):
    rng = np.random.default_rng(2)
    assert np.mean([peak(rng, signs, chance) >= CLEAR for _ in range(40)]) >= 0.8


def test_the_evidence_is_the_mean_wealth_of_the_bets():
    bets, wealth = SignBets(), np.ones(3)
    for difference in (0.1, -2.0, 0.0, 5.0, 0.3):
        bets.fold(difference)
        wealth *= 1.0 + np.array([0.15, 0.4, 0.8]) * np.sign(difference)
    assert bets.log10_e() == pytest.approx(np.log10(wealth.mean()))
    assert (bets.positive, bets.negative) == (3, 1)
