"""Our detectors are river's: its bases, its checks, its wrappers and pipelines, and the bank's own answers."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import EVERYTHING, SEEDS, clause
from river import (
    base,
    compose,
    drift,
    ensemble,
    evaluate,
    feature_extraction,
    forest,
    metrics,
    naive_bayes,
    preprocessing,
    stats,
)
from river.checks import common
from river.datasets import synth

from paritas.detectors.bank import Bank
from paritas.detectors.bets import multipliers
from paritas.detectors.display import Series
from paritas.detectors.river_detectors import BinarySRDetector, BudgetDetector, EProcess, SRDetector
from paritas.detectors.rows import make_row

BASES = {
    SRDetector: base.DriftAndWarningDetector,
    BinarySRDetector: base.BinaryDriftAndWarningDetector,
    BudgetDetector: base.DriftDetector,
    EProcess: base.DriftDetector,
    Series: stats.base.Univariate,
}
DETECTORS = [kind for kind in BASES if kind is not Series]
SITUATIONS = [(kind, parameters) for kind in DETECTORS for parameters in kind._unit_test_params()]
# river's checks of any object; the others feed an estimator with a data set
CHECKS = [
    check
    for name, check in vars(common).items()
    if name.startswith("check_") and list(inspect.signature(check).parameters) == ["model"]
]
OF_ESTIMATORS = {"check_tags", "check_init_has_default_params_for_tests"}  # what river's statistics lack


@pytest.mark.parametrize("kind", BASES)
def test_the_base_is_rivers(kind):
    assert issubclass(kind, BASES[kind])
    assert issubclass(kind, base.Base)


def test_river_still_has_the_checks():
    assert {"check_repr", "check_clone_same_class", "check_pickling_supports_roundtrip"} <= {
        check.__name__ for check in CHECKS
    }
    assert len(CHECKS) >= 14


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: f"{s[0].__name__}-{len(s[1])}")
def test_rivers_checks_pass(situation, check):
    kind, parameters = situation
    check(kind(**parameters))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_rivers_checks_pass_for_the_statistic(check):
    if check.__name__ not in OF_ESTIMATORS:
        check(Series(limit=0.1))


@pytest.mark.parametrize("kind", DETECTORS)
def test_what_rivers_entry_point_asks_for(kind):
    """`check_estimator` needs a data set package we do not install; it asks for no more than this."""
    assert kind()._tags == kind()._unit_test_skips() == set()
    assert kind()._mutable_attributes == set()
    assert not kind()._is_stochastic


@pytest.mark.parametrize("kind", BASES)
def test_update_returns_nothing_as_the_base_says(kind):
    assert kind().update(0.5) is None
    assert inspect.signature(kind.update).parameters.keys() == {"self", "x"}


def test_repr_shows_the_parameters_and_a_clone_takes_new_ones():
    detector = BudgetDetector(limit=0.05, bets=(0.5,))
    told = "BudgetDetector (\n  limit=0.05\n  alpha=0.01\n  period=100000\n  bets=(0.5,)\n)"
    assert repr(detector) == told
    assert repr(detector.clone({"alpha": 0.5})) == told.replace("0.01", "0.5")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: SRDetector(limit=0.0), "limit must be above 0 and finite, got 0.0"),
        (lambda: SRDetector(limit=float("nan")), "limit must be above 0 and finite, got nan"),
        (lambda: SRDetector(threshold=1.0), "threshold must be above 1, got 1.0"),
        (lambda: BinarySRDetector(warning_threshold=0.5), "warning_threshold must be above 1, got 0.5"),
        (lambda: EProcess(alpha=0.0), "alpha must lie between 0 and 1, got 0.0"),
        (lambda: EProcess(bets=()), "bets must lie between 0 and 1, got ()"),
        (lambda: EProcess(bets=(0.5, 1.0)), "bets must lie between 0 and 1, got (0.5, 1.0)"),
        (lambda: BudgetDetector(alpha=1.0), "alpha must lie between 0 and 1, got 1.0"),
        (lambda: BudgetDetector(period=0), "period must be at least 1, got 0"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused(make, told):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        make()
    assert str(error.value) == told


def bank_alarms(values, limit, alpha, period):
    """Alarms of a bank with one row, and its evidence after each unit; an alarm starts the row anew."""
    row = make_row(clause("tv", limit), EVERYTHING, "all", alpha)
    bank = Bank(period_ns=10**12, recover=False)
    bank.add(row)
    up, down = multipliers(row, row.scale.down(np.asarray(values)))
    places, evidence = [], []
    for place, value in enumerate(values):
        told = bank.multiply(
            np.array([0]), np.array([value]), up[[place]], down[[place]], place * 10**12 // period
        )
        evidence.append(bank.evidence("alarm", 0))
        if told.violated.size:
            places.append(place)
            bank.restart_row(0)
    return places, evidence


@settings(max_examples=15)
@given(SEEDS, st.sampled_from([0.01, 0.02, 0.1]), st.sampled_from([10, 1000]), st.floats(0.2, 6.0))
def test_the_budget_detector_decides_as_the_bank(seed, limit, period, level):
    rng = np.random.default_rng(seed)
    values = np.minimum(rng.exponential(limit * level, 150), 1.0)
    detector, places, evidence = BudgetDetector(limit=limit, alpha=0.01, period=period), [], []
    for place, value in enumerate(values):
        detector.update(float(value))
        evidence.append(detector.log_evidence)
        if detector.drift_detected:
            places.append(place)
    wanted, wealth = bank_alarms(values, limit, 0.01, period)
    assert places == wanted
    np.testing.assert_allclose(evidence, wealth, rtol=1e-9, atol=1e-9)


def test_the_comparison_with_the_bank_sees_alarms():
    assert len(bank_alarms(np.full(100, 0.1), 0.02, 0.01, 1000)[0]) > 5
    assert bank_alarms(np.full(100, 0.01), 0.02, 0.01, 1000)[0] == []


def test_the_budget_is_kept_on_a_fair_stream():
    rng, alarmed = np.random.default_rng(6), 0
    for _ in range(100):
        detector = BudgetDetector(limit=0.05, alpha=0.2, period=300)
        detector.update_many(rng.binomial(1, 0.05, 300).astype(float))
        alarmed += detector.drift_detected
    assert 0 < alarmed / 100 <= 0.2


def drifting(n=3000):
    """Labels whose rule changes halfway."""
    one, other = (synth.SEA(seed=42, variant=variant) for variant in (0, 3))
    stream = synth.ConceptDriftStream(stream=one, drift_stream=other, seed=1, position=n // 2, width=50)
    return stream.take(n)


def accuracy(model, n=3000):
    return evaluate.progressive_val_score(drifting(n), model, metrics.Accuracy()).get()


@pytest.mark.parametrize(
    "detector",
    [
        BinarySRDetector(limit=0.1, threshold=1e3, warning_threshold=30),
        SRDetector(limit=0.1, threshold=1e3, warning_threshold=30),
    ],
    ids=lambda d: type(d).__name__,
)
def test_a_retraining_classifier_recovers_from_a_drift(detector):
    model = drift.DriftRetrainingClassifier(naive_bayes.GaussianNB(), detector)
    assert accuracy(model) > accuracy(naive_bayes.GaussianNB()) + 0.02


def test_a_retraining_classifier_without_a_background_model_needs_no_warning():
    model = drift.DriftRetrainingClassifier(
        naive_bayes.GaussianNB(), BudgetDetector(limit=0.1), train_in_background=False
    )
    assert accuracy(model) > accuracy(naive_bayes.GaussianNB())


def test_it_stands_inside_a_pipeline():
    model = compose.Pipeline(
        preprocessing.StandardScaler(),
        drift.DriftRetrainingClassifier(naive_bayes.GaussianNB(), BinarySRDetector(limit=0.1, threshold=1e3)),
    )
    assert accuracy(model) > 0.9
    twin = model.clone()
    assert repr(twin) == repr(model)


def test_an_adaptive_forest_takes_two_of_ours():
    model = forest.ARFClassifier(
        n_models=3,
        seed=8,
        drift_detector=SRDetector(limit=0.1, threshold=1e3),
        warning_detector=SRDetector(limit=0.1, threshold=30),
    )
    assert accuracy(model, 1000) > 0.85
    assert model.n_drifts_detected() > 0


def test_a_boosting_ensemble_with_a_detector_of_ours():
    assert "drift_detector" in inspect.signature(ensemble.SRPClassifier).parameters
    model = ensemble.SRPClassifier(
        naive_bayes.GaussianNB(), n_models=2, seed=8, drift_detector=BudgetDetector(limit=0.1, period=1000)
    )
    assert accuracy(model, 400) > 0.85


def test_a_statistic_links_and_aggregates_as_rivers_own():
    linked = stats.Shift(1) | Series(limit=0.1)
    assert linked.name == "series_of_shift_1"
    for value in (0.2, 0.4, 0.6):
        linked.update(value)
    direct = Series(limit=0.1)
    for value in (0.2, 0.4):
        direct.update(value)
    assert linked.get() == direct.get()
    by_replica = feature_extraction.Agg(on="tv", by="replica", how=Series(limit=0.1))
    for replica, tv in (("a", 0.2), ("b", 0.5), ("a", 0.4)):
        by_replica.learn_one({"replica": replica, "tv": tv})
    assert by_replica.transform_one({"replica": "a"}) == {"tv_series_by_replica": direct.get()}


def test_a_statistic_says_nothing_before_its_first_value():
    assert Series().get() is None
    assert (Series() | stats.Mean()).get() == 0.0
