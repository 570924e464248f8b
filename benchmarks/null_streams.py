"""False alarms and false passes where units are groups, windows or histograms, where only some sequences are
recorded, and at the refit gate: streams exactly at their limits, judged by the detectors' own code.

Many streams are values of one label of one contract, so that the evaluator itself judges them side by side;
what it keeps, the largest evidence of every row, tells the alarms at a level.  Each clause has the whole level
for itself.  A stream counts once, and so does a pass at any moment.  The gate has one of its own a stream.

Run: python benchmarks/null_streams.py [--seed 0] [--streams 2000] [--only ROW] [--quick] [--json]
"""

import argparse
import json
import math
import sys
from dataclasses import dataclass, replace
from functools import partial

import null_stream_laws as laws
import numpy as np
from rich.console import Console
from rich.progress import track

from paritas.commands.experiments.result import Claim, Result, Table
from paritas.commands.experiments.writing import show
from paritas.commands.report import wide_console
from paritas.contracts.model import (
    Clause,
    Compare,
    Contract,
    FalseAlarms,
    Family,
    Promotion,
    Refit,
    Slice,
    Stage,
)
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.refit import RefitGate, RefitReason, RefitState
from paritas.detectors.sequential import mean_wealth
from paritas.records.timing import TimingPoint

LEVEL = 0.05
CONFIDENCE = 0.95  # of the bound beside a frequency
STREAMS, QUICK = 2000, 20
CHUNK = 500  # streams side by side: values of a label
NS = laws.NS
STEPS, QUICK_STEPS = 40, 8
VERSIONS, TESTED = 3, 15  # weights a gate sees, and units of each
LONGER = 5  # units of a stream where they cost little
NEVER = 1e-200  # budget of the contract: no alarm changes what is judged
SEQUENCES, GROUPS = {"unit": "sequence"}, {"unit": "group"}
SAMPLED = {"sampled_at_least": laws.RARELY}
COLUMNS = ("row", "streams", "units", "clause", "alarms", "at most", "passes", "passes at most", "declared")


@dataclass(frozen=True)
class Told:
    """What became of some streams, clause by clause.

    Attributes
    ----------
    alarms, passes : dict of str to array, shape (streams,), bool
        By clause; passes only where one can be certified.
    units : dict of str to float
        Of a stream, on average, by clause.
    """

    alarms: dict
    passes: dict
    units: dict


def contract_of(law, steps, *, clauses, compare, refit=None):
    """A contract with these clauses for every stream; one period of its budget are `steps` units."""
    return Contract(
        name="null",
        version="1",
        owner="",
        policy="p",
        kernels={},
        compare=compare,
        slices=(Slice("stream", by=("stream",), at_most=CHUNK),),
        false_alarms=FalseAlarms(NEVER, steps * laws.STEP_NS / NS),
        budget=None,
        clauses=tuple(clauses(law)),
        escalation=(),
        on_controller_loss="hold",
        promotion=Promotion(),
        tests=(),
        refit=refit,
    )


# ---- stages: what the detectors make of it


def judged(law, rng, streams, steps, *, asked, source):
    """Judge streams by the evaluator, all of them side by side."""
    evaluator = Evaluator(asked(law, steps), stage=Stage.FULL, recover=False)
    passing = np.zeros(0)
    for some in source(law, rng, streams, steps):
        taken = evaluator.observe_points(some) if is_points(some) else evaluator.observe(some)
        assert not list(taken)
        passing = highest(passing, evaluator.bank)
    assert not [*evaluator.close_windows(is_end=True), *evaluator.observe_points([], is_end=True)]
    return told_by(evaluator, highest(passing, evaluator.bank))


def is_points(some):
    """Whether a step brings histograms rather than sequences."""
    return bool(some) and isinstance(some[0], TimingPoint)


def highest(before, bank):
    """Largest wealth against "exceeded" that each row had so far; rows are added as they are needed."""
    now = mean_wealth(bank.passing, axis=1)
    return np.maximum(now, np.pad(before, (0, len(now) - len(before))))


def told_by(evaluator, passing):
    """Which streams alarmed at the level, and which passed, by clause."""
    alarms, passes, units, bank = {}, {}, {}, evaluator.bank
    for (clause, _), i in evaluator.index.items():
        units.setdefault(clause, []).append(int(bank.units[i]))
        alarms.setdefault(clause, []).append(bank.best[i] >= 1.0 / LEVEL)
        if evaluator.rows[i].down.any():
            passes.setdefault(clause, []).append(passing[i] >= 1.0 / LEVEL)
    return Told(alarms, passes, {clause: float(np.mean(told)) for clause, told in units.items()})


