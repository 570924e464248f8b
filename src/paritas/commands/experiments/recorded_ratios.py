"""How much sooner or later ours finds recorded faults than the best peer: tables and claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paritas.commands.experiments.framework_numbers import NUMBERS, STEPS, Watcher
from paritas.commands.experiments.recorded_streams import UNITS
from paritas.commands.experiments.result import Cell, Claim, Floats, Table

__all__ = [
    "DECLARED",
    "GOAL",
    "RELATIVE",
    "SHIPPED",
    "TARGET",
    "Found",
    "delays_table",
    "fault_claims",
    "not_measured",
    "numbers_table",
    "ratio",
    "ratios_table",
    "spread",
]

TARGET, GOAL = 0.05, 0.5
BEST = "any number and step"
DECLARED, SHIPPED, RELATIVE = "declared", "tuned", "own limits"
OURS = (DECLARED, SHIPPED, RELATIVE)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Median sequences from the fault to the alarm: of ours by name, of the best watcher by number."""

    fault: str
    healthy: str
    share: str
    ours: Mapping[str, float]
    peers: Mapping[str, tuple[float, Watcher]]
    by_step: Mapping[int, tuple[float, Watcher]]

    @property
    def best(self) -> tuple[float, Watcher]:
        """The best watcher of any number at any step."""
        return min(self.peers.values(), key=lambda told: told[0])

    def beside(self, what: str) -> float:
        """Median of the best watcher of one number, or at one step."""
        steps = {_step(step): told for step, (told, _) in self.by_step.items()}
        return self.peers[what][0] if what in self.peers else steps.get(what, self.best[0])


def _step(step: int) -> str:
    return f"any number, steps of {step}"


def ratio(own: float, peer: float) -> float:
    """Ours over the peer's; 0 where only ours finds it, infinite where only the peer does, NaN where none."""
    if not np.isfinite(peer):
        return 0.0 if np.isfinite(own) else np.nan
    return own / peer


def _cell(delay: float) -> Cell:
    return delay if np.isfinite(delay) else "never"


def delays_table(found: Sequence[Found]) -> Table:
    """Ours beside the best peer of all, fault by fault and share by share."""
    rows = []
    for one in found:
        peer, watcher = one.best
        ratios = (_shown(ratio(one.ours[name], peer)) for name in OURS)
        own = (_cell(one.ours[name]) for name in OURS)
        label = watcher.name if np.isfinite(peer) else "none"
        rows.append((one.fault, one.share, *own, _cell(peer), *ratios, label))
    says = (
        "median sequences from a recorded fault to the alarm of ours (the preset at its declared level; "
        f"tuned as the peers to {TARGET:.0%} of healthy streams of {UNITS} sequences; so with the recording's "
        "own limits), and of the best peer"
    )
    columns = ("fault", "where", *OURS, "best peer", *(f"ratio, {name}" for name in OURS), "which")
    return Table("recorded", says, columns, tuple(rows))


def numbers_table(found: Sequence[Found]) -> Table:
    """The best detector on each number."""
    rows = tuple(
        (one.fault, one.share, one.healthy, *(_cell(one.peers[name][0]) for name in NUMBERS)) for one in found
    )
    says = "median sequences to the alarm of the best detector on each number: " + ", ".join(
        f"{name} is {full}" for name, (full, _) in NUMBERS.items()
    )
    return Table("numbers", says, ("fault", "where", "put into", *NUMBERS), rows)


def _shown(told: float) -> Cell:
    return None if np.isnan(told) else told if np.isfinite(told) else "peer only"


def ratios_table(found: Sequence[Found]) -> Table:
    """How the ratios spread, beside each number alone and beside the best of all of them."""
    rows = []
    for own in OURS:
        for what in (*NUMBERS, *map(_step, STEPS), BEST):
            pairs = [(one.ours[own], one.beside(what)) for one in found]
            rows.append((own, what, *spread(pairs)))
    columns = (
        *("ours", "beside", "rows", "median ratio", "share <= 0.5", "share <= 1"),
        *("only ours", "only the peer"),
    )
    return Table(
        "summary", "ratios of the median delays over all rows that anyone finds", columns, tuple(rows)
    )


def spread(pairs: Sequence[tuple[float, float]]) -> tuple[Cell, ...]:
    """Rows, median ratio, shares up to the goal and up to one, and rows that only one side finds."""
    ratios = np.array([ratio(*pair) for pair in pairs])
    known: Floats = np.sort(ratios[~np.isnan(ratios)])
    if not len(known):
        return (0, None, None, None, 0, 0)
    middle = float(known[len(known) // 2])
    shares = (float((known <= GOAL).mean()), float((known <= 1.0).mean()))
    return len(known), _shown(middle), *shares, int((known == 0.0).sum()), int(np.isinf(known).sum())


def fault_claims(found: Sequence[Found]) -> tuple[Claim, ...]:
    """Ours tuned as the peers, beside numbers as they are logged and beside every sequence."""
    claims = []
    for what in (_step(STEPS[-1]), BEST):
        count, middle, half, equal, *_ = spread([(one.ours[SHIPPED], one.beside(what)) for one in found])
        claims.append(
            Claim(
                f"recorded faults: at most {GOAL:g} of the delay of the best peer on {what}",
                f"median ratio {_text(middle)}, {_text(half)} of {count} rows <= {GOAL:g}, {_text(equal)} <= 1",
                half == 1.0,
                is_promise=False,
                goal=f"every row <= {GOAL:g}",
            )
        )
    return tuple(claims)


def not_measured() -> Claim:
    """What is claimed where no recording can be resampled."""
    return Claim(
        "recorded faults beside the numbers frameworks log",
        "not measured: these recordings are too few sequences to be resampled; --recordings takes others",
        holds=False,
        is_promise=False,
        goal=f"every row <= {GOAL:g}",
    )


def _text(cell: Cell) -> str:
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)
