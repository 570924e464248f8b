"""Verdicts: what the state of a row says, in the contract's own units."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, isfinite, log

import numpy as np

from paritas.contracts.model import Clause, Family
from paritas.detectors.agents import AGENT_SILENCE
from paritas.detectors.evaluate import REPEATS, Evaluator
from paritas.detectors.ledger import Ledger, ledgers
from paritas.detectors.limits import radius
from paritas.detectors.rows import GRID, Row
from paritas.detectors.sampling import anchor_of
from paritas.detectors.timing_shapes import SHAPES
from paritas.records import Reason, State, Verdict

__all__ = ["verdict_of", "verdicts"]

# Limits shown to people hold at every moment with 95 %: 1 % for each D16 side, 1 % for a pass that
# caps the upper one, 2 % for a refutation that lifts the lower one.
SIDE_ALPHA = 0.01
REFUTED_ALPHA = 0.02
PASS_ALPHA = 0.01  # default level of a PASS; a promotion gate may set its own
NAN = float("nan")


def verdicts(evaluator: Evaluator, *, pass_alpha: float = PASS_ALPHA) -> tuple[Verdict, ...]:
    """Return one verdict for every clause in every slice instance, in contract order.

    A clause of a plain slice without any unit is `no_data`; a `by` slice has instances only for
    the values that were seen.
    """
    raw = [v for c in evaluator.clauses for v in _of_clause(evaluator, c, pass_alpha)]
    is_blind = evaluator.agents.is_missing or evaluator.sampling.is_blind
    gaps = {v.slice for v in raw} if is_blind else _gaps(raw)
    covered = [_covered(v, gaps) for v in raw]
    resting = ledgers(evaluator, covered)
    return tuple(_withdrawn(v, resting.get((v.clause, v.slice))) for v in covered)


def verdict_of(evaluator: Evaluator, clause: Clause, name: str, *, pass_alpha: float = PASS_ALPHA) -> Verdict:
    """Return the verdict of one clause in one slice instance that has been judged.

    Raises
    ------
    KeyError
        If the pair has no row.
    """
    if clause.statistic == "kernel_identity":
        return _identity(evaluator, clause, name)
    if clause.statistic == AGENT_SILENCE:
        return evaluator.agents.verdict(clause, name)
    return _of_row(evaluator, evaluator.index[clause.id, name], pass_alpha)


def _of_clause(evaluator: Evaluator, clause: Clause, pass_alpha: float) -> Iterator[Verdict]:
    if clause.statistic == AGENT_SILENCE:
        yield from evaluator.agents.verdicts(clause)
        return
    for declared in evaluator.contract.slices:
        if clause.slices and declared.name not in clause.slices:
            continue
        if clause.statistic == "kernel_identity":
            if not declared.by and declared.match is None:
                yield _identity(evaluator, clause, declared.name)
            continue
        if not declared.by:
            evaluator.row(clause, declared, declared.name)
        for (clause_id, _), index in list(evaluator.index.items()):
            if clause_id == clause.id and evaluator.rows[index].declared.name == declared.name:
                yield _of_row(evaluator, index, pass_alpha)


def _identity(evaluator: Evaluator, clause: Clause, name: str) -> Verdict:
    state, reason, detail = evaluator.identity.verdict()
    units = sum(n for reason, n in evaluator.reasons.items() if reason not in REPEATS)
    return Verdict(
        clause.id,
        name,
        state,
        reason,
        clause.statistic,
        clause.family.value,
        *(NAN,) * 7,
        units,
        0,
        unit=detail,
    )


def _of_row(evaluator: Evaluator, index: int, pass_alpha: float) -> Verdict:
    row, bank = evaluator.rows[index], evaluator.bank
    units = int(bank.units[index])
    estimate, lower, upper = _estimate(evaluator, index)
    log_pass = _log_pass(evaluator, index)
    certified = log_pass >= -log(pass_alpha) or _is_inside(evaluator, index, pass_alpha)
    state, reason = _decide(evaluator, index, certified=certified)
    return Verdict(
        row.clause.id,
        row.name,
        state,
        reason,
        row.clause.statistic,
        row.clause.family.value,
        estimate,
        lower,
        upper,
        _shown_limit(row),
        _log10(max(bank.peak[index], 0.0)) if units else NAN,
        _log10(log_pass) if row.bounded else NAN,
        NAN if row.counterexample else _log10(bank.log_threshold[index]),
        units,
        int(bank.tokens[index]),
        needed_units=_needed(evaluator, index, pass_alpha) if state is State.UNDECIDED else 0,
        unit=row.unit,
    )


def _is_inside(evaluator: Evaluator, index: int, alpha: float) -> bool:
    """Whether the limits of a signed mean lie inside its tolerance, at the level of a pass and as shown."""
    row = evaluator.rows[index]
    if not row.two_sided:
        return False
    _, lower, upper = _estimate(evaluator, index, side_alpha=min(alpha, SIDE_ALPHA))
    return -row.limit < lower and upper < row.limit


def _decide(evaluator: Evaluator, index: int, *, certified: bool) -> tuple[State, Reason]:
    """Return the state and why; a pass needs a certificate, or an exhaustive observation."""
    row, bank = evaluator.rows[index], evaluator.bank
    if bank.violated[index] and row.clause.derived:
        return State.UNDECIDED, Reason.CERTIFICATE_LOST
    if bank.violated[index]:
        proof = Reason.SHAPE if row.clause.statistic in SHAPES else Reason.REFUTED
        return State.VIOLATED, Reason.COUNTEREXAMPLE if row.counterexample else proof
    if evaluator.has_gap:
        return State.NO_DATA, Reason.GAP
    if bank.units[index] == 0 and (row.clause.id, row.name) in evaluator.windows.shapes:
        return State.NO_DATA, Reason.LEARNING
    if bank.units[index] == 0:
        return State.NO_DATA, Reason.NOT_REPORTED if bank.without[index] else Reason.NO_UNITS
    if row.counterexample:
        return State.CONFORMING, Reason.MATCHED
    if not row.bounded:
        return State.UNDECIDED, Reason.FALSIFIABLE_ONLY
    if (
        row.entry.family is Family.OBSERVABILITY
    ):  # a census: every sequence was looked at, nothing is inferred
        kept = bank.total[index] <= row.tau * bank.units[index]
        return (State.CONFORMING, Reason.MATCHED) if kept else (State.UNDECIDED, Reason.NEEDS_MORE_UNITS)
    if certified:
        return State.CONFORMING, Reason.CERTIFIED
    mean = float(bank.total[index]) / int(bank.units[index])
    if mean - _blur(evaluator, index) <= row.tau < mean:
        return State.UNDECIDED, Reason.BETWEEN_BOUNDS
    return State.UNDECIDED, Reason.NEEDS_MORE_UNITS


def _blur(evaluator: Evaluator, index: int) -> float:
    """By how much buckets leave the mean of a row open; 0 where single durations were told."""
    units = int(evaluator.bank.units[index])
    return evaluator.blur.get(index, 0.0) / units if units else 0.0


def _estimate(
    evaluator: Evaluator, index: int, *, side_alpha: float = SIDE_ALPHA
) -> tuple[float, float, float]:
    """Mean over units and its limits in the clause's unit; NaN without units, limits NaN if unbounded."""
    row, bank = evaluator.rows[index], evaluator.bank
    units = int(bank.units[index])
    if units == 0:
        return NAN, NAN, NAN
    mean, is_weighted = _unweighted(evaluator, index, float(bank.total[index]) / units)
    if row.clause.statistic == "ess":
        return (1.0 / mean if mean else NAN), NAN, NAN
    if not row.bounded:
        return row.scale.up(mean), NAN, NAN
    # The shown mean is a ratio of two means: only the bets on the limit itself bound it.
    r = 1.0 if is_weighted else radius(float(bank.spread[index]), units, side_alpha)
    blur = _blur(evaluator, index)  # the mean is that of the largest shares that buckets allow
    low, high = _tightened(evaluator, index, max(mean - blur - r, 0.0), min(mean + r, 1.0))
    ends = sorted((row.scale.up(low), row.scale.up(high)))
    return row.scale.up(mean), ends[0], ends[1]


