"""F: declare one level, derive every level below it."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from softmax_pairs import (
    SEEDS,
    SHAPES,
    Mismatched,
    Pairs,
    assert_holds,
    kl_inference_to_train,
    mismatched_pairs,
    random_pairs,
    total_variation,
    tree_of,
)

from paritas.contracts.bounds import (
    TokenBudgets,
    bias_from_oscillation,
    bias_from_tv,
    bias_statistic,
    derive_from_gradient_bias,
    derive_from_reward_drift,
    derive_from_sequence_tv,
    derive_from_token_tv,
    forecast_sequence_tv,
    forecast_sequence_tv_from_kl,
    forecast_sequence_tv_from_sup,
    forecast_sequence_tv_sqrt,
    tv_from_kl,
)
from paritas.contracts.model import Estimator
from paritas.errors import ContractError

numbers = settings(max_examples=100, deadline=None)


def named(estimator):
    return f"{estimator.kind}-{estimator.low}-{estimator.cap}-{estimator.clip}"


THETAS = st.floats(1e-9, 0.999)
HORIZONS = st.integers(1, 100_000)
ESTIMATORS = (
    Estimator(kind="none"),
    Estimator(kind="tis", cap=1.0),
    Estimator(kind="tis", cap=2.0),
    Estimator(kind="clip", clip=0.0),
    Estimator(kind="clip", clip=0.2),
    Estimator(kind="clip", clip=2.0),
    Estimator(kind="mis", low=0.5, cap=2.0),
    Estimator(kind="mis", cap=1.5),
    Estimator(kind="ppo_min", clip=0.2),
)


@numbers
@given(THETAS, HORIZONS, st.floats(0.01, 1.0), st.floats(0.1, 3.0))
def test_every_line_alone_suffices_for_the_declared_level(theta, horizon, share, temperature):
    mean = max(1.0, share * horizon)
    budget = derive_from_sequence_tv(theta, horizon=horizon, mean_tokens=mean, temperature=temperature)
    for forecast in (
        forecast_sequence_tv_from_sup(budget.token_tv_sup, horizon),
        forecast_sequence_tv_sqrt(budget.oscillation, horizon),
        forecast_sequence_tv(min(budget.token_tv_mean, 1.0), mean),
        forecast_sequence_tv_from_kl(budget.kl_token, mean),
    ):
        assert forecast == pytest.approx(theta, rel=1e-9, abs=0.0)
    assert budget.logit_oscillation == pytest.approx(temperature * budget.oscillation, rel=1e-9, abs=0.0)
    assert budget.logit_sup == budget.logit_oscillation / 2
    assert budget.logit_l2 == pytest.approx(budget.logit_oscillation / math.sqrt(2), rel=1e-9, abs=0.0)
    assert budget.sequence_kl == pytest.approx(budget.kl_token * mean, rel=1e-9, abs=0.0)


def scaled(rows, size, limit):
    """Rows whose drift is stretched until `size` of it equals the limit; no drift stays none."""
    factor = limit / np.where(size > 0, size, np.inf)
    return Pairs(rows.logits, rows.drift * factor[:, None], np.ones(len(size)))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.floats(0.001, 0.95), st.sampled_from(SHAPES))
def test_kernels_at_the_edge_of_a_derived_logit_budget_keep_the_declared_one(seed, theta, shape):
    rng = np.random.default_rng(seed)
    rows = random_pairs(rng, 5, shape=shape)
    budget = derive_from_sequence_tv(theta, horizon=1)
    for size, limit in (
        (np.ptp(rows.drift, axis=1), budget.logit_oscillation),
        (np.abs(rows.drift).max(1), budget.logit_sup),
        (np.linalg.norm(rows.drift - rows.drift.mean(1, keepdims=True), axis=1), budget.logit_l2),
    ):
        at_edge = scaled(rows, size, limit)
        assert_holds(total_variation(at_edge.p, at_edge.q), theta)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.floats(0.001, 0.95), st.sampled_from(SHAPES))
def test_sequences_at_the_edge_of_a_derived_oscillation_keep_the_declared_one(seed, theta, shape):
    rng = np.random.default_rng(seed)
    limit = derive_from_sequence_tv(theta, horizon=3).logit_oscillation
    steps = [random_pairs(rng, 3, 10 * 3**t, shape=shape) for t in range(3)]
    tree = tree_of([scaled(one, np.ptp(one.drift, axis=1), limit) for one in steps], 10, 3)
    assert_holds(tree.sequence_tv, theta)


@numbers
@given(THETAS, st.floats(1e-3, 0.999), HORIZONS)
def test_f7_holds_for_whole_budgets(theta, shrink, horizon):
    loose = derive_from_sequence_tv(theta, horizon=horizon)
    tight = derive_from_sequence_tv(theta * shrink, horizon=horizon)
    longer = derive_from_sequence_tv(theta, horizon=2 * horizon)
    for name in ("token_tv_sup", "token_tv_mean", "kl_token", "oscillation", "logit_sup", "logit_l2"):
        assert getattr(tight, name) <= getattr(loose, name) * (1 + 1e-12)
        assert getattr(longer, name) <= getattr(loose, name) * (1 + 1e-12)


def test_reward_drift_is_sequence_tv_of_its_range():
    reward = derive_from_reward_drift(0.04, reward_range=(-1.0, 1.0), horizon=100, mean_tokens=40.0)
    assert reward == derive_from_sequence_tv(0.02, horizon=100, mean_tokens=40.0)


def test_zero_means_bitwise_and_one_means_nothing():
    zero = derive_from_sequence_tv(0.0, horizon=100)
    assert zero.bitwise
    assert not zero.vacuous
    assert (zero.token_tv_sup, zero.token_tv_mean, zero.kl_token, zero.logit_l2) == (0.0, 0.0, 0.0, 0.0)
    one = derive_from_sequence_tv(1.0, horizon=100)
    assert one.vacuous
    assert not one.bitwise
    assert (one.token_tv_sup, one.token_tv_mean, one.kl_token, one.logit_l2) == (1.0, 1.0, math.inf, math.inf)


@pytest.mark.parametrize(("drift", "ends"), [(1.0, (0.0, 1.0)), (7.0, (0.0, 1.0)), (0.0, (3.0, 3.0))])
def test_a_reward_budget_as_wide_as_the_range_asks_for_nothing(drift, ends):
    assert derive_from_reward_drift(drift, reward_range=ends, horizon=100).vacuous


def test_one_token_makes_the_two_oscillation_routes_equal():
    budget = derive_from_sequence_tv(0.3, horizon=1)
    assert budget.oscillation == pytest.approx(derive_from_token_tv(budget.token_tv_sup).oscillation)
    assert budget.oscillation == pytest.approx(4 * math.atanh(0.3))


def test_temperature_zero_leaves_no_logit_budget():
    cold = derive_from_sequence_tv(0.1, horizon=10, temperature=0.0)
    assert (cold.logit_oscillation, cold.logit_sup, cold.logit_l2) == (0.0, 0.0, 0.0)
    assert cold.oscillation > 0
    assert derive_from_sequence_tv(1.0, horizon=10, temperature=0.0).logit_oscillation == math.inf


def test_an_infinite_horizon_is_refused():
    with pytest.raises(ContractError, match=r"^no budget can be derived without a horizon$") as caught:
        derive_from_sequence_tv(0.1, horizon=math.inf)
    assert caught.value.hint == "set max_tokens"


def test_budgets_pickle():
    budget = derive_from_sequence_tv(0.1, horizon=10)
    assert pickle.loads(pickle.dumps(budget)) == budget
    assert isinstance(budget, TokenBudgets)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: derive_from_sequence_tv(2.0, horizon=9), "sequence_tv must be between 0 and 1, got 2"),
        (
            lambda: derive_from_sequence_tv(math.nan, horizon=9),
            "sequence_tv must be between 0 and 1, got nan",
        ),
        (lambda: derive_from_sequence_tv(0.1, horizon=None), "no budget can be derived without a horizon"),
        (
            lambda: derive_from_sequence_tv(0.1, horizon=9, mean_tokens=10.0),
            "mean_tokens must be above 0 and at most max_tokens (9), got 10",
        ),
        (
            lambda: derive_from_sequence_tv(0.1, horizon=9, mean_tokens=0.0),
            "mean_tokens must be above 0 and at most max_tokens (9), got 0",
        ),
        (
            lambda: derive_from_sequence_tv(0.1, horizon=9, temperature=-1.0),
            "temperature must be a finite number, 0 or more, got -1",
        ),
        (
            lambda: derive_from_gradient_bias(math.nan, ESTIMATORS[0]),
            "gradient_bias must be a finite number, 0 or more, got nan",
        ),
        (lambda: derive_from_token_tv(1.5), "token_tv must be between 0 and 1, got 1.5"),
        (
            lambda: derive_from_reward_drift(math.nan, reward_range=(0.0, 1.0), horizon=9),
            "reward_drift must be a finite number, 0 or more, got nan",
        ),
    ],
)
def test_what_a_contract_can_get_wrong(call, text):
    with pytest.raises(ContractError) as caught:
        call()
    assert str(caught.value) == text


BETAS = st.floats(1e-6, 0.95)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=named)
@settings(max_examples=40, deadline=None)
@given(beta=BETAS)
def test_f6_holds(estimator, beta):
    budget = derive_from_gradient_bias(beta, estimator)
    assert_holds(bias_from_oscillation(budget.oscillation * (1 - 1e-12), estimator), beta + 1e-9)
    assert_holds(bias_from_tv(budget.token_tv_mean, estimator), beta)
    assert_holds(tv_from_kl(budget.kl_token), budget.token_tv_mean)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=named)
@settings(max_examples=40, deadline=None)
@given(beta=BETAS)
def test_f6_is_reached(estimator, beta):
    budget = derive_from_gradient_bias(beta, estimator)
    assert bias_from_oscillation(budget.oscillation * (1 + 1e-6) + 1e-12, estimator) >= beta * (1 - 1e-3)
    assert bias_from_tv(budget.token_tv_mean, estimator) == pytest.approx(beta, rel=1e-9, abs=0.0)


@settings(max_examples=40, deadline=None)
@given(mismatched_pairs(), st.sampled_from(ESTIMATORS[:6]))
def test_f6_mean_tv_budget_keeps_the_bias_with_missing_mass(rows, estimator):
    """The TV line of a budget is met with equality by construction: beta is set from the rows' own TV."""
    factor = 1.0 if estimator.kind == "tis" else 1.0 + max(1.0 - (estimator.clip or 0.0), 0.0)
    tv = total_variation(rows.p, rows.q)
    allowed = np.array(
        [derive_from_gradient_bias(min(factor * t, factor), estimator).token_tv_mean for t in tv]
    )
    assert_holds(tv, allowed)
    assert_holds((rows.q * bias_statistic(rows.log_ratio, estimator)).sum(1), factor * tv)


