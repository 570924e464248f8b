"""Search for a case whose truth exceeds its bound: random cases, then climbs from the tightest of a few.

Everything follows from a seed: cases of block b of statement i come from ``[seed, i, 0, b]``, climb k
from ``[seed, i, 1, k]``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.result import Floats
from paritas.commands.experiments.statements import Judged, Statement

__all__ = ["Climb", "Tally", "climb", "is_broken", "ratios", "sweep"]

ROUNDING, ABSOLUTE = 1e-9, 1e-12  # of sums of terms of order one
SMALLEST_BOUND = 1e-3  # below it a ratio would show rounding; violations are looked for everywhere
BLOCK, CLIMBERS = 1000, 16
MOVED, GROWTH, DECAY = 0.15, 1.2, 0.97  # share of numbers moved a step, step size after success and failure


def is_broken(judged: Judged) -> NDArray[np.bool_]:
    """Where the truth exceeds the bound by more than rounding."""
    return judged.truth > judged.bound + ROUNDING * np.abs(judged.bound) + ABSOLUTE


def ratios(judged: Judged) -> Floats:
    """Truth over bound of the cases that stand; 0 elsewhere and where the bound is of rounding size."""
    told = judged.stands & (judged.bound > SMALLEST_BOUND)
    return np.where(told, judged.truth / np.where(told, judged.bound, 1.0), 0.0)


@dataclass(frozen=True, slots=True)
class Tally:
    """What random cases of one statement showed.

    Attributes
    ----------
    cases, withdrawn : int
        Judged, and of these outside what the certificate assumes.
    violations, uncovered : int
        Bounds broken where the assumptions hold, and where they do not.
    median, tightest : float
        Of truth over bound where the assumptions hold.
    """

    cases: int
    withdrawn: int
    violations: int
    uncovered: int
    median: float
    tightest: float


def sweep(statement: Statement, entropy: tuple[int, ...], cases: int) -> Tally:
    """Judge random cases in blocks."""
    blocks = [_block(statement, (*entropy, 0, block)) for block in range(-(-cases // BLOCK))]
    joined = Judged(*(np.concatenate([getattr(b, n) for b in blocks]) for n in ("truth", "bound", "stands")))
    broken, told = is_broken(joined), ratios(joined)
    return Tally(
        len(joined.truth),
        int((~joined.stands).sum()),
        int((broken & joined.stands).sum()),
        int((broken & ~joined.stands).sum()),
        float(np.median(told[joined.stands])),
        float(told.max()),
    )


def _block(statement: Statement, entropy: tuple[int, ...]) -> Judged:
    return statement.judge(np.random.default_rng(entropy).normal(size=(BLOCK, statement.size.width)))


@dataclass(frozen=True, slots=True, eq=False)
class Climb:
    """The tightest case of one climb.

    Attributes
    ----------
    entropy : tuple of int
        Seed that makes it again.
    case : shape (width,)
    violations, judged : int
        Bounds broken on the way, of how many cases.
    """

    entropy: tuple[int, ...]
    ratio: float
    case: Floats
    violations: int
    judged: int


def climb(statement: Statement, entropy: tuple[int, ...], steps: int) -> Climb:
    """Climb without gradients from the tightest of a block of random cases.

    Each climber moves a few numbers of its case by its own step size and keeps what is tighter.
    """
    rng = np.random.default_rng(entropy)
    cases = rng.normal(size=(BLOCK // 4, statement.size.width))
    started = ratios(statement.judge(cases))
    order = np.argsort(-started, kind="stable")[:CLIMBERS]
    at, best, step, broken = cases[order], started[order], np.full(CLIMBERS, 0.5), 0
    for _ in range(steps):
        tried = at + step[:, None] * rng.normal(size=at.shape) * (rng.random(at.shape) < MOVED)
        judged = statement.judge(tried)
        broken += int((is_broken(judged) & judged.stands).sum())
        told = ratios(judged)
        better = told > best
        at, best = np.where(better[:, None], tried, at), np.where(better, told, best)
        step = np.clip(step * np.where(better, GROWTH, DECAY), 1e-3, 2.0)
    top = int(np.argmax(best))
    return Climb(entropy, float(best[top]), at[top], broken, len(cases) + steps * CLIMBERS)
