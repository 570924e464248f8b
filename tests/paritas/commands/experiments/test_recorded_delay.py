"""Recorded faults in healthy streams: what is drawn, what the contract says of it, and how it is counted."""

from dataclasses import replace

import numpy as np
import pytest
from river import drift

from paritas.commands.experiments.framework_numbers import NUMBERS, STEPS, WARM, Sums, detectors, watchers
from paritas.commands.experiments.peers import page_hinkley
from paritas.commands.experiments.precision_ladder import HEALTHY
from paritas.commands.experiments.recorded import REPLICAS, folder_of, outcomes_of
from paritas.commands.experiments.recorded_delay import median_delay, run
from paritas.commands.experiments.recorded_monitor import Monitor
from paritas.commands.experiments.recorded_ratios import TARGET, ratio, spread
from paritas.commands.experiments.recorded_streams import (
    CHANGE,
    EVERYWHERE,
    ONE_PROMPT,
    ONE_REPLICA,
    SHARES,
    UNITS,
    Draw,
    Pool,
    healthy_of,
)
from paritas.commands.experiments.result import Setting
from paritas.contracts.load import load_named
from paritas.contracts.model import Stage
from paritas.detectors.crossings import Change
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.pairs import PairOutcome
from paritas.detectors.rosetta import rosetta
from paritas.records import PairReason

FOLDER = folder_of(Setting())
CONTRACT = load_named("dense-bf16")


@pytest.fixture(scope="module")
def pool():
    return Pool(outcomes_of(FOLDER, "healthy", "healthy"), outcomes_of(FOLDER, "healthy", "stale"))


def drawn(pool, streams=3, seed=0):
    return Draw.of(np.random.default_rng(seed), len(pool.kinds), (UNITS, streams))


