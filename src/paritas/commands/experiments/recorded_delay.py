"""Recorded faults: sequences to the alarm of a whole contract, beside detectors on what frameworks log.

Streams of recorded sequences are healthy up to `CHANGE`; then a recorded fault is there, in all
sequences, in one replica of four or in one kind of prompt.  Every detector may raise a false alarm in
`TARGET` of healthy streams of `UNITS` sequences.  The peers' thresholds are set on healthy streams of
the very recording they watch, and the best of all their settings counts, fault by fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from paritas.commands.experiments.framework_numbers import NUMBERS, STEPS, Sums, Watcher, watchers
from paritas.commands.experiments.precision_ladder import HEALTHY
from paritas.commands.experiments.recorded import available, folder_of, outcomes_of
from paritas.commands.experiments.recorded_monitor import Monitor
from paritas.commands.experiments.recorded_ratios import (
    DECLARED,
    RELATIVE,
    SHIPPED,
    TARGET,
    Found,
    delays_table,
    fault_claims,
    not_measured,
    numbers_table,
    ratios_table,
)
from paritas.commands.experiments.recorded_streams import (
    CHANGE,
    ONE_PROMPT,
    SHARES,
    UNITS,
    Draw,
    Places,
    Pool,
    healthy_of,
)
from paritas.commands.experiments.result import Cell, Claim, Floats, Result, Setting, Table
from paritas.contracts.catalogue import find
from paritas.contracts.load import load_named
from paritas.contracts.model import Clause, Contract
from paritas.detectors.evidence import PairBatch
from paritas.detectors.statistics import unit_values

__all__ = ["median_delay", "run"]

PRESET = "dense-bf16"
ABOVE_OWN = 1.25  # limits relative to the recording's own means
LARGEST_GAIN = 3.0  # nats, 1/TARGET: a recording that gains more on its own breaks a limit, and is no null
OWN_LIMITS = ("tv", "kl_k3", "logprob_abs_diff")


@dataclass(frozen=True, slots=True)
class Own:
    """One of ours: its contract, the evidence beyond its thresholds at which it alarms, in nats, and its alarms."""

    contract: Contract
    setting: float
    declared_share: float

    def firsts(self, pool: Pool, kinds: Places, places: Places) -> tuple[Places, Places]:
        """Sequences seen at the first alarm of each stream, at the declared level and tuned."""
        scores = Monitor.of(self.contract, pool).scores(kinds, places)
        return _first(scores, 0.0), _first(scores, self.setting)


@dataclass(frozen=True, slots=True, eq=False)
class Healthy:
    """One healthy recording: what every detector was tuned to on it, and the streams faults are put into."""

    name: str
    pool: Pool
    draw: Draw
    watchers: tuple[Watcher, ...]
    ours: Mapping[str, Own]


def run(setting: Setting) -> Result:
    """Measure every recorded fault at every share."""
    folder = folder_of(setting)
    gains = {name: _gain(folder, name) for name in _faults(folder)}
    usable = {name: some for name, some in _faults(folder).items() if gains[name] <= LARGEST_GAIN}
    chosen = dict(list(usable.items())[:1]) if setting.is_quick else usable
    told = [_of_healthy(folder, name, some, setting) for name, some in chosen.items()]
    found = [one for _, some in told for one in some]
    healthy = [one for one, _ in told]
    silent = _silent(healthy)
    tables = (
        _nulls(gains),
        delays_table(found),
        numbers_table(found),
        ratios_table(found),
        silent,
        _elsewhere(healthy),
    )
    claims = (_silence(silent), *fault_claims(found)) if found else (not_measured(),)
    return Result("recorded-delay", setting.seed, tables, (), claims)


def _gain(folder: Path, name: str) -> float:
    return Monitor.of(load_named(PRESET), Pool(outcomes_of(folder, name, name))).gain()


def _nulls(gains: Mapping[str, float]) -> Table:
    rows = tuple((name, gain, gain <= LARGEST_GAIN) for name, gain in gains.items())
    says = (
        f"healthy recordings: one that gains more than {LARGEST_GAIN:g} nats by resampling alone is left out"
    )
    return Table("nulls", says, ("recording", "gain of the best bet, nats", "used"), rows)


def _faults(folder: Path) -> dict[str, list[str]]:
    """Healthy recording → the faults that are put into it."""
    told: dict[str, list[str]] = {}
    fit = [name for name, presets in HEALTHY.items() if presets[0] == PRESET]
    for train in available(folder):
        if train not in HEALTHY:
            told.setdefault(healthy_of(folder, train, fit), []).append(train)
    return told


def _of_healthy(
    folder: Path, name: str, faults: Sequence[str], setting: Setting
) -> tuple[Healthy, list[Found]]:
    recorded = outcomes_of(folder, name, name)
    healthy = _tuned(name, Pool(recorded), setting)
    some = faults[: setting.sized(len(faults), 1)]
    found = []
    for fault in some:
        pool = Pool(recorded, outcomes_of(folder, available(folder)[fault], fault))
        sums = Sums.of(pool)
        found += _found(healthy, fault, pool, sums)
    return healthy, found


def _tuned(name: str, pool: Pool, setting: Setting) -> Healthy:
    """Tune every detector on the same healthy streams."""
    rng, kinds = np.random.default_rng([setting.seed, len(name)]), len(pool.kinds)
    null = Draw.of(rng, kinds, (UNITS, setting.sized(200, 40)))
    places = pool.places(null, "")
    shipped = load_named(PRESET)
    ours = {
        name: _own(contract, pool, null)
        for name, contract in ((SHIPPED, shipped), (RELATIVE, _relative(shipped, pool)))
    }
    found = tuple(watchers(Sums.of(pool), places, TARGET))
    return Healthy(name, pool, Draw.of(rng, kinds, (UNITS, setting.sized(60, 10))), found, ours)


def _own(contract: Contract, pool: Pool, null: Draw) -> Own:
    """Set the threshold as a peer's, and count the alarms at the declared one."""
    peaks = np.sort(Monitor.of(contract, pool).scores(null.kind, pool.places(null, "")).max(axis=0))[::-1]
    setting = float(np.nextafter(peaks[int(TARGET * len(peaks))], np.inf))
    return Own(contract, setting, float((peaks >= 0.0).mean()))


