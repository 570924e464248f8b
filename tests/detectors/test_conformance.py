"""Every detector keeps to every rule, on quiet, loud, rare, empty and random streams."""

import math

import numpy as np
import pytest
from detector_conformance import CHECKS, LIMIT, SUBJECTS, feed, pickled_size
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS

from paritas.detectors.river_detectors import BinarySRDetector, BudgetDetector, EProcess, SRDetector

NAMES = [s.name for s in SUBJECTS]


def stream(kind, seed, n):
    rng = np.random.default_rng(seed)
    match kind:
        case "quiet":
            return rng.exponential(LIMIT / 3, n)
        case "loud":
            return rng.exponential(LIMIT * 4, n)
        case "rare":
            return rng.binomial(1, LIMIT, n).astype(float)
        case "zeros":
            return np.zeros(n)
        case _:
            return np.concatenate(
                [rng.exponential(LIMIT / 2, n // 2), rng.exponential(LIMIT * 3, n - n // 2)]
            )


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__.removeprefix("check_"))
@pytest.mark.parametrize("subject", SUBJECTS, ids=NAMES)
@settings(max_examples=8)
@given(st.sampled_from(["quiet", "loud", "rare", "zeros", "change"]), SEEDS, st.integers(2, 200))
def test_every_detector_keeps_every_rule(subject, check, kind, seed, n):
    check(subject, seen_by(subject, stream(kind, seed, n)))


def seen_by(subject, values):
    """A detector of bits sees whether a value is large."""
    return (values > LIMIT * 2).astype(float) if subject.is_binary else values


@pytest.mark.parametrize("subject", SUBJECTS, ids=NAMES)
def test_memory_does_not_grow(subject):
    values = seen_by(subject, stream("quiet", 3, subject.many))
    detector = feed(subject.make(), values[: subject.many // 10])
    size = pickled_size(detector)
    assert pickled_size(feed(detector, values[subject.many // 10 :])) <= 1.2 * size + 200


def test_the_checks_see_alarms():
    """The loud streams above do alarm, so that the checks of flags and resets are not empty."""
    for subject in SUBJECTS[:-1]:
        detector, alarmed, warned = subject.make(), False, False
        for value in seen_by(subject, stream("loud", 5, 150)):
            detector.update(float(value))
            alarmed |= detector.drift_detected
            warned |= getattr(detector, "warning_detected", True)
        assert alarmed, subject.name
        assert warned, subject.name


def test_bad_values_are_counted():
    for detector in (SRDetector(threshold=1e30), EProcess(alpha=1e-30), BudgetDetector(alpha=1e-30)):
        feed(detector, [0.1, math.nan, math.inf, -0.5])
        assert (detector.n_units, detector.n_bad) == (4, 3)


def test_a_detector_of_bits_takes_anything_else_for_an_error():
    detector, errors = BinarySRDetector(threshold=1e30), BinarySRDetector(threshold=1e30)
    feed(detector, [0.5, math.nan, 2.0, -1.0, True, False, np.bool_(True)])
    feed(errors, [1, 1, 1, 1, 1, 0, 1])
    assert detector.n_bad == 4
    assert detector.log_evidence == errors.log_evidence


def test_an_alarm_stops_update_many_at_its_value():
    detector = SRDetector(limit=0.01, threshold=100.0)
    taken = detector.update_many(np.full(1000, 0.5))
    assert 0 < taken < 10
    assert detector.drift_detected
    assert detector.update_many(np.zeros(3)) == 3
    assert detector.n_units == 3


def test_thresholds_are_the_ones_asked_for():
    assert math.exp(SRDetector(threshold=1e4)._log_threshold()) == pytest.approx(1e4)
    assert math.exp(EProcess(alpha=0.01)._log_threshold()) == pytest.approx(100.0)


def test_the_classic_detector_alarms_no_more_often_than_units_over_threshold():
    rng, alarmed = np.random.default_rng(4), 0
    for _ in range(300):
        detector = SRDetector(limit=0.05, threshold=2000.0)
        detector.update_many(rng.binomial(1, 0.05, 400).astype(float))
        alarmed += detector.drift_detected
    assert 0 < alarmed / 300 <= 400 / 2000


def test_the_e_process_alarms_no_more_often_than_alpha():
    rng, alarmed = np.random.default_rng(4), 0
    for _ in range(400):
        process = EProcess(limit=0.05, alpha=0.1)
        process.update_many(rng.binomial(1, 0.05, 300).astype(float))
        alarmed += process.drift_detected
    assert 0 < alarmed / 400 <= 0.1