def _unweighted(evaluator: Evaluator, index: int, mean: float) -> tuple[float, bool]:
    """Mean over all sequences, recorded or not, and whether it differs from that over the recorded ones."""
    row = evaluator.rows[index]
    weight, anchor = evaluator.sampling.mean_weight(row.name), anchor_of(row)
    if weight == 1.0 or row.clause.window_s is not None:  # a window of time holds a plain sample
        return mean, False
    over_all = anchor + (mean - anchor) / weight
    return (min(max(over_all, 0.0), 1.0) if row.bounded else over_all), True


def _tightened(evaluator: Evaluator, index: int, low: float, high: float) -> tuple[float, float]:
    """Let the two e-processes from the first unit move the D16 limits to the contract's limit.

    Bets on one number, the limit, resolve it sooner than limits that hold for every number.
    """
    row, bank = evaluator.rows[index], evaluator.bank
    if row.two_sided:
        return low, high
    over = bank.evidence("over", index) >= -log(REFUTED_ALPHA)
    under = _log_pass(evaluator, index) >= -log(PASS_ALPHA)
    return max(low, row.tau) if over else low, min(high, row.tau) if under else high


def _shown_limit(row: Row) -> float:
    return (row.clause.at_least or NAN) if row.clause.statistic == "ess" else row.limit


def _log_pass(evaluator: Evaluator, index: int) -> float:
    return evaluator.bank.evidence("passing", index)


def _log10(nats: float) -> float:
    return float(nats / log(10.0))


def _needed(evaluator: Evaluator, index: int, pass_alpha: float) -> int:
    """Units a PASS would take at the growth rate seen so far; 0 when it does not grow."""
    units = int(evaluator.bank.units[index])
    growth = float(np.log(np.max(evaluator.bank.passing[index]))) / max(units, 1)
    if not evaluator.rows[index].bounded or growth <= 0.0:
        return 0
    return ceil((-log(pass_alpha) + log(GRID.size)) / growth)


def _gaps(found: list[Verdict]) -> set[str]:
    """Slices in which too much is missing for any pass."""
    broken = ("nonfinite_rate", "missing_rate")
    gaps = {v.slice for v in found if v.statistic in broken and v.state is State.VIOLATED}
    short = {v.slice for v in found if v.statistic == "pairing_rate" and _short(v)}
    return gaps | short


def _withdrawn(verdict: Verdict, ledger: Ledger | None) -> Verdict:
    """Turn a pass that rests on a failed assumption into `undecided`."""
    if ledger is None or verdict.state is not State.CONFORMING or not ledger.failed:
        return verdict
    return replace(verdict, state=State.UNDECIDED, reason=Reason.ASSUMPTION_FAILED)


def _short(verdict: Verdict) -> bool:
    return not isfinite(verdict.estimate) or verdict.estimate < verdict.limit


def _covered(verdict: Verdict, gaps: set[str]) -> Verdict:
    """Turn a pass over a gap into `undecided`: no data is never a pass."""
    bare = verdict.family == "observability" or verdict.statistic == "kernel_identity"
    if bare or verdict.state is not State.CONFORMING or verdict.slice not in gaps:
        return verdict
    return replace(verdict, state=State.UNDECIDED, reason=Reason.COVERAGE)
