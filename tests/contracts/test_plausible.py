"""The least and the most that rounding explains."""

from dataclasses import replace

import numpy as np
import pytest

from paritas.contracts.load import load_preset
from paritas.contracts.model import Clause, Family
from paritas.contracts.plausible import ceiling_of, floor_of, implausible
from paritas.records import Reason, Role, State, Verdict

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
        (clause("trust_region_kl"), lambda ell: np.minimum(np.expm1(ell) - ell, 1.0).mean()),
        (clause("distillation_drift"), lambda ell: np.minimum(np.abs(ell), 1.0).mean()),
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


# ---- ceilings


TRAIN, INFERENCE = Role.TRAIN, Role.INFERENCE


def kernels(train, inference, **more):
    return {TRAIN: {"dtype": train}, INFERENCE: {"dtype": inference, **more}}


@pytest.mark.parametrize(
    ("told", "sd", "name"),
    [
        (kernels("float32", "float32"), 2e-5, "float32"),
        (kernels("float32", "float16"), 0.012, "float16"),
        (kernels("bfloat16", "bfloat16"), 0.10, "bfloat16"),
        (kernels("fp32", "bf16"), 0.10, "bfloat16"),
        (kernels("bfloat16", "bfloat16", quantization="w8a8"), 0.12, "int8"),
        (kernels("bfloat16", "bfloat16", quantization="fp8_e4m3"), 0.30, "fp8 e4m3"),
        (kernels("bfloat16", "bfloat16", quantization="fp8"), 0.65, "fp8 e5m2"),
        (kernels("bfloat16", "bfloat16", kv_cache_dtype="fp8_e5m2"), 0.65, "fp8 e5m2"),
        (kernels("bfloat16", "bfloat16", kv_cache_dtype="auto"), 0.10, "bfloat16"),
    ],
)
def test_the_coarsest_format_makes_the_ceiling_of_the_table(told, sd, name):
    """docs/mathematics.md G4, the second table."""
    ceiling = ceiling_of(told)
    assert ceiling is not None
    assert (ceiling.sd, ceiling.number_format, ceiling.layers) == (sd, name, 24)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {TRAIN: {"dtype": "float32"}},  # the other may be coarser
        kernels("float32", "posit16"),
        kernels("bfloat16", "bfloat16", quantization="awq"),
        kernels("bfloat16", "bfloat16", ep=8),
        {**kernels("bfloat16", "bfloat16"), TRAIN: {"dtype": "bfloat16", "extra.experts": "128"}},
    ],
)
def test_what_has_no_rounding_scale_has_no_ceiling(told):
    assert ceiling_of(told) is None


@pytest.mark.parametrize(("layers", "scale"), [("12", 1.0), ("24", 1.0), ("80", 3.0**0.5), ("many", 1.0)])
def test_depth_widens_it_with_the_root_of_the_additions(layers, scale):
    told = kernels("bfloat16", "bfloat16", **{"extra.layers": layers})
    assert ceiling_of(told).sd == pytest.approx(0.10 * scale)


def verdict(lower, estimate=0.2, state=State.VIOLATED, name="tv"):
    told = (name, "all", state, Reason.REFUTED, name, "numerical", estimate, lower, 1.0, 0.01, 9.0, 0.0, 2.0)
    return Verdict(*told, units=9, tokens=99)


def judged(*verdicts, observed=None, **more):
    clauses = tuple(replace(clause(v.statistic, **more), id=v.clause) for v in verdicts)
    return implausible(replace(load_preset("dense-bf16"), clauses=clauses), verdicts, observed=observed)


def test_a_lower_limit_above_what_rounding_gives_is_a_bug():
    (found,) = judged(verdict(0.05), observed=kernels("float32", "bfloat16"))
    assert found.ceiling == pytest.approx(0.04, rel=0.01)
    assert str(found) == (
        "tv in all is surely above 0.05; bfloat16 rounding in 24 layers gives at most 0.0399: a bug, not noise"
    )


def test_an_unbounded_mean_is_compared_itself():
    (found,) = judged(verdict(float("nan"), name="kl_k3"), observed=kernels("float32", "bfloat16"))
    assert str(found).startswith(
        "kl_k3 in all is on average 0.2; bfloat16 rounding in 24 layers gives at most 0.005"
    )


@pytest.mark.parametrize(
    ("one", "observed"),
    [
        (verdict(0.03), kernels("float32", "bfloat16")),  # rounding explains it
        (verdict(0.05, state=State.UNDECIDED), kernels("float32", "bfloat16")),
        (verdict(0.05), None),  # nobody said which formats
        (verdict(0.05, name="pairing_rate"), kernels("float32", "bfloat16")),
    ],
)
def test_anything_else_is_not_accused(one, observed):
    assert judged(one, observed=observed) == ()


def test_a_tail_and_a_quantile_have_no_ceiling():
    """Real log-ratios have heavier tails than the model's: 10 sd at sd 0.05 was seen in public."""
    assert judged(verdict(0.9, name="ratio_tail"), observed=kernels("float32", "bfloat16"), above=2.0) == ()
    assert judged(verdict(0.9, name="kl_k3"), observed=kernels("float32", "bfloat16"), quantile=0.9) == ()


def test_what_is_declared_has_precedence_over_what_is_reported():
    fine = replace(load_preset("dense-bf16"), kernels=kernels("float32", "float32"), clauses=(clause("tv"),))
    one = replace(verdict(0.001), clause="a")
    assert len(implausible(fine, [one], observed=kernels("float32", "bfloat16"))) == 1
