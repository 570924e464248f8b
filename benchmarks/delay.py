"""How soon a change is found, beside the change detectors people use.

Per-sequence total variation, log-normal with the mean and 99 % quantile of the pools below; the
limit is 0.01 and the level changes at sequence 3000.  Medians of the delay in sequences.  "early"
is the share of streams that alarm before the change: a fast detector that cannot be trusted is
no detector.  The expected numbers are those of the first study of these tests (softmax pools, same moments).

Run: python benchmarks/delay.py [--seed 0] [--json]
"""

import argparse
import json
import math

import numpy as np
from river import drift

from paritas.detectors.river_detectors import BETS, SRDetector

LIMIT, CHANGE, HORIZON = 0.01, 3000, 3000
POOLS = {"null": (0.0085, 0.026), "x1.5": (0.0126, 0.037), "x3": (0.0251, 0.075)}  # mean, p99
P99 = 2.3263  # standard normal quantile
EXPECTED = {
    "Shiryaev-Roberts A=1e4": {"x1.5": 76, "x3": 12},
    "Shiryaev-Roberts A=1e5": {"x1.5": 104, "x3": 15},
    "CUSUM form A=1e5": {"x1.5": 129, "x3": 18},
    "ADWIN, min(x/.05, 1)": {"x1.5": 167, "x3": 39},
    "PageHinkley, tuned by hand": {"x1.5": 57, "x3": 11},
    "PageHinkley, default": {"x1.5": None, "x3": None},
}


class Cusum:
    """CUSUM form of the e-detector: ``R <- max(R, 1)(1 + bet (x - limit))``."""

    def __init__(self, threshold):
        self.log_wealth, self.log_threshold = np.full(len(BETS), -np.inf), math.log(threshold)
        self.drift_detected = False

    def update(self, value):
        if self.drift_detected:
            self.log_wealth = np.full(len(BETS), -np.inf)
        factor = np.log1p(np.array(BETS) / LIMIT * (value - LIMIT))
        self.log_wealth = np.maximum(self.log_wealth, 0.0) + factor
        self.drift_detected = bool(np.exp(self.log_wealth).mean() >= math.exp(self.log_threshold))


class Scaled:
    """ADWIN assumes values in [0, 1]; without this it takes twenty times as long."""

    def __init__(self):
        self.adwin = drift.ADWIN()

    def update(self, value):
        self.adwin.update(min(value / 0.05, 1.0))

    @property
    def drift_detected(self):
        return self.adwin.drift_detected


MAKE = {
    "Shiryaev-Roberts A=1e4": lambda: SRDetector(limit=LIMIT, threshold=1e4),
    "Shiryaev-Roberts A=1e5": lambda: SRDetector(limit=LIMIT, threshold=1e5),
    "CUSUM form A=1e5": lambda: Cusum(1e5),
    "ADWIN, min(x/.05, 1)": Scaled,
    "PageHinkley, tuned by hand": lambda: drift.PageHinkley(delta=0.001, threshold=0.2),
    "PageHinkley, default": drift.PageHinkley,
}


def lognormal(rng, pool, size):
    """Values with the pool's mean and 99 % quantile."""
    mean, p99 = POOLS[pool]
    sigma = P99 - math.sqrt(P99**2 - 2.0 * math.log(p99 / mean))
    return rng.lognormal(math.log(mean) - sigma**2 / 2.0, sigma, size)


def alarms(detector, values):
    """Places at which the detector alarms; it starts afresh after each."""
    for place, value in enumerate(values):
        detector.update(value)
        if detector.drift_detected:
            yield place


def delay(detector, rng, pool, *, change=CHANGE, horizon=HORIZON):
    """Sequences from the change to the first alarm after it (None: never), and whether one came early."""
    values = [*lognormal(rng, "null", change).tolist(), *lognormal(rng, pool, horizon).tolist()]
    early = False
    for place in alarms(detector, values):
        if place >= change:
            return place - change + 1, early
        early = True
    return None, early


def measure_one(name, pool, seed, *, streams, change=CHANGE):
    """Return the median delay of one detector, and how often it alarmed early or never."""
    rng = np.random.default_rng(seed)
    told = [delay(MAKE[name](), rng, pool, change=change) for _ in range(streams)]
    found = [d for d, _ in told if d is not None]
    enough = 2 * len(found) > streams
    return {
        "detector": name,
        "pool": pool,
        "median": float(np.median([d if d is not None else np.inf for d, _ in told])) if enough else None,
        "expected": EXPECTED[name][pool],
        "early": sum(e for _, e in told) / streams,
        "missed": 1.0 - len(found) / streams,
    }


def measure(seed, *, streams=60):
    """Return one line a detector and pool."""
    return [measure_one(name, pool, seed, streams=streams) for name in MAKE for pool in ("x1.5", "x3")]


def show(told):
    """Print the table a person reads."""
    print(f"{'detector':28} {'pool':>5} {'median':>7} {'study':>6} {'ratio':>6} {'early':>6} {'missed':>7}")
    for line in told:
        known = line["median"] is not None and line["expected"] is not None
        ratio = f"{line['median'] / line['expected']:.2f}" if known else "-"
        cells = (shown(line["median"]), shown(line["expected"]), ratio)
        row = f"{line['detector']:28} {line['pool']:>5} {cells[0]:>7} {cells[1]:>6} {cells[2]:>6}"
        print(f"{row} {line['early']:>6.2f} {line['missed']:>7.2f}")


def shown(value):
    return "-" if value is None else f"{value:g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--streams", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print one JSON list instead")
    arguments = parser.parse_args()
    told = measure(arguments.seed, streams=arguments.streams)
    print(json.dumps(told)) if arguments.json else show(told)


if __name__ == "__main__":
    main()