def test_gradient_budgets_of_the_table():
    none = derive_from_gradient_bias(0.1, Estimator(kind="none"))
    assert (none.token_tv_mean, none.ratio_mean_floor) == (0.05, None)
    assert none.kl_token == pytest.approx(0.1**2 / 2, rel=2e-3, abs=0.0)
    assert none.oscillation == pytest.approx(4 * math.atanh(0.05))
    truncated = derive_from_gradient_bias(0.1, Estimator(kind="tis", cap=1.0), temperature=2.0)
    assert truncated.oscillation == pytest.approx(4 * math.atanh(0.1))
    assert truncated.logit_oscillation == pytest.approx(2 * truncated.oscillation)
    assert truncated.ratio_mean_floor == 0.9
    full = derive_from_gradient_bias(0.1, Estimator(kind="is", cap=2.0))
    assert full.vacuous  # with one support nothing is left to bias it
    assert (full.token_tv_mean, full.ratio_mean_floor) == (0.1, 0.9)
    masked = derive_from_gradient_bias(0.0, Estimator(kind="mis", low=0.5, cap=1.2))
    assert masked.oscillation == pytest.approx(math.log(1.2))
    assert masked.token_tv_mean == 0.0


def test_gradient_budgets_without_constraint():
    for estimator in ESTIMATORS:
        budget = derive_from_gradient_bias(2.0, estimator)
        assert budget.vacuous
        assert (budget.token_tv_mean, budget.kl_token) == (1.0, math.inf)
        assert budget.ratio_mean_floor in (None, 0.0)
    assert not derive_from_gradient_bias(1.5, Estimator(kind="none")).vacuous
    assert derive_from_gradient_bias(1.0, Estimator(kind="tis")).vacuous


def test_a_mask_threshold_at_one_lets_no_tv_suffice():
    budget = derive_from_gradient_bias(0.5, Estimator(kind="ppo_min", clip=0.0))
    assert (budget.token_tv_mean, budget.kl_token, budget.oscillation) == (0.0, 0.0, 0.0)


def test_kl_line_is_met_by_real_pairs():
    rows = random_pairs(np.random.default_rng(5), 7, drift_scale=0.05)
    beta = 2 * tv_from_kl(kl_inference_to_train(rows)).max()
    budget = derive_from_gradient_bias(float(beta), Estimator(kind="none"))
    assert (kl_inference_to_train(rows) <= budget.kl_token * (1 + 1e-9)).all()
    laws = Mismatched(rows.p, rows.q)
    assert_holds((rows.q * bias_statistic(laws.log_ratio, Estimator(kind="none"))).sum(1), beta)
