"""The recommended cap: by the definition, and its level over the grid."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS, lost, pair, paired

from paritas.detectors.cap import CAPS, CapReason, recommend_cap
from paritas.detectors.repair_limits import upper_limit


def drawn(seed, n=60, sd=0.3, mean=None, tokens=5):
    rng = np.random.default_rng(seed)
    ells = rng.normal(-sd * sd / 2 if mean is None else mean, sd, (n, tokens))
    return [paired(pair(ell, name=f"s-{i}")) for i, ell in enumerate(ells)]


@settings(max_examples=25)
@given(SEEDS, st.floats(0.05, 0.9), st.floats(0.05, 1.0))
def test_it_is_the_smallest_of_the_grid_whose_own_limit_fits(seed, budget, sd):
    outcomes = drawn(seed, sd=sd)
    found = recommend_cap(outcomes, budget, alpha=0.1)
    uppers = []
    for cap in CAPS:
        values = np.array([np.mean(1 - np.minimum(np.exp(o.pair.log_ratio), cap)) for o in outcomes])
        uppers.append((1 - cap) + cap * upper_limit((values - (1 - cap)) / cap, 0.1 / len(CAPS)))
    fits = [cap for cap, upper in zip(CAPS, uppers, strict=True) if upper <= budget]
    assert [b.upper for _, b in found.caps] == pytest.approx(uppers)
    assert found.cap == (fits[0] if fits else None)
    assert (found.reason is CapReason.FITS) == bool(fits)


def test_nothing_paired_recommends_nothing():
    found = recommend_cap([lost()], 0.1)
    assert (found.cap, found.reason, found.caps) == (None, CapReason.NO_PAIRS, ())
    assert str(found) == "no cap can certify a bias of at most 0.1: nothing paired"


def test_missing_support_is_told_from_too_few_sequences():
    """A sampler that lost a fifth of the trainer's mass: w = 0.8 everywhere, and no cap helps."""
    gone = [paired(pair([np.log(0.8)] * 4, name=f"s-{i}")) for i in range(2000)]
    found = recommend_cap(gone, 0.05)
    assert (found.cap, found.reason) == (None, CapReason.MISSING_SUPPORT)
    assert str(found) == (
        f"no cap certifies a bias of at most 0.05: at 10 it is surely above {found.caps[-1][1].lower:.3g}, "
        "so repair the kernels"
    )
    few = recommend_cap(drawn(1, n=10, sd=0.05), 0.05)
    assert (few.cap, few.reason) == (None, CapReason.UNRESOLVED)
    bias = few.caps[-1][1]
    assert (
        str(few)
        == f"no cap certifies a bias of at most 0.05 yet: at 10 it is {bias.estimate:.3g}, at most {bias.upper:.3g}"
    )


def test_a_larger_cap_is_taken_where_ratios_are_wide():
    """w is 4 with chance 0.1, else 2/3: truncation at 2 leaves 0.2 of bias, at 5 none."""
    rng = np.random.default_rng(2)
    ells = [np.log(np.where(rng.random(400) < 0.1, 4.0, 2 / 3)) for _ in range(400)]
    found = recommend_cap([paired(pair(e, name=f"s-{i}")) for i, e in enumerate(ells)], 0.1)
    assert found.cap == 5.0
    assert (
        str(found)
        == f"the smallest cap that certifies a bias of at most 0.1 is 5 (at most {found.caps[5][1].upper:.3g})"
    )


def test_a_cap_that_does_not_fit_is_hardly_ever_recommended():
    """Picking by the limit keeps the level over the whole grid: true beta(C) against the budget."""
    rng, wrong, runs = np.random.default_rng(8), 0, 60
    truth = {cap: 1 - (0.1 * min(4.0, cap) + 0.9 * 2 / 3) for cap in CAPS}
    for _ in range(runs):
        ells = np.log(np.where(rng.random((40, 1)) < 0.1, 4.0, 2 / 3))
        cap = recommend_cap([paired(pair(e, name=f"s-{i}")) for i, e in enumerate(ells)], 0.19, alpha=0.2).cap
        wrong += cap is not None and truth[cap] > 0.19
    assert wrong <= 0.2 * runs


def test_groups_are_units():
    outcomes = [paired(pair([0.1 * (i % 2)], name=f"s-{i}", group_id=f"g{i // 2}")) for i in range(20)]
    assert recommend_cap(outcomes, 0.5, by_group=True).caps[0][1].units == 10
    assert recommend_cap(outcomes, 0.5).caps[0][1].units == 20
