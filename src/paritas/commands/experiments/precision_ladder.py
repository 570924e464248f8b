"""Precision ladder: recorded kernels from float32 to int4, what they measure, and what is found in them.

With a folder of recordings (`--recordings`) every pair in it; otherwise the small shipped ones.
Healthy recordings are split at random into halves that must not alarm; every recorded fault must be found.
"""

from pathlib import Path

import numpy as np

from paritas.commands.experiments.recorded import (
    REPLICAS,
    Judged,
    available,
    folder_of,
    judge_outcomes,
    outcomes_of,
    with_replicas,
)
from paritas.commands.experiments.result import (
    Cell,
    Claim,
    Figure,
    Floats,
    Panel,
    Result,
    Setting,
    Table,
    curve,
)
from paritas.contracts.bounds import MeanLimits
from paritas.contracts.model import Clause, Family
from paritas.detectors.evidence import PairBatch
from paritas.detectors.statistics import unit_values

__all__ = ["HEALTHY", "run"]

# healthy recording → presets it must not alarm under
HEALTHY: dict[str, tuple[str, ...]] = {
    "fp32": ("fp32", "fp16", "dense-bf16"),
    "fp16": ("fp16", "dense-bf16"),
    "bf16": ("dense-bf16",),
    "bf16_eager": ("dense-bf16",),
    "healthy": ("dense-bf16",),
    "llamacpp_q4_1": ("int4",),
}
WHOLE, PART = "all traffic", f"one replica of {REPLICAS}"
PRESET, ALPHA = "dense-bf16", 0.05
STATISTICS = ("tv", "kl_k3", "mean_ratio", "sequence_tv", "ess")
COLUMNS = (
    "kernel",
    "sequences",
    "tokens",
    "tv",
    "tv, lower",
    "tv, upper",
    "k3",
    "mean min(w, 2)",
    "sequence tv",
    "ess",
)


def run(setting: Setting) -> Result:
    """Measure every recording, split the healthy ones, judge the others."""
    folder = folder_of(setting)
    ladder = _ladder(folder)
    splits = _splits(folder, setting)
    found = _faults(folder)
    return Result(
        "precision-ladder",
        setting.seed,
        (ladder, splits, found),
        (_figure(ladder),),
        _claims(splits, found),
    )


def _ladder(folder: Path) -> Table:
    rows = [_measured(folder, serve, train) for train, serve in available(folder).items()]
    rows.sort(key=lambda row: float(str(row[3])))
    return Table(
        "ladder", "means over sequences, with 95 % limits that hold at every moment", COLUMNS, tuple(rows)
    )


def _measured(folder: Path, serve: str, train: str) -> tuple[Cell, ...]:
    batch = PairBatch.of([o.pair for o in outcomes_of(folder, serve, train) if o.pair is not None])
    values = {name: _values(batch, name) for name in STATISTICS}
    limits = MeanLimits().observe(values["tv"])
    means = {name: float(told.mean()) for name, told in values.items()}
    return (
        train,
        len(batch),
        int(batch.counts().sum()),
        means["tv"],
        limits.lower(ALPHA / 2.0),
        limits.upper(ALPHA / 2.0),
        means["kl_k3"],
        means["mean_ratio"],
        means["sequence_tv"],
        1.0 / means["ess"],
    )


def _values(batch: PairBatch, name: str) -> Floats:
    told = unit_values(batch, Clause(name, Family.STATISTICAL, name, at_most=1.0, cap=2.0))
    return told[~np.isnan(told)]


def _splits(folder: Path, setting: Setting) -> Table:
    """Halves of random orders of each healthy recording."""
    rows = [
        (name, preset, *_split(folder, name, preset, setting))
        for name, presets in HEALTHY.items()
        if name in available(folder)
        for preset in presets
    ]
    columns = ("recording", "preset", "halves", "sequences a half", "halves with an alarm")
    return Table("splits", "A/A: random halves of healthy recordings, judged alone", columns, tuple(rows))


def _split(folder: Path, name: str, preset: str, setting: Setting) -> tuple[int, int, int]:
    outcomes = outcomes_of(folder, name, name)
    rng, half, alarms = np.random.default_rng([setting.seed, len(name)]), len(outcomes) // 2, 0
    orders = setting.sized(20, 2)
    for _ in range(orders):
        order = rng.permutation(len(outcomes))
        for part in (order[:half], order[half:]):
            alarms += bool(judge_outcomes(preset, [outcomes[i] for i in part]).violated)
    return 2 * orders, half, alarms


def _faults(folder: Path) -> Table:
    """Every recording that is not healthy, and one faulty replica of four where the samples are shared."""
    rows = []
    for train, serve in available(folder).items():
        if train in HEALTHY:
            continue
        rows.append(_found(train, WHOLE, judge_outcomes(PRESET, outcomes_of(folder, serve, train)), ""))
        if serve != train:
            mixed = with_replicas(outcomes_of(folder, serve, serve), outcomes_of(folder, serve, train), 2)
            told = judge_outcomes(PRESET, mixed)
            rows.append(_found(train, PART, told, "replica=r2"))
    columns = ("fault", "where", "found", "right slice", "after sequences", "first clause", "cause named")
    return Table("faults", f"recorded faults under {PRESET}", columns, tuple(rows))


def _found(name: str, where: str, told: Judged, wanted: str) -> tuple[Cell, ...]:
    slices = {place for _, place in told.violated}
    hit = {place for place in slices if place.startswith("replica=")}
    right = hit == {wanted} if wanted else bool(slices)
    first = told.violated[0][0] if told.violated else None
    return name, where, bool(told.violated), right, told.after or None, first, told.cause or None


def _claims(splits: Table, found: Table) -> tuple[Claim, ...]:
    alarms = sum(int(str(x)) for x in splits.column("halves with an alarm"))
    halves = sum(int(str(x)) for x in splits.column("halves"))
    return (
        Claim("no half of a healthy recording alarms", f"{alarms} of {halves}", not alarms, goal="0"),
        _found_claim("every recorded fault is found", found, WHOLE, is_promise=True),
        _found_claim(f"and where one replica of {REPLICAS} has it", found, PART, is_promise=False),
    )


def _found_claim(says: str, found: Table, where: str, *, is_promise: bool) -> Claim:
    rows = [row for row in found.rows if row[1] == where]
    missed = [str(row[0]) for row in rows if not row[2]]
    told = f"{len(rows) - len(missed)} of {len(rows)}" + (f", missed: {', '.join(missed)}" if missed else "")
    return Claim(says, told, not missed, is_promise, goal="all")


def _figure(ladder: Table) -> Figure:
    names = tuple(str(name) for name in ladder.column("kernel"))
    places = [float(i) for i in range(len(names))]
    curves = [
        curve(label, [float(str(x)) for x in ladder.column(column)], places, "points")
        for label, column in (
            ("total variation", "tv"),
            ("its 95 % upper limit", "tv, upper"),
            ("sequence TV", "sequence tv"),
        )
    ]
    return Figure(
        "precision-ladder",
        (Panel("recorded kernels", "probability", "", tuple(curves), (True, False), names),),
    )
