"""The numbers training frameworks log, and the detectors one would put on them.

A number is a mean over the tokens of a step of 1, 8 or 64 sequences, by the peers' own formulas
(`detectors.rosetta_columns`).  A detector is told the number's healthy mean and deviation and is
two-sided; its threshold is set on healthy streams of the very recording it will watch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from paritas.commands.experiments.peers import Adwin, Detector, Scored, page_hinkley
from paritas.commands.experiments.recorded_streams import Places, Pool
from paritas.commands.experiments.result import Floats
from paritas.detectors.evidence import PairBatch, segment_sum
from paritas.detectors.rosetta_columns import TOKEN, columns_of

__all__ = ["NUMBERS", "STEPS", "Sums", "Watcher", "detectors", "watchers"]

STEPS = (1, 8, 64)  # sequences
# short name → what is logged, and the column of tokens it is the mean of, up to its sign
NUMBERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "|Δ|": ("trl:sampling/sampling_logp_difference/mean", "size"),
        "|p−q|": ("verl:training/rollout_probs_diff_mean", "gap"),
        "k1": ("verl:rollout_corr/kl", "ell"),
        "k3": ("verl:rollout_corr/k3_kl", "k3"),
        "mean w": ("verl:rollout_corr/rollout_is_mean", "truncated"),
        "mult": ("nemo_rl:train/token_mult_prob_error", "mult"),
    }
)
WARM = 10  # values before PageHinkley may alarm; river's 30 would outlast the healthy part of long steps
ADWIN_STEP = 8  # river's ADWIN looks every 32 values: slow on single sequences, too late on long steps
DEVIATIONS = 20.0  # ADWIN assumes values in [0, 1]: so many deviations are mapped there


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums over the tokens of each sequence of a pool.

    Attributes
    ----------
    by_number : mapping of str to shape (m,)
    tokens : shape (m,)
    """

    by_number: Mapping[str, Floats]
    tokens: Floats

    @classmethod
    def of(cls, pool: Pool) -> "Sums":
        """Compute the columns of every sequence once."""
        batch = PairBatch.of(list(pool.pairs))
        tokens, _ = columns_of(batch)
        told = {
            name: segment_sum(tokens[TOKEN[column]], batch.offsets) for name, (_, column) in NUMBERS.items()
        }
        return cls(told, batch.counts().astype(np.float64))

    def values(self, number: str, places: Places, step: int) -> Floats:
        """What is logged after each step of `step` sequences, shape (units / step, streams)."""
        total = self.by_number[number][places].reshape(-1, step, places.shape[1]).sum(axis=1)
        return np.asarray(total / self.tokens[places].reshape(-1, step, places.shape[1]).sum(axis=1))


@dataclass(frozen=True, slots=True)
class Watcher:
    """One detector on one number at one step, tuned.

    Attributes
    ----------
    centre, spread : float
        Healthy mean and deviation of the number.
    setting, false_alarms : float
        Its threshold, and the share of healthy streams with an alarm there.
    """

    number: str
    step: int
    detector: Detector
    centre: float
    spread: float
    setting: float
    false_alarms: float

    @property
    def name(self) -> str:
        """Detector, number and step, for people."""
        return f"{self.detector.name} on {self.number}, step {self.step}"

    def first(self, sums: Sums, places: Places) -> Places:
        """Sequences seen when each stream alarms for the first time; more than there are for never."""
        told = (sums.values(self.number, places, self.step) - self.centre) / self.spread
        return np.asarray((self.detector.alarms(told)(self.setting) + 1) * self.step)


def watchers(sums: Sums, healthy: Places, target: float) -> Iterator[Watcher]:
    """Tune every detector on every number and step, on healthy streams; those that cannot be tuned are left out."""
    for number in NUMBERS:
        for step in STEPS:
            values = sums.values(number, healthy, step)
            centre, spread = float(values.mean()), float(values.std()) or 1.0
            for detector in detectors(step):
                tuning = detector.tune((values - centre) / spread, target)
                share = tuning.share(tuning.setting)
                if share <= target:
                    yield Watcher(number, step, detector, centre, spread, tuning.setting, share)


def detectors(step: int) -> tuple[Detector, ...]:
    """Detectors of a standardised number."""
    cusum = (Scored(f"CUSUM k {k:g} sd", _cusum(k)) for k in (0.1, 0.3, 1.0))
    window = (Scored("threshold" if size == 1 else f"z-window {size}", _window(size)) for size in (1, 4, 16))
    hinkley = (Scored(f"PageHinkley delta {d:g} sd", _hinkley(d)) for d in (0.25, 1.0))
    adwin = (Adwin("ADWIN", DEVIATIONS, 0.5),) if step == ADWIN_STEP else ()
    return (*cusum, *window, *hinkley, *adwin)


def _cusum(slack: float) -> Callable[[Floats], Floats]:
    def score(values: Floats) -> Floats:
        out, up, down = np.empty_like(values), *np.zeros((2, values.shape[1]))
        for place, row in enumerate(values):
            up = np.maximum(up + row - slack, 0.0)
            down = np.maximum(down - row - slack, 0.0)
            out[place] = np.maximum(up, down)
        return out

    return score


def _window(size: int) -> Callable[[Floats], Floats]:
    def score(values: Floats) -> Floats:
        total = np.cumsum(np.concatenate([np.zeros((1, values.shape[1])), values]), axis=0)
        out = np.full_like(values, -np.inf)
        out[size - 1 :] = np.abs(total[size:] - total[:-size]) / np.sqrt(size)
        return out

    return score


def _hinkley(delta: float) -> Callable[[Floats], Floats]:
    def score(values: Floats) -> Floats:
        both = (page_hinkley(sign * values, delta) for sign in (1.0, -1.0))
        out = np.maximum(*both)
        out[: WARM - 1] = -np.inf
        return np.asarray(out)

    return score