def gated(law, rng, streams, _, *, compare, draw, kept=None):
    """Send several healthy versions through a gate of its own for each stream."""
    tokens = TESTED * laws.TOKENS * (3 if draw is laws.groups_of else 1)
    refit = Refit(tokens=tokens, alpha=LEVEL)
    whole = contract_of(
        law, 1, clauses=every, compare=compare, refit=refit
    )  # the gate takes those it can judge
    told = [through_gate(law, rng, RefitGate(whole, refit), draw, kept) for _ in range(streams)]
    rejected, certified = zip(*told, strict=True)
    return Told(
        {"any version": list(rejected)}, {"any version": list(certified)}, {"any version": float(VERSIONS)}
    )


def through_gate(law, rng, gate, draw, kept):
    """Whether any healthy version was rejected, and whether any was certified."""
    for version in range(VERSIONS):
        while True:
            units = [u for u in draw(law, rng, TESTED) if kept is None or rng.random() < kept(law, u)]
            list(gate.take(versioned(law, units, version, kept, draw)))  # more come until it is decided
            verdict = gate.verdicts()[-1] if gate.verdicts() else None
            if verdict and verdict.weights_version == str(version) and verdict.state is not RefitState.HELD:
                break
    ends = gate.verdicts()
    is_rejected = any(v.state is RefitState.REJECTED for v in ends)
    return is_rejected, any(v.reason is RefitReason.CERTIFIED for v in ends)


def versioned(law, units, version, kept, draw):
    """Return the pairs of some units as sequences of one version."""
    outcomes = []
    for number, places in enumerate(units):
        probability = None if kept is None else kept(law, places)
        name = f"{version}-{number}"
        told = {"stream": "s", "event_ns": version * NS, "probability": probability}
        told |= {"group": name if draw is laws.groups_of else ""}
        outcomes += [law.outcome(p, f"{name}-{i}", **told) for i, p in enumerate(places) if p >= 0]
    return [replace(o, pair=replace(o.pair, weights_version=str(version))) for o in outcomes]


# ---- rows


def every(law):
    """Clauses on sequences."""
    return law.clauses


def without_lists(law):
    """Clauses on sequences whose kernels report no list of tokens."""
    return [clause for clause in law.clauses if clause.statistic != "top1_frequency"]


def quantile(_, limit_s=laws.ON_BOUND_S):
    """A clause on windows of a second, whose limit is exactly kept."""
    told = {"at_most": limit_s, "quantile": 1.0 - laws.BAD * laws.SLOW, "window_s": 1.0}
    return (Clause("slow-share", Family.RUNTIME, "time_to_first_token", **told),)


def asked(clauses, **compare):
    """Return what makes the contract of a row."""
    return partial(contract_of, clauses=clauses, compare=Compare(**compare))


def sequence_row(draw, kept=None, **compare):
    """A row that judges sequences or groups."""
    return partial(
        judged, asked=asked(every, **compare), source=partial(laws.sequences, draw=draw, kept=kept)
    )


def longer(law, rng, streams, steps, *, row):
    """A row whose streams are so much longer that a pass is possible."""
    return row(law, rng, streams, LONGER * steps)


def point_row(limit_s):
    """A row that judges histograms."""
    clauses = partial(quantile, limit_s=limit_s)
    return partial(judged, asked=asked(clauses), source=partial(laws.points, limit_s=limit_s))


def window_row(load):
    """A row that judges the windows of a sampled stream."""
    return partial(judged, asked=asked(quantile, **SAMPLED), source=partial(laws.requests, load=load))


LATE = {**GROUPS, "pair_within_s": 120.0}
ROWS = {
    "groups": sequence_row(laws.groups_of, **GROUPS),
    "groups, scored late": partial(
        judged, asked=asked(without_lists, **LATE), source=partial(laws.scored_late, compare=Compare(**LATE))
    ),
    "histograms, limit on a bound": point_row(laws.ON_BOUND_S),
    "histograms, limit in a bucket": point_row(laws.INSIDE_S),
    "sampled, the odd kept": partial(longer, row=sequence_row(laws.singles_of, laws.kept_odd, **SAMPLED)),
    "sampled, the odd dropped": partial(longer, row=sequence_row(laws.singles_of, laws.kept_even, **SAMPLED)),
    "sampled groups, one mind dropped": sequence_row(laws.groups_of, laws.kept_mixed, **GROUPS, **SAMPLED),
    **{f"sampled windows, {load}": window_row(load) for load in laws.LOADS},
    "gate": partial(gated, compare=Compare(), draw=laws.singles_of),
    "gate, sampled, the odd kept": partial(
        gated, compare=Compare(**SAMPLED), draw=laws.singles_of, kept=laws.kept_odd
    ),
    "gate, sampled, the odd dropped": partial(
        gated, compare=Compare(**SAMPLED), draw=laws.singles_of, kept=laws.kept_even
    ),
    "gate, sampled groups, one mind dropped": partial(
        gated, compare=Compare(**GROUPS, **SAMPLED), draw=laws.groups_of, kept=laws.kept_mixed
    ),
}


