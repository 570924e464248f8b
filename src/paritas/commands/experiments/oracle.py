"""What no detector can undercut: CUSUM of the exact log-likelihood ratio, which knows both laws.

Of all procedures with a given mean time between false alarms it has the smallest worst mean delay
(Lorden, Annals of Mathematical Statistics 42, 1971, to first order; Moustakides, Annals of
Statistics 14, 1986, exactly).  Nobody has it: it is told the law before and the law after the change.

Three oracles, each told less:
"knows both laws" need only be silent on the healthy law itself, which every detector must;
"knows the fault, silent at the limit" must be silent exactly at the limit, as ours and the peers are;
"knows its bet, silent for every law" is the best one of the bets ``1 + lambda (x - limit)`` that are
fair for every law with that mean, chosen with the fault in view.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paritas.commands.experiments.fault_streams import CHANGE, Fault, Law
from paritas.commands.experiments.peers import Scored
from paritas.commands.experiments.result import Floats

__all__ = ["AT_LIMIT", "BEST_BET", "BOTH_LAWS", "Oracle", "best_bet", "oracle_delays", "oracles"]

BOTH_LAWS = "knows both laws"
AT_LIMIT = "knows the fault, silent at the limit"
BEST_BET = "knows its bet, silent for every law"
LARGEST, SAMPLE = 0.999, 200_000  # share of the largest bet, and values that choose one


@dataclass(frozen=True, slots=True)
class Oracle:
    """A CUSUM and the law on which it must be silent."""

    detector: Scored
    silent_on: Law


def oracles(fault: Fault) -> tuple[Oracle, ...]:
    """Return the three oracles of a fault, the best informed first."""
    bet = best_bet(fault)
    return (
        Oracle(Scored(BOTH_LAWS, _cusum(_ratio(fault.faulty, fault.healthy))), fault.healthy),
        Oracle(Scored(AT_LIMIT, _cusum(_ratio(fault.faulty, fault.at_limit))), fault.at_limit),
        Oracle(Scored(BEST_BET, _cusum(lambda x: np.log1p(bet * (x - fault.limit)))), fault.at_limit),
    )


def oracle_delays(
    fault: Fault, changed: Floats, null: tuple[int, int], *, target: float, rng: np.random.Generator
) -> dict[str, float]:
    """Median delay of each oracle, by name, on streams that change at `CHANGE`.

    Each is tuned as the peers are: at most `target` of `null` (units, streams) of the law on which it
    must be silent may alarm.
    """
    told = {}
    for oracle in oracles(fault):
        setting = oracle.detector.tune(oracle.silent_on(rng, null), target).setting
        place = oracle.detector.alarms(changed)(setting)
        told[oracle.detector.name] = float(np.median(place[place >= CHANGE] - CHANGE + 1.0))
    return told


def best_bet(fault: Fault) -> float:
    """Bet under which wealth grows fastest once the fault is there."""
    values = fault.faulty(np.random.default_rng(0), (1, SAMPLE))[0]
    bets = np.geomspace(1e-3, LARGEST, 200) / fault.limit
    growth = [float(np.log1p(bet * (values - fault.limit)).mean()) for bet in bets]
    return float(bets[int(np.argmax(growth))])


def _ratio(after: Law, before: Law) -> Callable[[Floats], Floats]:
    return lambda values: after.log_density(values) - before.log_density(values)


def _cusum(gain: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    """Page's recursion S <- max(S, 0) + gain, shape (units, streams) in and out."""

    def score(values: Floats) -> Floats:
        out, level = np.empty_like(values), np.zeros(values.shape[1])
        for place, row in enumerate(gain(values)):
            level = np.maximum(level, 0.0) + row
            out[place] = level
        return out

    return score
