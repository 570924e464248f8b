"""The ledger of a certificate: what it rests on, and whether that was measured, declared, or not looked at.

A certificate of reward drift or gradient bias is a theorem plus a confidence limit.  The limit is
`detectors.verdicts`'; this is about the theorem's premises (docs/assumptions.md).  `ledger_of` reads what the
sequences of the certificate's slice showed of them (`detectors.witness`), so that a premise that fails in one
slice withdraws the certificates of that slice only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING

from paritas.contracts.model import Clause, Contract
from paritas.detectors.witness import Witness
from paritas.records import Verdict

if TYPE_CHECKING:
    from paritas.detectors.evaluate import Evaluator

__all__ = ["Assumption", "Entry", "Ledger", "Standing", "is_certificate", "ledger_of", "ledgers"]

REWARDED = ("reward_gain", "reward_loss")
MISSING_TOLERANCE = 0.02  # a mean of min(w, 2) surely below 1 minus this has lost mass, whatever the noise
TOLERATED = 0.005  # share of sequences that may break a premise: what pairing_rate allows in the presets


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
    mean_ratio: Verdict | None = None,
) -> Ledger:
    """Return the ledger of a certificate.

    Parameters
    ----------
    witness : Witness
        What the sequences of the certificate's slice showed.
    mean_ratio : Verdict or None
        What the contract's `mean_ratio` clause says in the same slice: the ratio's own evidence of lost mass.

    Examples
    --------
    >>> from paritas.contracts.load import load_preset
    >>> contract = load_preset("rl-on-policy")
    >>> told = ledger_of(contract.clause("gradient-bias"), contract, Witness())
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
            _equal_tokens(witness),
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


def _equal_tokens(witness: Witness) -> Entry:
    """Both kernels scored the same tokens; what pairs was compared token by token."""
    at = Assumption.EQUAL_TOKENS
    both = witness.pairs + witness.refused
    if not both:
        return Entry(at, Standing.UNCHECKED, True, "nothing paired")
    kept = witness.refused <= TOLERATED * both
    told = f"{witness.pairs} sequences equal token by token, {witness.refused} not"
    return Entry(at, Standing.MEASURED, kept, told)


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
            evaluator.witnesses.of(v.slice),
            mean_ratio=ratios.get(v.slice),
        )
        for v in found
        if v.clause in held
    }
