"""Why the unit is the sequence or the group: the same test on units that depend on each other."""

import numpy as np

from paritas.commands.experiments.boundary import Outcomes, streams
from paritas.commands.experiments.result import Floats, Setting, Table
from paritas.contracts.model import Slice
from paritas.detectors.bank import Bank
from paritas.detectors.bets import multipliers
from paritas.detectors.rows import Row, make_row
from paritas.detectors.sequential import grown, mean_wealth

__all__ = ["unit_table"]

LEVEL = 0.05
MEMBERS = 8  # answers to one prompt
PEEK = 50  # sequences between two looks of the z-test
Z = 1.645  # one-sided 5 %
COLUMNS = ("unit", "test", "any alarm", "nominal")


def unit_table(told: Outcomes, setting: Setting) -> Table:
    """Share of streams at the limit of `tv` with any alarm, by unit and test."""
    size, units = setting.sized(4000, 200), setting.sized(400, 60)
    tv = next(stream for stream in streams(told) if stream.clause.id == "tv")
    assert tv.values is not None
    row = make_row(tv.clause, Slice("all"), "all", LEVEL)
    alone = tv.values[told.draw(np.random.default_rng([setting.seed, 1]), size * units)].reshape(units, size)
    groups = np.stack([_groups(told, tv.values, setting.seed + i, size) for i in range(units // MEMBERS)])
    rows = (
        ("independent sequences", "ours", _alarms(row, alone), LEVEL),
        (f"groups of {MEMBERS}, each sequence a unit", "ours", _alarms(row, groups.reshape(-1, size)), LEVEL),
        (f"groups of {MEMBERS}, the group a unit", "ours", _alarms(row, groups.mean(axis=1)), LEVEL),
        ("independent sequences", f"z-test, a look every {PEEK}", _peeked(alone, row.tau), LEVEL),
    )
    return Table("units", "total variation at its limit: what independence of units is for", COLUMNS, rows)


def _groups(told: Outcomes, values: Floats, seed: int, size: int) -> Floats:
    """One group of each stream, shape (members, size); its sequences are of one kind."""
    return values[told.draw_alike(np.random.default_rng([seed, 2]), size, MEMBERS)]


def _alarms(row: Row, values: Floats) -> float:
    """Share of streams that alarm; values of shape (units, streams)."""
    bank = Bank(period_ns=len(values), recover=False)
    wealth, worst = np.zeros((values.shape[1], len(row.up))), np.zeros(values.shape[1])
    for number, units in enumerate(values, start=1):
        mass = bank.start_mass(np.array([number]), np.array([1]))
        wealth = grown(wealth, mass, multipliers(row, units)[0])
        worst = np.maximum(worst, mean_wealth(wealth, axis=1))
    return float((worst >= 1.0 / LEVEL).mean())


def _peeked(values: Floats, limit: float) -> float:
    """Share of streams in which a z-test on the mean so far rejects at any look."""
    count = np.arange(1, len(values) + 1)[:, None]
    mean = np.cumsum(values, axis=0) / count
    spread = np.sqrt(np.maximum(np.cumsum(values**2, axis=0) / count - mean**2, 1e-30) / count)
    looks = slice(PEEK - 1, None, PEEK)
    return float(((mean - limit)[looks] > Z * spread[looks]).any(axis=0).mean())
