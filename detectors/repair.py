"""What a repair of the ratio costs, and what it leaves: tokens, answers, effective sample, certified bias.

Capping, clipping and masking trade bias for variance.  For each candidate this counts what it touches
and drops, and certifies the bias that remains (docs/mathematics.md D1 to D3, docs/repair.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.bounds.gradient import bias_statistic
from paritas.contracts.model import Estimator
from paritas.detectors.cap import CAPS, CertifiedBias, certified_bias
from paritas.detectors.evidence import PairBatch
from paritas.detectors.objectives import label_number
from paritas.detectors.pairs import Floats, PairOutcome
from paritas.detectors.repair_limits import units_of

__all__ = ["REPAIRS", "Price", "Repair", "RepairKind", "price_repairs"]

LOG_RATIO_CEILING = 50.0  # exp of it, squared, is finite; no repair but "none" lets such a weight through
Mask = NDArray[np.bool_]


class RepairKind(StrEnum):
    """What is done to the ratio w of a token."""

    NONE = "none"  # the estimator that ignores it: every weight 1
    TIS = "tis"  # min(w, C)
    MIS = "mis"  # w inside [1/C, C], else the token is dropped
    SEQUENCE_MASK = "sequence_mask"  # w, but a sequence with any token outside [1/C, C] is dropped
    CLIP = "clip"  # w clipped into [1 - c, 1 + c]


@dataclass(frozen=True, slots=True)
class Repair:
    """A candidate: `threshold` is C, or c of a clip; 0 for none."""

    kind: RepairKind
    threshold: float = 0.0

    def __str__(self) -> str:
        """Name for people."""
        return self.kind.value if self.kind is RepairKind.NONE else f"{self.kind.value} {self.threshold:g}"

    @property
    def estimator(self) -> Estimator:
        """The estimator whose certificate bounds the bias; a sequence mask has the range of a token's."""
        match self.kind:
            case RepairKind.NONE:
                return Estimator("none")
            case RepairKind.TIS:
                return Estimator("tis", cap=self.threshold)
            case RepairKind.CLIP:
                return Estimator("clip", clip=self.threshold)
            case _:
                return Estimator("mis", cap=self.threshold, low=1.0 / self.threshold)


REPAIRS = (
    Repair(RepairKind.NONE),
    *(Repair(RepairKind.TIS, cap) for cap in CAPS),
    *(Repair(RepairKind.MIS, cap) for cap in (1.25, 2.0, 5.0)),
    *(Repair(RepairKind.SEQUENCE_MASK, cap) for cap in (1.25, 2.0, 5.0)),
    *(Repair(RepairKind.CLIP, c) for c in (0.2, 0.5)),
)


@dataclass(frozen=True, slots=True)
class Price:
    """What a repair costs and leaves.

    Attributes
    ----------
    tokens, touched : int
        Valid tokens on both sides, and those whose weight is not their ratio.
    sequences, sequences_touched, sequences_lost : int
        Sequences with such tokens, those with a touched one, and those of which nothing is left.
    correct, correct_touched, correct_lost : int or None
        The same of the sequences with a reward above the middle of its range; None without rewards.
    ess : float, share
        ``(sum of weights)^2 / (tokens x sum of squared weights)``: how much of the sample is left.
    bias : CertifiedBias
        Remaining bias in units of A_max G; its limits hold for all candidates together.
    """

    repair: Repair
    tokens: int
    touched: int
    sequences: int
    sequences_touched: int
    sequences_lost: int
    correct: int | None
    correct_touched: int | None
    correct_lost: int | None
    ess: float
    bias: CertifiedBias


