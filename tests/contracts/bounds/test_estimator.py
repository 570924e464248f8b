"""D3: estimators as a contract writes them."""

import pytest

from paritas.contracts.bounds import EstimatorKind, weighting_of
from paritas.contracts.model import Estimator
from paritas.errors import ContractError


def test_thresholds_are_filled_in():
    assert weighting_of(Estimator()).cap == 2.0
    masked = weighting_of(Estimator(kind="mis", cap=3.0))
    assert (masked.low, masked.high) == (0.0, 3.0)
    clipped = weighting_of(Estimator(kind="clip", clip=0.2))
    assert (clipped.low, clipped.high) == (0.8, 1.2)
    wide = weighting_of(Estimator(kind="ppo_min", clip=1.5, cap=2.0))
    assert (wide.low, wide.high, wide.cap) == (0.0, 2.5, 2.5)


def test_every_kind_can_be_written():
    for kind in EstimatorKind:
        assert weighting_of(Estimator(kind=kind.value, clip=0.2)).kind is kind


CAP_HINT = "cap truncates the importance ratio; below 1 it would also shrink tokens that agree"
CLIP_HINT = "clip is the half-width c of [1-c, 1+c]"
LOW_HINT = "low is the ratio below which MIS drops a token"


@pytest.mark.parametrize(
    ("estimator", "text", "hint"),
    [
        (Estimator(kind="tiss"), "unknown estimator kind 'tiss'", "one of clip, is, mis, none, ppo_min, tis"),
        (Estimator(kind="clip"), "estimator clip needs clip", "for example clip: 0.2"),
        (Estimator(kind="ppo_min", clip=-0.1), "estimator clip must be 0 or more, got -0.1", CLIP_HINT),
        (Estimator(cap=0.5), "estimator cap must be 1 or more, got 0.5", CAP_HINT),
        (Estimator(cap=float("nan")), "estimator cap must be 1 or more, got nan", CAP_HINT),
        (Estimator(cap=float("inf")), "estimator cap must be 1 or more, got inf", CAP_HINT),
        (Estimator(kind="mis", low=1.5), "estimator low must be between 0 and 1, got 1.5", LOW_HINT),
    ],
)
def test_what_a_contract_can_get_wrong(estimator, text, hint):
    with pytest.raises(ContractError) as caught:
        weighting_of(estimator)
    assert (str(caught.value), caught.value.hint) == (text, hint)
