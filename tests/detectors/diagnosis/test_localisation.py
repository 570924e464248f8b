"""Localisation: a fault planted in one dimension alone is found there, in the first place; growth and sawteeth too."""

from dataclasses import replace

import numpy as np
import pytest
from pair_factory import clause, contract, evaluated, pair, paired

from paritas.detectors.diagnosis import Fingerprint, fingerprints
from paritas.detectors.diagnosis.bets import CLEAR
from paritas.detectors.diagnosis.parts import worst_part
from paritas.detectors.diagnosis.places import Places, labels_at
from paritas.detectors.evidence import PairBatch
from paritas.detectors.explain import explain
from paritas.detectors.verdicts import verdicts

TIGHT = contract(clause("tv", 0.01))
LENGTH, TIMES = 120, 4.0
SIZES = {
    "replica": 4,
    "environment": 3,
    "adapter": 3,
    "prefix_cache": 2,
    "turn": 3,
    "slice": 5,
    "gpu": 2,
    "weights_version": 4,
    "weights_lag": 3,
}
BAD = "1"


def labelled(rng, number, told):
    """Return a sequence of even noise with some labels; versions and lags are fields, not attributes."""
    q = -rng.exponential(1.5, LENGTH)
    attributes = {name: value for name, value in told.items() if not name.startswith("weights")}
    one = pair(0.03 * rng.standard_t(5, LENGTH), q, name=f"s-{number}", attributes=attributes)
    return replace(one, weights_version=told["weights_version"], lag=int(told["weights_lag"]))


def traffic(seed, sequences, change):
    """Return sequences with a value of every dimension; `change` of (labels, q, noise) gives the noise back."""
    rng = np.random.default_rng(seed)
    for number in range(sequences):
        told = {name: str(rng.integers(size)) for name, size in SIZES.items()}
        one = labelled(rng, number, told)
        yield replace(one, log_ratio=change(told, one.logprob_q, one.log_ratio))


def first_finding(pairs, whole=TIGHT):
    """Return what is named first of sequences that violate a tight limit."""
    evaluator = evaluated(whole, [paired(one) for one in pairs])
    return explain(evaluator, verdicts(evaluator))[0]


def nothing_planted(told, q, noise):
    return noise


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", SIZES)
def test_a_fault_in_one_value_of_one_dimension_is_found_there_first(name, seed):
    def planted(told, q, noise):
        return TIMES * noise if told[name] == BAD else noise

    facts = first_finding(traffic(seed, 220, planted)).facts
    assert facts["worst"] == f"{name}={BAD}"
    assert facts["worst_times"] > 0.7 * TIMES
    assert facts["worst_log10_e"] >= CLEAR
    assert "worst_part" not in facts


def in_positions(first, last):
    def planted(told, q, noise):
        place = np.arange(len(noise))
        return np.where((place >= first) & (place <= last), TIMES * noise, noise)

    return planted


def in_band(low, high):
    def planted(told, q, noise):
        return np.where((np.exp(q) >= low) & (np.exp(q) < high), TIMES * noise, noise)

    return planted


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("planted", "part"),
    [
        (in_positions(0, 0), "first token"),
        (in_positions(1, 3), "tokens 1 to 3"),
        (in_positions(4, 15), "tokens 4 to 15"),
        (in_positions(16, 63), "tokens 16 to 63"),
        (in_positions(64, 255), "tokens 64 to 255"),
        (in_positions(LENGTH - 1, LENGTH - 1), "last token"),
        (in_band(0.9, 1.1), "q above 0.9"),
        (in_band(0.5, 0.9), "q 0.5 to 0.9"),
        (in_band(0.1, 0.5), "q 0.1 to 0.5"),
        (in_band(0.01, 0.1), "q 0.01 to 0.1"),
        (in_band(0.0, 0.01), "q below 0.01"),
    ],
    ids=lambda told: told if isinstance(told, str) else "",
)
def test_a_fault_in_one_part_of_the_responses_is_found_there_first(planted, part, seed):
    facts = first_finding(traffic(seed, 160, planted)).facts
    assert facts["worst_part"] == part
    assert facts["worst_part_times"] > 0.7 * TIMES
    assert facts["worst_part_log10_e"] >= CLEAR
    assert "worst" not in facts


def test_even_noise_is_nowhere_worst_and_does_not_move():
    for seed in range(6):
        facts = first_finding(traffic(seed, 220, nothing_planted)).facts
        assert not {"worst", "worst_part", "sawtooth_log10_e", "trend_log10_e"} & set(facts), facts


def test_no_place_and_no_part_is_clear_by_chance_more_often_than_evidence_allows():
    """One in twenty at most, whenever one looks; heavy tails, no band or position differs by nature."""
    found = []
    for seed in range(40):
        pairs = list(traffic(100 + seed, 60, nothing_planted))
        units = fingerprints(PairBatch.of(pairs))
        places = Places()
        for one, unit in zip(pairs, units, strict=True):
            places.fold(labels_at(one), unit)
        found.append((places.worst() is not None, worst_part(Fingerprint(units.sum(axis=0))) is not None))
    assert np.mean(found, axis=0) == pytest.approx([0.0, 0.0], abs=0.05)


# ---- over weights versions


def over_versions(seed, versions, each, size):
    """Return sequences of some versions one after the other; `size` of (version, part of it) is the noise's."""
    rng = np.random.default_rng(seed)
    for version in range(versions):
        for number in range(each):
            noise = size(version, number / each) * rng.standard_t(5, LENGTH)
            one = pair(noise, -rng.exponential(1.5, LENGTH), name=f"v{version}-{number}")
            yield replace(one, weights_version=str(version))


MOVES = {
    "grows slowly over the versions": (lambda version, part: 0.02 * 1.05 ** (version + part), {"trend"}),
    "grows between updates, falls at each": (lambda version, part: 0.02 + 0.06 * part, {"sawtooth"}),
    "stays as it is": (lambda version, part: 0.03, set()),
    "shrinks": (lambda version, part: 0.1 * 0.95 ** (version + part), set()),
    "differs from version to version": (lambda version, part: (0.02, 0.08)[version % 2], set()),
    "falls between updates, rises at each": (lambda version, part: 0.08 - 0.06 * part, set()),
}


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_drift_that_moves_with_the_versions_is_told_and_no_other_is(move):
    size, wanted = MOVES[move]
    found = first_finding(over_versions(1, 24, 32, size))
    told = {name for name in ("trend", "sawtooth") if f"{name}_log10_e" in found.facts}
    assert told == wanted
    assert found.cause == "stale_weights" or "sawtooth" not in wanted
