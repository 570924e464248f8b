"""The ledger of a certificate: what it rests on, and whether that was measured, declared, or not looked at.

A certificate of reward drift or gradient bias is a theorem plus a confidence limit.  The limit is
`detectors.verdicts`'; this is about the theorem's premises (docs/assumptions.md).  `Witness` folds
what pairs show of them, a few numbers however long the stream; `ledger_of` reads it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, isfinite
from typing import TYPE_CHECKING

from paritas.contracts.model import Clause, Contract
from paritas.detectors.objectives import label_number
from paritas.detectors.pairs import PairedTrace, PairOutcome
from paritas.records import PairReason, Sampling, Verdict

if TYPE_CHECKING:
    from paritas.detectors.evaluate import Evaluator

__all__ = ["Assumption", "Entry", "Ledger", "Standing", "Witness", "is_certificate", "ledger_of", "ledgers"]

REWARDED = ("reward_gain", "reward_loss")
MISSING_TOLERANCE = 0.02  # a mean of min(w, 2) surely below 1 minus this has lost mass, whatever the noise
TOLERATED = 0.005  # share of sequences that may break a premise: what pairing_rate allows in the presets
NO_CUT = (None, 1.0)
UNTRUNCATED = (1.0, 0, 0.0, "")


class Assumption(StrEnum):
    """What a certificate may rest on."""

    SUPPORT = "support"
    SCORE_NORM = "score_norm"
    REWARD_RANGE = "reward_range"
    EQUAL_WEIGHTS = "equal_weights"
    EQUAL_TOKENS = "equal_tokens"
    INDEPENDENT_UNITS = "independent_units"


class Standing(StrEnum):
    """How an assumption is known."""

    MEASURED = "measured"
    DECLARED = "declared"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Entry:
    """One assumption: how it is known, whether it was seen to fail, and the numbers."""

    assumption: Assumption
    standing: Standing
    holds: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """The assumptions of one certificate, in one order."""

    entries: tuple[Entry, ...]

    @property
    def failed(self) -> tuple[Entry, ...]:
        """Assumptions that were seen not to hold; one withdraws the certificate."""
        return tuple(entry for entry in self.entries if not entry.holds)


@dataclass(slots=True)
class Range:
    """Smallest and largest of the numbers a label carried, and how many there were."""

    count: int = 0
    low: float = inf
    high: float = -inf

    def add(self, value: float) -> None:
        """Take one number; NaN is none."""
        if value != value:  # noqa: PLR0124 -- NaN, and the cheapest way to ask
            return
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.count += 1


@dataclass(slots=True)
class Witness:
    """What paired sequences show of the premises.

    Attributes
    ----------
    pairs : int
    lagged, versioned, largest_lag : int
        Pairs at unequal weights versions, pairs that tell the lag, and the largest lag.
    truncated : int
        Pairs whose inference kernel cut its distribution and whose trainer did not do the same.
    truncation : str
        How the last of them was cut.
    parameters : int
        Pairs whose inference side reported how it sampled.
    grouped, siblings : int
        Pairs with a group, and pairs that share it with the pair before.
    rewards, scores : Range
        Labels `reward` and `score_norm`.
    """

    pairs: int = 0
    lagged: int = 0
    versioned: int = 0
    largest_lag: int = 0
    truncated: int = 0
    truncation: str = ""
    parameters: int = 0
    grouped: int = 0
    siblings: int = 0
    rewards: Range = field(default_factory=Range)
    scores: Range = field(default_factory=Range)
    _group: tuple[str, str] = ("", "")

    def note(self, outcomes: Iterable[PairOutcome]) -> None:
        """Take outcomes in the order in which they are judged: members of a group stand together."""
        for outcome in outcomes:
            if outcome.pair is not None:
                self._note(outcome.pair)

    def _note(self, pair: PairedTrace) -> None:
        self.pairs += 1
        self._note_lag(pair.lag)
        if pair.group_id:
            self._note_group((pair.run_id, pair.group_id))
        self._note_support(pair.sampling, pair.train_sampling)
        for name, told in (("reward", self.rewards), ("score_norm", self.scores)):
            if name in pair.attributes:
                told.add(label_number(pair, name))

    def _note_lag(self, lag: int | None) -> None:
        if lag is not None:
            self.versioned += 1
            self.lagged += lag != 0
            self.largest_lag = max(self.largest_lag, abs(lag))

    def _note_group(self, group: tuple[str, str]) -> None:
        self.grouped += 1
        self.siblings += group == self._group
        self._group = group

    def _note_support(self, inference: Sampling, train: Sampling) -> None:
        self.parameters += inference.top_p is not None or inference.top_k is not None
        if inference.top_p in NO_CUT and not (inference.top_k or inference.min_p or inference.processors):
            return  # the usual case, told quickly: this runs for every pair
        cut = _truncation(inference)
        if cut != UNTRUNCATED and cut != _truncation(train):
            self.truncated += 1
            names = ("top_p", "top_k", "min_p", "processors")
            told = zip(names, cut, UNTRUNCATED, strict=True)
            self.truncation = ", ".join(
                f"{name} {value}" for name, value, neutral in told if value != neutral
            )


def _truncation(sampling: Sampling) -> tuple[float, int, float, str]:
    """What of the sampling removes tokens; the neutral value where it was not reported."""
    top_k = sampling.top_k if sampling.top_k is not None and sampling.top_k > 0 else 0
    top_p = 1.0 if sampling.top_p is None else sampling.top_p
    return top_p, top_k, sampling.min_p or 0.0, sampling.processors


def is_certificate(clause: Clause, contract: Contract) -> bool:
    """Whether a pass of the clause certifies reward drift or gradient bias."""
    if clause.statistic == "sequence_tv":
        return contract.budget is not None and contract.budget.reward_drift is not None
    return clause.statistic in ("gradient_bias", *REWARDED)


def ledger_of(
    clause: Clause,
    contract: Contract,
    witness: Witness,
    *,
    reasons: Mapping[str, int],
    mean_ratio: Verdict | None = None,
) -> Ledger:
    """Return the ledger of a certificate.

    Parameters
    ----------
    reasons : mapping of PairReason to int
        Sequences by how pairing ended.
    mean_ratio : Verdict or None
        What the contract's `mean_ratio` clause says in the same slice: the ratio's own evidence of lost mass.

    Examples
    --------
    >>> from paritas.contracts.load import load_preset
    >>> contract = load_preset("rl-on-policy")
    >>> told = ledger_of(contract.clause("gradient-bias"), contract, Witness(), reasons={})
    >>> [(entry.assumption.value, entry.standing.value) for entry in told.entries][:2]
    [('support', 'unchecked'), ('score_norm', 'unchecked')]
    """
    bounded = _score_norm(contract, witness)
    if clause.statistic != "gradient_bias":
        bounded = _reward_range(clause, contract, witness)
    return Ledger(
        (
            _support(witness, mean_ratio),
            bounded,
            _equal_weights(witness),
            _equal_tokens(witness, reasons),
            _independent_units(contract, witness),
        )
    )


def _support(witness: Witness, ratio: Verdict | None) -> Entry:
    """No sampled-away mass: from the sampling parameters, and from E min(w, 2) <= 1 - missing mass (A19)."""
    at = Assumption.SUPPORT
    if witness.truncated > TOLERATED * witness.pairs:
        told = f"{witness.truncated} of {witness.pairs} sequences sampled with {witness.truncation}"
        return Entry(at, Standing.MEASURED, holds=False, detail=f"{told}, which the trainer did not apply")
    if ratio is not None and isfinite(ratio.upper):
        told = f"mean of the capped ratio between {ratio.lower:.4g} and {ratio.upper:.4g}"
        kept = ratio.upper >= 1.0 - MISSING_TOLERANCE
        return Entry(at, Standing.MEASURED, kept, told if kept else f"{told}: mass is missing")
    if witness.parameters:
        told = f"no truncation reported in {witness.parameters} of {witness.pairs} sequences"
        standing = Standing.MEASURED if witness.parameters == witness.pairs else Standing.UNCHECKED
        return Entry(at, standing, holds=True, detail=told)
    return Entry(at, Standing.UNCHECKED, True, "no sampling parameters reported, no mean_ratio clause")


def _score_norm(contract: Contract, witness: Witness) -> Entry:
    """Bound G of the norm of grad log p, without which a bias stays in units of A_max G (D1)."""
    at, seen = Assumption.SCORE_NORM, witness.scores
    declared = contract.budget.score_norm if contract.budget is not None else None
    if seen.count:
        told = f"largest of {seen.count} is {seen.high:.4g}"
        if declared is None:
            return Entry(at, Standing.MEASURED, holds=True, detail=told)
        return Entry(at, Standing.MEASURED, seen.high <= declared, f"{told}, declared {declared:g}")
    if declared is not None:
        return Entry(at, Standing.DECLARED, True, f"budget.score_norm {declared:g}")
    return Entry(at, Standing.UNCHECKED, True, "the bias stays in units of A_max G")


def _reward_range(clause: Clause, contract: Contract, witness: Witness) -> Entry:
    """R in its declared range (C1, C6)."""
    at, seen = Assumption.REWARD_RANGE, witness.rewards
    declared = clause.reward_range or (contract.budget.reward_range if contract.budget is not None else None)
    low, high = declared or (0.0, 1.0)
    told = f"{low:g} to {high:g}" + ("" if declared else ", the default")
    if seen.count:
        kept = low <= seen.low and seen.high <= high
        seen_text = f"{seen.count} rewards between {seen.low:.4g} and {seen.high:.4g}"
        return Entry(at, Standing.MEASURED, kept, f"{seen_text}, declared {told}")
    if declared is not None:
        return Entry(at, Standing.DECLARED, True, told)
    return Entry(at, Standing.UNCHECKED, True, f"no rewards seen, range {told}")


def _equal_weights(witness: Witness) -> Entry:
    """Both kernels held the same weights: otherwise staleness is in the number too."""
    at = Assumption.EQUAL_WEIGHTS
    if witness.lagged > TOLERATED * witness.pairs:
        told = f"{witness.lagged} of {witness.pairs} sequences up to {witness.largest_lag} versions apart"
        return Entry(at, Standing.MEASURED, holds=False, detail=told)
    if witness.pairs and witness.versioned == witness.pairs:
        told = f"equal versions in {witness.pairs - witness.lagged} of {witness.pairs} sequences"
        return Entry(at, Standing.MEASURED, holds=True, detail=told)
    told = f"{witness.versioned} of {witness.pairs} sequences report numbered versions of both kernels"
    return Entry(at, Standing.UNCHECKED, holds=True, detail=told)


def _equal_tokens(witness: Witness, reasons: Mapping[str, int]) -> Entry:
    """Both kernels scored the same tokens; what pairs was compared token by token."""
    at = Assumption.EQUAL_TOKENS
    refused = sum(reasons.get(r, 0) for r in (PairReason.TOKEN_MISMATCH, PairReason.LENGTH_MISMATCH))
    both = witness.pairs + refused
    if not both:
        return Entry(at, Standing.UNCHECKED, True, "nothing paired")
    kept = refused <= TOLERATED * both
    return Entry(
        at, Standing.MEASURED, kept, f"{witness.pairs} sequences equal token by token, {refused} not"
    )


def _independent_units(contract: Contract, witness: Witness) -> Entry:
    """One unit tells nothing of the next, given the past: answers to one prompt would."""
    at = Assumption.INDEPENDENT_UNITS
    if contract.compare.unit == "group":
        return Entry(at, Standing.DECLARED, True, "the unit is the prompt group")
    if witness.siblings > TOLERATED * witness.pairs:
        told = f"{witness.siblings} sequences share their prompt group with another"
        return Entry(at, Standing.MEASURED, False, f"{told}: write compare: {{unit: group}}")
    if witness.pairs and witness.grouped == witness.pairs:
        told = f"{witness.pairs} sequences of {witness.pairs - witness.siblings} groups"
        return Entry(at, Standing.MEASURED, holds=True, detail=told)
    return Entry(at, Standing.UNCHECKED, True, "no prompt groups reported")


def ledgers(evaluator: "Evaluator", found: Sequence[Verdict]) -> dict[tuple[str, str], Ledger]:
    """Return the ledger of every certificate in every slice: (clause id, slice) → ledger."""
    contract = evaluator.contract
    held = {c.id: c for c in evaluator.clauses if is_certificate(c, contract)}
    ratios = {v.slice: v for v in found if v.statistic == "mean_ratio"}
    return {
        (v.clause, v.slice): ledger_of(
            held[v.clause],
            contract,
            evaluator.witness,
            reasons=evaluator.reasons,
            mean_ratio=ratios.get(v.slice),
        )
        for v in found
        if v.clause in held
    }