@pytest.mark.parametrize("share", SHARES)
def test_the_fault_begins_at_the_change_and_where_it_should(pool, share):
    draw = drawn(pool)
    faulty = pool.places(draw, share) >= len(pool.pairs) // 2
    unit = np.arange(UNITS)[:, None]
    wanted = {
        EVERYWHERE: unit >= CHANGE,
        ONE_REPLICA: (unit >= CHANGE) & (unit % REPLICAS == 2),
        ONE_PROMPT: (unit >= CHANGE) & (draw.kind == pool.kinds.index("math")),
    }[share]
    assert (faulty == np.broadcast_to(wanted, faulty.shape)).all()
    assert not (pool.places(draw, "") >= len(pool.pairs) // 2).any()


def test_prompts_are_of_the_kind_that_was_drawn_on_both_sides(pool):
    draw = drawn(pool)
    for share in ("", EVERYWHERE):
        places = pool.places(draw, share)
        kinds = np.array([pair.attributes["slice"] for pair in pool.pairs])[places]
        assert (kinds == np.array(pool.kinds)[draw.kind]).all()


def test_no_metadata_tells_a_faulty_sequence_from_a_healthy_one():
    pool = Pool(outcomes_of(FOLDER, "healthy", "healthy"), outcomes_of(FOLDER, "top_p", "top_p"))
    names = ("weights_version", "inference", "train", "sampling", "train_sampling", "lag")
    assert len({tuple(repr(getattr(pair, name)) for name in names) for pair in pool.pairs}) == 1


@pytest.mark.parametrize(("fault", "healthy"), [("stale", "healthy"), ("top_p", "healthy")])
def test_a_fault_is_put_into_what_it_was_recorded_beside(fault, healthy):
    assert healthy_of(FOLDER, fault, tuple(HEALTHY)) == healthy


def told(pool, places, kinds):
    """The evaluator's first violation in a stream, in sequences, and its largest evidence."""
    evaluator, first = Evaluator(CONTRACT, stage=Stage.OFFLINE_CI, recover=False), UNITS + 1
    period_ns = round(CONTRACT.false_alarms.per_s * 1e9)
    outcomes = []
    for unit, place in enumerate(places.tolist()):
        labels = {"slice": pool.kinds[kinds[unit]], "replica": f"r{unit % REPLICAS}"}
        event_ns = unit * period_ns // UNITS
        pair = replace(pool.pairs[place], attributes=labels)
        outcomes.append(PairOutcome(PairReason.PAIRED, "", str(unit), "", event_ns, labels, pair))
    for crossing in evaluator.observe(outcomes):
        if crossing.change is Change.VIOLATED:
            first = min(first, sum(evaluator.reasons.values()))
    return first, float((evaluator.bank.peak - evaluator.bank.log_threshold).max())


@pytest.mark.slow
@pytest.mark.parametrize("share", SHARES)
def test_many_streams_at_once_are_the_evaluator_alarm_by_alarm(pool, share):
    draw = drawn(pool, streams=2, seed=4)
    places = pool.places(draw, share)
    scores = Monitor.of(CONTRACT, pool).scores(draw.kind, places)
    for stream in range(2):
        first, peak = told(pool, places[:, stream], draw.kind[:, stream])
        hit = scores[:, stream] >= 0.0
        assert (int(hit.argmax()) + 1 if hit.any() else UNITS + 1) == first
        assert scores[:, stream].max() == pytest.approx(peak, abs=1e-9)


def test_a_number_is_what_the_framework_logs(pool):
    sums, places = Sums.of(pool), pool.places(drawn(pool, 1), EVERYWHERE)
    for step in STEPS:
        logged = rosetta([pool.pairs[place] for place in places[:step, 0]])
        for number, (name, _) in NUMBERS.items():
            sign = -1.0 if number == "k1" else 1.0  # the column is log p - log q
            assert sums.values(number, places, step)[0, 0] == pytest.approx(sign * logged[name], rel=1e-9)


def test_page_hinkley_on_columns_is_rivers_object():
    values = np.random.default_rng(5).lognormal(size=(400, 3)).cumsum(axis=0) % 7.0
    paths = page_hinkley(values, 0.3)
    for column, path in zip(values.T.tolist(), paths.T, strict=True):
        detector = drift.PageHinkley(delta=0.3, threshold=np.inf, mode="up")
        wanted = []
        for value in column:
            detector.update(value)
            wanted.append(detector._sum_increase - detector._min_increase)
        np.testing.assert_allclose(path, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("step", STEPS)
def test_every_detector_is_two_sided_and_keeps_what_it_was_tuned_to(step):
    rng = np.random.default_rng(step)
    healthy = rng.normal(size=(120, 60))
    for detector in detectors(step):
        tuning = detector.tune(healthy, TARGET)
        assert tuning.share(tuning.setting) <= TARGET
        if detector.name != "ADWIN":  # looks every 32 values
            for sign in (1.0, -1.0):
                moved = np.concatenate([rng.normal(size=(40, 20)), sign * 6.0 + rng.normal(size=(60, 20))])
                place = detector.alarms(moved)(tuning.setting)
                assert np.median(place) < 60, detector.name
    assert CHANGE // max(STEPS) >= WARM


def test_watchers_are_tuned_on_what_they_will_see(pool):
    places = pool.places(drawn(pool, 40, 1), "")[:512]
    found = [one for one in watchers(Sums.of(pool), places, TARGET) if one.step == 64]
    assert {one.number for one in found} == set(NUMBERS)
    for one in found:
        assert one.false_alarms <= TARGET
        assert ((one.first(Sums.of(pool), places) <= 512).mean()) == one.false_alarms


def test_delays_of_streams_that_alarmed_before_are_left_out_and_never_is_infinite():
    assert median_delay(np.array([5, CHANGE, CHANGE + 3, CHANGE + 9, UNITS + 1])) == 9.0
    assert median_delay(np.array([CHANGE + 1, UNITS + 1, UNITS + 1])) == np.inf
    assert median_delay(np.array([1, 2])) == np.inf


def test_a_ratio_knows_who_found_it():
    assert ratio(4.0, 8.0) == 0.5
    assert ratio(4.0, np.inf) == 0.0
    assert ratio(np.inf, 4.0) == np.inf
    assert np.isnan(ratio(np.inf, np.inf))
    pairs = [(4.0, 8.0), (4.0, np.inf), (np.inf, 4.0), (np.inf, np.inf), (8.0, 8.0)]
    assert spread(pairs) == (4, 1.0, 0.5, 0.75, 1, 1)
    assert spread([(np.inf, np.inf)]) == (0, None, None, None, 0, 0)


def test_a_recording_that_breaks_a_limit_when_resampled_is_no_null():
    """Eight sequences a kind of prompt: their own top-1 frequency is off by chance."""
    result = run(Setting(seed=1, is_quick=True))
    ((name, gain, is_used),) = result.table("nulls").rows
    assert (name, is_used) == ("healthy", False)
    assert gain > 40.0
    (claim,) = result.claims
    assert (claim.word, result.exit_code) == ("missed", 0)
    assert claim.measured.startswith("not measured: these recordings are too few sequences")


@pytest.mark.slow
def test_the_quick_run_tells_every_share_of_a_fault_and_a_broken_promise(monkeypatch):
    """With the check above taken away, ours does alarm on such a null, and that is a broken promise."""
    monkeypatch.setattr("paritas.commands.experiments.recorded_delay.LARGEST_GAIN", np.inf)
    monkeypatch.setattr("paritas.commands.experiments.framework_numbers.STEPS", (64,))
    for place in ("recorded_ratios", "recorded_delay"):
        monkeypatch.setattr(f"paritas.commands.experiments.{place}.STEPS", (64,))
    result = run(Setting(seed=1, is_quick=True))
    _, recorded, numbers, summary, silent, elsewhere = result.tables
    assert (len(numbers.rows), elsewhere.rows) == (3, ())
    assert [row[0] for row in recorded.rows] == ["stale"] * 3
    assert [str(row[1]).split(" (")[0] for row in recorded.rows] == list(SHARES)
    assert len(summary.rows) == 3 * (len(NUMBERS) + 1 + 1)
    *own, peers = silent.column("false alarms")
    assert own == [1.0, 1.0]
    assert peers <= TARGET
    assert [claim.word for claim in result.claims] == ["BROKEN", "missed", "missed"]
    assert result.exit_code == 1