def price_repairs(
    outcomes: Sequence[PairOutcome],
    *,
    repairs: Sequence[Repair] = REPAIRS,
    alpha: float = 0.05,
    by_group: bool = False,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> tuple[Price, ...]:
    """Return the price of every candidate, in their order; none where nothing paired.

    Parameters
    ----------
    alpha : float
        Error probability of each side's limits, over all candidates together.
    reward_range : pair of float
        A sequence is correct if its label `reward` is above the middle.
    """
    paired = [o for o in outcomes if o.pair is not None and o.pair.tokens]
    if not paired:
        return ()
    batch = PairBatch.of([o.pair for o in paired if o.pair is not None])
    units, correct = units_of(paired, by_group=by_group), _correct(batch, sum(reward_range) / 2)
    level = alpha / len(repairs)
    return tuple(
        _price(batch, repair, correct, _certified(batch, repair, units, level)) for repair in repairs
    )


def _correct(batch: PairBatch, above: float) -> Mask | None:
    """Sequences with a reward above the middle; None where none carries a reward."""
    rewards = np.array([label_number(pair, "reward") for pair in batch.pairs])
    return None if np.isnan(rewards).all() else rewards > above


def _certified(batch: PairBatch, repair: Repair, units: NDArray[np.int64], alpha: float) -> CertifiedBias:
    values = bias_statistic(batch.log_ratio, repair.estimator)
    if repair.kind is RepairKind.SEQUENCE_MASK:
        # E_q w <= 1 given every prefix, so beta = 1 - E[w 1(kept)] with the missing mass, as for a token mask.
        values = np.where(_dropped(batch, repair), 1.0, values)
    return certified_bias(batch.means(np.asarray(values)), repair.estimator, units, alpha)


def _price(batch: PairBatch, repair: Repair, correct: Mask | None, bias: CertifiedBias) -> Price:
    touched, weights = _touched(batch, repair), _weights(batch, repair)
    counts = batch.counts()
    hit = batch.counts(touched) > 0
    lost = batch.counts(weights == 0.0) == counts
    right, right_hit, right_lost = _answers(correct, hit, lost)
    return Price(
        repair,
        len(weights),
        int(touched.sum()),
        len(batch),
        int(hit.sum()),
        int(lost.sum()),
        right,
        right_hit,
        right_lost,
        _ess(weights),
        bias,
    )


def _answers(correct: Mask | None, hit: Mask, lost: Mask) -> tuple[int | None, int | None, int | None]:
    """Correct sequences, those that are touched and those that are lost; None without rewards."""
    if correct is None:
        return None, None, None
    return int(correct.sum()), int((correct & hit).sum()), int((correct & lost).sum())


def _touched(batch: PairBatch, repair: Repair) -> Mask:
    """Tokens whose weight is not their ratio because the repair acts on them."""
    match repair.kind:
        case RepairKind.NONE:
            return np.zeros(len(batch.log_ratio), dtype=bool)
        case RepairKind.TIS:
            return np.asarray(batch.log_ratio > np.log(repair.threshold))
        case RepairKind.MIS:
            return _outside(batch.log_ratio, repair)
        case RepairKind.SEQUENCE_MASK:
            return _dropped(batch, repair)
        case RepairKind.CLIP:
            ratio = _ratio(batch)
            return np.asarray((ratio < 1.0 - repair.threshold) | (ratio > 1.0 + repair.threshold))


def _weights(batch: PairBatch, repair: Repair) -> Floats:
    ratio, c = _ratio(batch), repair.threshold
    match repair.kind:
        case RepairKind.NONE:
            return np.ones(len(ratio))
        case RepairKind.TIS:
            return np.minimum(ratio, c)
        case RepairKind.CLIP:
            return np.clip(ratio, 1.0 - c, 1.0 + c)
        case _:
            return np.where(_touched(batch, repair), 0.0, ratio)


def _ratio(batch: PairBatch) -> Floats:
    return batch.once("ratio", lambda: np.exp(np.minimum(batch.log_ratio, LOG_RATIO_CEILING)))


def _outside(log_ratio: Floats, repair: Repair) -> Mask:
    return np.asarray(np.abs(log_ratio) > np.log(repair.threshold))


def _dropped(batch: PairBatch, repair: Repair) -> Mask:
    """Tokens of the sequences with any token outside the band."""
    return np.repeat(batch.counts(_outside(batch.log_ratio, repair)) > 0, batch.counts())


def _ess(weights: Floats) -> float:
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / (len(weights) * squares) if squares else 0.0
