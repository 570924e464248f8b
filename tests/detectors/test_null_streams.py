"""Streams at their limits in groups, windows, histograms and samples: their means are exact, and what judges them wakes."""

import json
import sys
from functools import cache

import benchmark_scripts
import numpy as np
import pytest

from paritas.contracts.model import Slice
from paritas.detectors.evidence import PairBatch
from paritas.detectors.rows import make_row
from paritas.detectors.statistics import unit_values


@cache
def script():
    """Return the benchmark as a module, which finds its neighbour."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(benchmark_scripts.FOLDER))
        return benchmark_scripts.script("null_streams")


@cache
def law():
    return script().laws.Law.of()


def means_of(places, weights, ids=("tv", "kl_k3", "sequence_tv")):
    """Weighed mean of each clause's values at `places`, and its limit."""
    batch = law().told.batch
    for clause in law().clauses:
        if clause.id in ids:
            values = unit_values(PairBatch.of(batch.pairs), clause)[places]
            yield float(np.average(values, weights=weights)), clause.at_most


def test_members_of_a_group_are_alike_and_their_mean_is_the_limit():
    groups = script().laws.groups_of(law(), np.random.default_rng(0), 30_000)
    sizes = [len(group) for group in groups]
    assert set(sizes) == {2, 3, 4, 5}
    assert np.mean([p < 0 for g in groups for p in g]) == pytest.approx(script().laws.LOST, rel=0.1)
    told = [[p for p in g if p >= 0] for g in groups]
    places = np.array([p for g in told for p in g])
    weights = np.array([1 / len(g) for g in told for _ in g])
    for mean, limit in means_of(places, weights):
        assert mean == pytest.approx(limit, rel=0.1)
    pairs = np.array([g[:2] for g in told if len(g) > 1])
    tv = unit_values(law().told.batch, law().clauses[0])
    assert np.corrcoef(tv[pairs[:, 0]], tv[pairs[:, 1]])[0, 1] > 0.3


@pytest.mark.parametrize("name", ["kept_odd", "kept_even"])
def test_what_is_recorded_is_not_what_there_is_and_weights_undo_it(name):
    kept, rng = getattr(script().laws, name), np.random.default_rng(1)
    units = script().laws.singles_of(law(), rng, 60_000)
    p = np.array([kept(law(), unit) for unit in units])
    assert set(p) == {script().laws.RARELY, 1.0}
    is_kept = (rng.random(len(p)) < p) & np.array([unit[0] >= 0 for unit in units])
    places = np.array([unit[0] for unit in units])[is_kept]
    plain, weighed = (list(means_of(places, w)) for w in (np.ones(len(places)), 1.0 / p[is_kept]))
    for (naive, limit), (mean, _) in zip(plain, weighed, strict=True):
        assert abs(naive - limit) > 0.2 * limit
        assert mean == pytest.approx(limit, rel=0.1)


def test_groups_of_one_mind_are_kept_rarely():
    laws, up = script().laws, law().up
    one, other = int(np.flatnonzero(up)[0]), int(np.flatnonzero(~up)[0])
    kept = [laws.kept_mixed(law(), group) for group in ([one, one], [other, -1], [one, other], [-1, -1])]
    assert kept == [laws.RARELY, laws.RARELY, 1.0, laws.RARELY]


@pytest.mark.parametrize("load", ["less under load", "more under load", "the slow ones"])
def test_seconds_have_the_share_of_slow_requests_that_the_quantile_allows(load):
    laws, rng = script().laws, np.random.default_rng(2)
    is_bad, is_slow = laws.seconds_of(rng, 20_000)
    (clause,) = script().quantile(law())
    assert is_slow.mean() == pytest.approx(1.0 - clause.quantile, rel=0.05)
    assert make_row(clause, Slice("all"), "all", 0.05).tau == pytest.approx(laws.BAD * laws.SLOW)
    p = laws.LOADS[load](is_bad, is_slow)
    assert p.shape == is_slow.shape
    assert set(p.ravel()) == {laws.RARELY, 1.0}


@pytest.mark.parametrize("limit_s", [0.5, 0.6])
def test_histograms_have_that_share_between_their_two_ends(limit_s):
    told = {"stream": "s", "event_ns": 0, "limit_s": limit_s}
    rng = np.random.default_rng(3)
    points = [point for _ in range(2000) for point in script().laws.points_of(rng, **told)]
    shares = [point.histogram.share_above(limit_s) for point in points]
    least, most = np.mean(shares, axis=0)
    allowed = script().laws.BAD * script().laws.SLOW
    assert least <= allowed * 1.05
    assert allowed * 0.95 <= most
    assert bool(least == most) == (limit_s == 0.5)


def test_a_bound_holds_as_often_as_it_says():
    module = script()
    for hits, trials in ((0, 50), (3, 40), (40, 40)):
        bound = module.at_most(hits, trials)
        assert hits / trials <= bound <= 1.0
        assert bound == 1.0 or module.share_below(hits, trials, bound) == pytest.approx(0.05, rel=1e-6)


ROWS = (
    *("groups", "groups, scored late", "histograms, limit on a bound", "sampled, the odd kept"),
    *("sampled groups, one mind dropped", "sampled windows, less under load", "gate, sampled, the odd kept"),
)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_judges_all_its_streams_and_none_is_loud(row):
    (table,) = script().measure(3, streams=6, steps=5, names=(row,)).tables
    assert set(table.column("row")) == {row}
    assert set(table.column("streams")) == {6}
    assert min(table.column("units")) > 2
    assert max(table.column("alarms")) <= 0.5


def test_streams_beyond_their_limits_do_alarm():
    """The same simulation finds a fault, so that its silence at the limit means something."""
    module, rng = script(), np.random.default_rng(4)
    strict = tuple(c for c in law().clauses if c.id == "tv")

    def halved(law):
        return [type(c)(c.id, c.family, c.statistic, at_most=c.at_most / 3.0) for c in strict]

    groups = module.partial(module.laws.sequences, draw=module.laws.groups_of)
    told = module.judged(law(), rng, 12, 120, asked=module.asked(halved, unit="group"), source=groups)
    assert np.mean(told.alarms["tv"]) > 0.8


def test_text_and_json(monkeypatch, capsys):
    module = script()
    asked = ["--only", "histograms, limit on a bound", "--streams", "3", "--steps", "4"]
    for more in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["null_streams.py", *asked, *more])
        assert module.main() == 0
    text, told = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert "no clause alarms more often than its level" in text
    result = json.loads(told)
    assert result["experiment"] == "null-streams"
    assert [claim["holds"] for claim in result["claims"]] == [True, True]
