import numpy as np
import pytest

from paritas.contracts.model import Clause, Family
from paritas.contracts.plausible import floor_of

SD = 0.05


def clause(statistic: str, **options: float) -> Clause:
    return Clause("a", Family.NUMERICAL, statistic, at_most=1.0, **options)


@pytest.mark.parametrize(
    ("item", "value"),
    [
        (clause("tv"), lambda ell: np.maximum(-np.expm1(ell), 0).mean()),
        (clause("logprob_abs_diff"), lambda ell: np.abs(ell).mean()),
        (clause("ratio_tail", above=1.1), lambda ell: (np.abs(ell) > np.log(1.1)).mean()),
        (clause("phantom_clip_rate", clip=0.1), lambda ell: (np.abs(ell) > np.log(1.1)).mean()),
        (clause("kl_k3"), lambda ell: (np.expm1(ell) - ell).mean()),
    ],
)
def test_a_floor_is_what_near_gaussian_rounding_shows(item: Clause, value) -> None:
    ell = np.random.default_rng(7).normal(-SD * SD / 2, SD, 400_000)
    assert floor_of(item, SD, None) == pytest.approx(value(ell), rel=0.03)


def test_a_sequence_drifts_with_the_root_of_its_length() -> None:
    assert floor_of(clause("sequence_tv"), SD, 1024) == pytest.approx(0.576, abs=0.001)
    assert floor_of(clause("sequence_tv"), SD, None) is None


def test_most_statistics_have_no_floor() -> None:
    assert floor_of(clause("pairing_rate"), SD, 10) is None
