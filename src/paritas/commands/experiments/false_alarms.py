"""False alarms: streams exactly at every limit, judged by the detectors' own bank, beside what was declared.

Every clause's limit is the exact mean of what it sees, the hardest case in which no alarm is right.
The bank keeps the largest evidence each row ever had, so one run tells the share of alarms at every level.
"""

import numpy as np

from paritas.commands.experiments.boundary import outcomes_of, streams
from paritas.commands.experiments.result import Cell, Claim, Figure, Panel, Result, Setting, Table, curve
from paritas.commands.experiments.simulation import BUDGET, Peaks, Run, simulate
from paritas.commands.experiments.unit_choice import unit_table

__all__ = ["LEVELS", "run"]

LEVELS = (0.01, 0.05, 0.2)
CURVE = np.geomspace(0.002, 1.0, 40)
REPLICAS = 4
SHARED = ("tv", "ratio_tail", "mean_ratio", "kl_k3", "paired")
COLUMNS = (
    *("clause", "family", "test", "limit"),
    *("alarms, 1 %", "alarms, 5 %", "alarms, 20 %", "passes, 1 %", "passes, 5 %"),
)


def run(setting: Setting) -> Result:
    """Simulate every clause alone and all of them under one budget."""
    told = outcomes_of()
    every = streams(told)
    size = Run(setting.sized(10_000, 200), setting.sized(400, 60))
    peaks = simulate(told, every, size, setting.seed)
    some = tuple(s for s in every if s.clause.id in SHARED)
    replicas = Run(size.streams, setting.sized(400, 60), REPLICAS)
    shared = simulate(told, some, replicas, setting.seed + 1)
    tables = (_clauses(peaks), _shared(peaks, shared, size), unit_table(told, setting))
    return Result("false-alarms", setting.seed, tables, (_figure(peaks),), _claims(tables))


def _clauses(peaks: Peaks) -> Table:
    """Each clause alone with the whole level."""
    alarms, passes = [peaks.alarms(level) for level in LEVELS], [peaks.passes(level) for level in LEVELS[:2]]
    rows: list[tuple[Cell, ...]] = []
    for i, row in enumerate(peaks.rows):
        certified = [float(told[i]) if row.down.any() else None for told in passes]
        head = (row.clause.id, row.clause.family.value, row.entry.test.value, row.limit)
        rows.append((*head, *(float(told[i]) for told in alarms), *certified))
    says = "share of streams exactly at the limit with any alarm in a period, and with a pass"
    return Table("clauses", says, COLUMNS, tuple(rows))


def _shared(peaks: Peaks, shared: Peaks, size: Run) -> Table:
    rows = tuple(
        (what, told.alarm.shape[1], size.units, len(told.rows), told.any_alarm(), BUDGET)
        for what, told in (
            ("every clause, all traffic", peaks),
            (f"{len(SHARED)} clauses, all traffic and {REPLICAS} replicas", shared),
        )
    )
    columns = ("contract", "streams", "sequences", "rows", "any alarm", "declared")
    return Table("shared", "any alarm of any row in a period, all rows sharing one budget", columns, rows)


def _claims(tables: tuple[Table, ...]) -> tuple[Claim, ...]:
    clauses, shared, _ = tables
    worst = {
        level: max(map(_number, clauses.column(f"alarms, {level:.0%}".replace("%", " %"))))
        for level in LEVELS
    }
    passing = max(map(_number, clauses.column("passes, 5 %")))
    realised, streams = max(map(_number, shared.column("any alarm"))), shared.rows[0][1]
    told = ", ".join(f"{found:.4f} of {level:g}" for level, found in worst.items())
    return (
        Claim(
            "no clause alarms more often than its level",
            f"worst clause {told}",
            all(f <= a for a, f in worst.items()),
            goal=f"<= declared, {streams} streams",
        ),
        Claim(
            "all clauses together stay within the budget",
            f"{realised:.4f} of {BUDGET:g}",
            realised <= BUDGET,
            goal=f"<= {BUDGET:g}, {streams} streams",
        ),
        Claim(
            "no clause passes at its limit more often than its level",
            f"{passing:.4f} of 0.05",
            passing <= 0.05,
            goal=f"<= 0.05, {streams} streams",
        ),
    )


def _number(cell: Cell) -> float:
    return 0.0 if cell is None else float(cell)


def _figure(peaks: Peaks) -> Figure:
    """Realised against declared, the worst clause of each family."""
    families = sorted({row.clause.family for row in peaks.rows})
    told = np.stack([peaks.alarms(level) for level in CURVE])
    curves = []
    for family in families:
        inside = [i for i, row in enumerate(peaks.rows) if row.clause.family is family]
        curves.append(
            curve(f"{family.value}, worst clause", CURVE, np.maximum(told[:, inside].max(axis=1), 1e-5))
        )
    panel = Panel(
        "streams exactly at the limit",
        "declared",
        "realised",
        (*curves, curve("declared", CURVE, CURVE, "dashed")),
        (True, True),
    )
    return Figure("false-alarms", (panel,))
