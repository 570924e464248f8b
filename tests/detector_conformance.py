"""What every streaming detector must keep to, as functions: one subject and one stream each.

A subject tells how to make a detector, feed it one value and read what it says; the checks
know nothing else.  `test_conformance` runs every check on every subject.
"""

import copy
import json
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from pair_factory import EVERYTHING, clause

from paritas.detectors.bank import Bank
from paritas.detectors.display import Series
from paritas.detectors.river_detectors import BETS, BinarySRDetector, BudgetDetector, EProcess, SRDetector
from paritas.detectors.rows import GRID, make_row
from paritas.detectors.sequential import StartMass, log_mean
from paritas.detectors.table import factors

LIMIT = 0.02
MANY = 100_000
PERIOD = 10


class BankRow:
    """A bank with one row, behind the face of a river detector; its flag tells of a new violation."""

    def __init__(self):
        self.row = make_row(clause("tv", LIMIT), EVERYTHING, "all", 1e-3)
        self.bank = Bank(period_ns=10**12, recover=False)
        self.bank.add(self.row)
        self.drift_detected = False

    def update(self, value):
        y = self.row.scale.down(np.array([value]))
        told = self.bank.fold(np.array([0]), y, *factors(self.row, y), 0)
        self.drift_detected = bool(told.violated.size)


def bank_evidence(detector):
    return float(log_mean(detector.bank.log_alarm)[0])


def bank_state(detector):
    return {k: v.tolist() for k, v in vars(detector.bank).items() if isinstance(v, np.ndarray)}


def direct_bank(values):
    """Sum over starts of mass times the product of what follows, averaged over bets."""
    mass = StartMass().of(np.arange(1, len(values) + 1), np.zeros(len(values)))
    return _log(sum(mass[j] * _products(GRID.up(LIMIT), values[j:]) for j in range(len(values))))


def direct_budget(values):
    """The same with a period of ten values instead of hours."""
    places = np.arange(1, len(values) + 1)
    mass = StartMass().of(places, np.where(places == 1, 0.0, 1.0 / PERIOD))
    return _log(sum(mass[j] * _products(GRID.up(LIMIT), values[j:]) for j in range(len(values))))


def direct_sr(values):
    bets = np.array(BETS) / LIMIT
    return _log(sum(_products(bets, values[j:]) for j in range(len(values))))


def direct_process(values):
    return _log(_products(np.array(BETS) / LIMIT, values))


def _products(bets, values):
    return np.prod(1.0 + np.outer(bets, np.asarray(values) - LIMIT), axis=1)


def _log(wealth):
    mean = float(np.mean(wealth))
    return math.log(mean) if mean > 0 else -math.inf


@dataclass(frozen=True)
class Subject:
    """One detector as the checks see it; what it does not have is None."""

    name: str
    make: Callable
    state: Callable
    evidence: Callable | None = None
    direct: Callable | None = None
    bad_counts_as: float | None = None
    river: bool = False
    many: int = MANY
    is_binary: bool = False
    start: dict = field(default_factory=dict)

    def fed(self, values):
        """Return a new detector that has seen `values`."""
        return feed(self.make(), values)


def feed(detector, values):
    for value in values:
        detector.update(float(value))
    return detector


def alarms(detector, values):
    """Feed values; return the places at which the flag was up."""
    places = []
    for place, value in enumerate(values):
        detector.update(float(value))
        if detector.drift_detected:
            places.append(place)
    return places


def river_state(detector):
    """What a river detector holds and says."""
    flags = {name: getattr(detector, name, None) for name in ("drift_detected", "warning_detected")}
    return {**detector.state_dict(), **flags}


def river_subject(detector_class, direct, wealth, *, is_binary=False, many=MANY, **parameters):
    """A river detector of ours; `wealth` is that of its bets before the first value."""
    return Subject(
        detector_class.__name__,
        lambda: detector_class(limit=LIMIT, **parameters),
        river_state,
        lambda d: d.log_evidence,
        direct,
        bad_counts_as=1.0,
        river=True,
        start={"n_units": 0, "n_bad": 0, "wealth": wealth},
        is_binary=is_binary,
        many=many,
    )


SUBJECTS = (
    river_subject(SRDetector, direct_sr, [None] * 8, threshold=1e3, warning_threshold=50.0),
    river_subject(EProcess, direct_process, [0.0] * 8, alpha=1e-3),
    river_subject(
        BinarySRDetector, direct_sr, [None] * 8, is_binary=True, threshold=1e3, warning_threshold=50.0
    ),
    river_subject(BudgetDetector, direct_budget, [None] * 10, many=20_000, alpha=1e-3, period=PERIOD),
    Subject("Bank", BankRow, bank_state, bank_evidence, direct_bank, many=5_000),
    Subject("Series", lambda: Series(LIMIT), lambda d: {**d.as_dict(), "skipped": d.skipped}),
)


