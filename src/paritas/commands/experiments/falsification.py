"""Falsification: small exact RL problems, searched for a bias above its certificate.

Policies are softmax laws with a few parameters; every action, response and group is enumerated, so
the truth has no sampling error.  A violation is a finding: it is told, and the command exits with 1.
"""

from collections.abc import Iterator

import numpy as np

from paritas.commands.experiments.broken_assumptions import assumption_table
from paritas.commands.experiments.laws import BANDIT, decode
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
from paritas.commands.experiments.sampled import sampled_table
from paritas.commands.experiments.search import Climb, Tally, climb, sweep
from paritas.commands.experiments.statements import TOKEN_STATEMENTS, Statement
from paritas.commands.experiments.statements_sequence import SEQUENCE_STATEMENTS

__all__ = ["STATEMENTS", "reproduce", "run", "tightest_climb"]

STATEMENTS = (*TOKEN_STATEMENTS, *SEQUENCE_STATEMENTS)
COLUMNS = (
    "statement",
    "cases",
    "withdrawn",
    "violations",
    "median",
    "tightest",
    "by",
    "reproduced",
)


def run(setting: Setting) -> Result:
    """Search every statement; the numbers of a setting are the same every time."""
    told = [_searched(place, setting) for place in range(len(STATEMENTS))]
    rows = tuple(row for row, _ in told)
    climbs = {STATEMENTS[place].name: best for place, (_, best) in enumerate(told)}
    main = Table("statements", "true quantity over certified bound, by enumeration", COLUMNS, rows)
    outside = assumption_table(setting.seed, setting.sized(20_000, 400))
    sampled = sampled_table(setting)
    return Result(
        "falsification",
        setting.seed,
        (_certificates(), main, outside, sampled),
        (_figure(main),),
        _claims(main, sampled),
        {name: _case_of(name, best) for name, best in climbs.items()},
    )


def _certificates() -> Table:
    """What each statement says."""
    columns = ("statement", "objective", "certificate", "assumes")
    rows = tuple(tuple(getattr(s, c if c != "statement" else "name") for c in columns) for s in STATEMENTS)
    return Table(
        "certificates", "what is searched: A, G largest advantage and score norm, H tokens", columns, rows
    )


def _searched(place: int, setting: Setting) -> tuple[tuple[Cell, ...], Climb]:
    """One row of the table, and the tightest climb."""
    statement = STATEMENTS[place]
    tally = sweep(statement, (setting.seed, place), setting.sized(20_000, 1000))
    climbs = list(_climbs(place, setting))
    best = max(climbs, key=lambda one: one.ratio)
    again = reproduce(statement, best, setting)
    return _row(statement, tally, climbs, best, is_same=again == best.ratio), best


def _climbs(place: int, setting: Setting) -> Iterator[Climb]:
    for k in range(setting.sized(6, 1)):
        yield climb(STATEMENTS[place], (setting.seed, place, 1, k), _steps(setting))


def _steps(setting: Setting) -> int:
    return setting.sized(600, 40)


def reproduce(statement: Statement, best: Climb, setting: Setting) -> float:
    """Make the tightest case again from its seed alone; return its ratio."""
    return climb(statement, best.entropy, _steps(setting)).ratio


def tightest_climb(name: str, setting: Setting) -> Climb:
    """Return the tightest climb of one statement."""
    place = [statement.name for statement in STATEMENTS].index(name)
    return max(_climbs(place, setting), key=lambda one: one.ratio)


def _row(
    statement: Statement, tally: Tally, climbs: list[Climb], best: Climb, *, is_same: bool
) -> tuple[Cell, ...]:
    by_search = best.ratio >= tally.tightest
    return (
        statement.name,
        tally.cases + sum(one.judged for one in climbs),
        tally.withdrawn,
        tally.violations + sum(one.violations for one in climbs),
        tally.median,
        max(best.ratio, tally.tightest),
        f"climb {','.join(map(str, best.entropy))}" if by_search else "random",
        is_same,
    )


def _case_of(name: str, best: Climb) -> dict[str, object]:
    """The tightest case as numbers that can be checked by hand."""
    statement = next(s for s in STATEMENTS if s.name == name)
    told: dict[str, object] = {"seed": list(best.entropy), "ratio": best.ratio}
    if statement.size is BANDIT:
        laws = decode(best.case[None], statement.size)
        parts = ("weight", "p", "q", "score", "advantage")
        told |= {part: _rounded(getattr(laws, part)[0]) for part in parts}
    return told


def _rounded(values: Floats) -> object:
    return np.round(values, 9).tolist()


def _claims(main: Table, sampled: Table) -> tuple[Claim, ...]:
    cases, violations = (sum(map(_count, main.column(name))) for name in ("cases", "violations"))
    withdrawn = sum(map(_count, main.column("withdrawn")))
    place = max(range(len(main.rows)), key=lambda i: float(str(main.column("tightest")[i])))
    misses = max(float(str(x)) for x in sampled.column("missed"))
    return (
        Claim(
            "no true quantity exceeds its certified bound",
            _told(cases, withdrawn, violations),
            not violations,
        ),
        Claim(
            "the tightest case is made again by its seed",
            f"{main.column('tightest')[place]:.6f} of the bound ({main.rows[place][0]})",
            all(map(bool, main.column("reproduced"))),
        ),
        Claim(
            "a certificate from samples lies below the truth in at most 5 % of runs",
            f"{misses:.2%} in the worst estimator",
            misses <= 0.05,
        ),
    )


def _count(cell: Cell) -> int:
    return int(str(cell))


def _told(cases: int, withdrawn: int, violations: int) -> str:
    return f"{cases:,} cases, {withdrawn:,} of them withdrawn, {violations} violations"


def _figure(main: Table) -> Figure:
    """Median and tightest ratio of every statement."""
    names = tuple(str(row[0]) for row in main.rows[::-1])
    places = np.arange(len(names), dtype=np.float64)
    told = [
        curve(label, [float(str(x)) for x in main.column(column)], places[::-1], "points")
        for label, column in (("median random case", "median"), ("tightest found", "tightest"))
    ]
    limit = curve("the bound", [1.0, 1.0], [places[0], places[-1]], "dashed")
    panel = Panel("truth over certified bound", "ratio", "", (*told, limit), names=names)
    return Figure("falsification", (panel,))