def _relative(contract: Contract, pool: Pool) -> Contract:
    """The contract with limits relative to what this recording shows of itself, in its worst kind of prompt."""
    batch = PairBatch.of(list(pool.pairs))
    kept = tuple(clause for clause in contract.clauses if clause.statistic not in OWN_LIMITS)
    asked = (Clause(name, find(name).family, name, at_most=0.0) for name in OWN_LIMITS)
    own = (replace(c, at_most=ABOVE_OWN * pool.worst_mean(unit_values(batch, c))) for c in asked)
    return replace(contract, clauses=(*own, *kept))


def _found(healthy: Healthy, fault: str, pool: Pool, sums: Sums) -> list[Found]:
    """Every detector on every share of a fault; the streams of all shares go through together."""
    kinds = np.concatenate([healthy.draw.kind] * len(SHARES), axis=1)
    places = np.concatenate([pool.places(healthy.draw, share) for share in SHARES], axis=1)
    both = {name: one.firsts(pool, kinds, places) for name, one in healthy.ours.items()}
    ours = {DECLARED: both[SHIPPED][0], **{name: tuned for name, (_, tuned) in both.items()}}
    peers = [(one, one.first(sums, places)) for one in healthy.watchers]
    told = []
    for share, part in zip(SHARES, np.split(np.arange(places.shape[1]), len(SHARES)), strict=True):
        medians = [(median_delay(first[part]), one) for one, first in peers]
        told.append(
            Found(
                fault,
                healthy.name,
                f"{share} ({pool.prompt})" if share == ONE_PROMPT else share,
                {name: median_delay(first[part]) for name, first in ours.items()},
                {name: _least([x for x in medians if x[1].number == name]) for name in NUMBERS},
                {step: _least([x for x in medians if x[1].step == step]) for step in STEPS},
            )
        )
    return told


def _least(told: Sequence[tuple[float, Watcher]]) -> tuple[float, Watcher]:
    return min(told, key=lambda one: one[0])


def _first(scores: Floats, setting: float) -> Places:
    """Sequences seen when each stream alarms for the first time; more than there are for never."""
    hit = scores >= setting
    return np.where(hit.any(axis=0), hit.argmax(axis=0) + 1, UNITS + 1)


def median_delay(first: Places) -> float:
    """Median delay of the streams without an alarm before the change; never is infinite."""
    late = first[first > CHANGE]
    delays = np.where(late <= UNITS, late - float(CHANGE), np.inf)
    return float(np.sort(delays)[len(delays) // 2]) if len(delays) else np.inf


def _silent(healthy: Sequence[Healthy]) -> Table:
    """False alarms of ours at the declared level, and of the worst peer after tuning."""
    rows: list[tuple[Cell, ...]] = []
    for one in healthy:
        for name in (SHIPPED, RELATIVE):
            own = one.ours[name]
            declared = own.contract.false_alarms.at_most
            rows.append((one.name, name, own.declared_share, declared, -own.setting))
        worst = max(watcher.false_alarms for watcher in one.watchers)
        rows.append((one.name, f"worst of {len(one.watchers)} peers, tuned", worst, None, None))
    columns = ("recording", "detector", "false alarms", "declared", "room to the target, nats")
    return Table("silent", f"healthy streams of {UNITS} sequences with any alarm", columns, tuple(rows))


def _elsewhere(healthy: Sequence[Healthy]) -> Table:
    """What thresholds are worth on another healthy kernel of the same precision, which the preset allows."""
    rows: list[tuple[Cell, ...]] = []
    for here in healthy:
        for other in (one for one in healthy if one is not here):
            places = other.pool.places(other.draw, "")
            sums = Sums.of(other.pool)
            shares = np.array([float((one.first(sums, places) <= UNITS).mean()) for one in here.watchers])
            own = here.ours[SHIPPED].firsts(other.pool, other.draw.kind, places)
            told = (float((first <= UNITS).mean()) for first in own)
            rows.append(
                (here.name, other.name, float(np.median(shares)), float((shares > TARGET).mean()), *told)
            )
    columns = ("tuned on", "watching", "median peer", f"peers above {TARGET:g}", "declared", "tuned")
    says = "false alarms on healthy streams of another kernel of the same precision, of the peers and of ours"
    return Table("elsewhere", says, columns, tuple(rows))


def _silence(silent: Table) -> Claim:
    declared = [(float(str(row[2])), float(str(row[3]))) for row in silent.rows if row[3] is not None]
    return Claim(
        "healthy recorded streams alarm no more often than declared",
        f"{max(share for share, _ in declared):g}",
        all(share <= level for share, level in declared),
        goal=f"<= {declared[0][1]:g}",
    )