def same(a, b):
    """Whether two states are equal, bit for bit and NaN for NaN."""
    return repr(a) == repr(b)


def check_empty(subject, _values):
    """A new detector says nothing, and every new one says the same."""
    one, other = subject.make(), subject.make()
    assert same(subject.state(one), subject.state(other))
    assert not getattr(one, "drift_detected", False)
    for name, value in subject.start.items():
        assert subject.state(one)[name] == value, name


def check_repeatable(subject, values):
    """Equal values give equal states."""
    assert same(subject.state(subject.fed(values)), subject.state(subject.fed(values)))


def check_direct(subject, values):
    """What it says equals the formula, written down on its own, up to the first alarm."""
    if subject.direct is None:
        return
    detector, seen = subject.make(), []
    for value in values[:300]:
        seen.append(value)
        detector.update(float(value))
        if detector.drift_detected:
            break
    assert math.isclose(subject.evidence(detector), subject.direct(seen), rel_tol=1e-9, abs_tol=1e-9)


def check_split(subject, values):
    """Cutting the stream into pieces, whatever their lengths, changes no bit and no alarm."""
    if not subject.river:
        return
    pieces = np.split(np.asarray(values), np.sort(np.random.default_rng(1).integers(0, len(values) + 1, 7)))
    whole, cut = subject.make(), subject.make()
    found, place = [], 0
    for piece in pieces:
        rest = piece
        while len(rest):
            taken = cut.update_many(rest)
            place, rest = place + taken, rest[taken:]
            if cut.drift_detected:
                found.append(place - 1)
    assert found == alarms(whole, values)
    assert same(subject.state(cut), subject.state(whole))


def check_flag(subject, values):
    """The flag is up until the next value and no longer; then the test starts afresh."""
    if not subject.river:
        return
    detector = subject.make()
    for place, value in enumerate(values[:-1]):
        detector.update(float(value))
        if detector.drift_detected:
            following = float(values[place + 1])
            detector.update(following)
            assert same(subject.state(detector), subject.state(subject.fed([following])))
            return


def check_reset(subject, values):
    """A reset forgets everything but the parameters."""
    if not subject.river:
        return
    detector = subject.fed(values)
    detector._reset()
    assert same(subject.state(detector), subject.state(subject.make()))


def check_state_dict(subject, values):
    """State survives JSON, at any place, and goes on as if nothing had happened."""
    if not subject.river:
        return
    half = len(values) // 2
    restored = subject.make()
    restored.load_state_dict(json.loads(json.dumps(subject.fed(values[:half]).state_dict())))
    assert same(subject.state(feed(restored, values[half:])), subject.state(subject.fed(values)))


def check_clone(subject, values):
    """A clone has the parameters and none of the state; with attributes, both."""
    if not subject.river:
        return
    detector = subject.fed(values)
    clone = detector.clone()
    assert clone._get_params() == detector._get_params()
    assert same(subject.state(clone), subject.state(subject.make()))
    assert same(subject.state(detector.clone(include_attributes=True)), subject.state(detector))


def check_pickle(subject, values):
    """A pickle goes on where it was taken."""
    half = len(values) // 2
    restored = pickle.loads(pickle.dumps(subject.fed(values[:half])))
    assert same(subject.state(feed(restored, values[half:])), subject.state(subject.fed(values)))


def check_deepcopy(subject, values):
    """A copy shares nothing with the original."""
    half = len(values) // 2
    original = subject.fed(values[:half])
    before = repr(subject.state(original))
    twin = feed(copy.deepcopy(original), values[half:])
    assert repr(subject.state(original)) == before
    assert same(subject.state(twin), subject.state(subject.fed(values)))


def check_fail_closed(subject, values):
    """What cannot be read counts as the worst value, or is left out and counted; it poisons nothing."""
    bad = (math.nan, math.inf, -math.inf, -1.0)
    if subject.bad_counts_as is not None:
        ours, wanted = subject.fed([*values[:20], *bad]), subject.fed([*values[:20], *[1.0] * 4])
        assert ours.log_evidence == wanted.log_evidence
    if subject.name == "Series":
        told = subject.state(feed(subject.fed(values), bad[:3]))
        assert same({**told, "skipped": 0}, subject.state(subject.fed(values)))
        assert told["skipped"] == 3


CHECKS = (
    check_empty,
    check_repeatable,
    check_direct,
    check_split,
    check_flag,
    check_reset,
    check_state_dict,
    check_clone,
    check_pickle,
    check_deepcopy,
    check_fail_closed,
)


def pickled_size(detector):
    return len(pickle.dumps(detector))