def measure(seed, *, streams=STREAMS, steps=STEPS, names=tuple(ROWS), watched=iter):
    """Return the result; `watched` sees every chunk of streams on its way."""
    law, told = laws.Law.of(), {name: [] for name in names}
    for name, first in watched([(name, first) for name in names for first in range(0, streams, CHUNK)]):
        rng = np.random.default_rng([seed, first, list(ROWS).index(name)])
        told[name].append(ROWS[name](law, rng, min(CHUNK, streams - first), steps))
    lines = [line for name, parts in told.items() for line in lines_of(name, parts)]
    says = f"share of streams exactly at the limit with any alarm, and with a pass; bounds hold with {CONFIDENCE:.0%}"
    return Result(
        "null-streams", seed, (Table("null streams", says, COLUMNS, tuple(lines)),), (), claims(lines)
    )


def lines_of(name, parts):
    """One line a clause."""
    for clause in parts[0].alarms:
        alarms = np.concatenate([part.alarms[clause] for part in parts])
        shares = [float(alarms.mean()), at_most(int(alarms.sum()), len(alarms))]
        if clause in parts[0].passes:
            passes = np.concatenate([part.passes[clause] for part in parts])
            shares += [float(passes.mean()), at_most(int(passes.sum()), len(passes))]
        units = float(np.mean([part.units[clause] for part in parts]))
        yield (name, len(alarms), round(units, 1), clause, *shares, *[None] * (4 - len(shares)), LEVEL)


def at_most(hits, trials):
    """Upper bound of a binomial share (Clopper and Pearson, 1934), by bisection.

    Examples
    --------
    >>> round(at_most(0, 100), 4), round(at_most(5, 100), 4)
    (0.0295, 0.1023)
    """
    low, high = hits / trials, 1.0
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (low, middle) if share_below(hits, trials, middle) <= 1.0 - CONFIDENCE else (middle, high)
    return high


def share_below(hits, trials, share):
    """Probability of at most so many hits."""
    if share >= 1.0:
        return float(hits >= trials)
    choose = [
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1) for k in range(hits + 1)
    ]
    return sum(
        math.exp(c + k * math.log(share) + (trials - k) * math.log1p(-share)) for k, c in enumerate(choose)
    )


def claims(lines):
    """What is promised of every row."""
    alarms, passes = (max(lines, key=lambda line, i=i: line[i] or 0.0) for i in (4, 6))
    kinds = "groups, histograms, samples and the gate"
    told = (
        (f"{kinds}: no clause alarms more often than its level", alarms, 4),
        (f"{kinds}: no clause passes at its limit more often than its level", passes, 6),
    )
    return tuple(
        Claim(
            says,
            f"worst {line[3]} ({line[0]}) {line[i] or 0.0:.4f} of {LEVEL:g}",
            (line[i] or 0.0) <= LEVEL,
            goal=f"<= {LEVEL:g}, {line[1]} streams",
        )
        for says, line, i in told
    )


def run(setting):
    """Run every row, as `statistics_all.py` does."""
    streams, steps = setting.sized(STREAMS, QUICK), setting.sized(STEPS, QUICK_STEPS)
    return measure(setting.seed, streams=streams, steps=steps, watched=with_progress)


def with_progress(jobs):
    """Show how far it is, where somebody watches."""
    console = Console(stderr=True)
    return track(jobs, "null streams", console=console, transient=True, disable=not console.is_terminal)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--steps", type=int, default=STEPS, help="units of a stream")
    parser.add_argument("--only", choices=ROWS, action="append", help="run this row; again for another")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    told = parser.parse_args()
    names = tuple(told.only or ROWS)
    result = measure(told.seed, streams=told.streams, steps=told.steps, names=names, watched=with_progress)
    print(json.dumps(result.as_dict())) if told.json else show(result, wide_console())
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
