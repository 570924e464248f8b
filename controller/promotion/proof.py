"""What is proven of a promotion, from its stored transitions alone: every envelope is verified again.

Independent of the machine that wrote them: nothing here trusts a standing that is merely stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paritas.contracts.model import Contract, Stage
from paritas.controller.promotion.evidence import Evidence, Keys, read_evidence
from paritas.controller.promotion.gates import gates, judge_statement
from paritas.controller.promotion.model import Block, Blocked, Cause, Gate, GateVerdict, Promotion, Transition

__all__ = ["Kept", "fault_of", "passed_by", "unproven"]


@dataclass(frozen=True, slots=True)
class Kept:
    """A transition as it is stored, with its envelope; empty where a person or the time caused it."""

    transition: Transition
    envelope: bytes = b""


def fault_of(kept: Kept, keys: Keys) -> str:
    """Return why the evidence of a transition no longer holds; empty if it does or there is none."""
    if not kept.transition.envelope:
        return ""
    found = read_evidence(kept.envelope, keys)
    if isinstance(found, Blocked):
        return found.text
    return "" if found.digest == kept.transition.envelope else "the stored envelope is another one"


def passed_by(
    gate: Gate, promotion: Promotion, contract: Contract, kept: Sequence[Kept], keys: Keys
) -> Evidence | None:
    """Return verified evidence of a pass of `gate` under the bound contract and candidate."""
    for entry in reversed(kept):
        found = _pass(entry, gate, promotion, keys)
        if found is not None and _judges_pass(found, contract, gate):
            return found
    return None


def _pass(entry: Kept, gate: Gate, promotion: Promotion, keys: Keys) -> Evidence | None:
    transition = entry.transition
    if transition.cause is not Cause.GATE_PASSED or transition.gate_before != gate:
        return None
    if fault_of(entry, keys):
        return None
    found = read_evidence(entry.envelope, keys)
    if isinstance(found, Blocked):
        return None
    s = found.statement
    is_its = (s.promotion_id, s.contract_digest, s.gate) == (
        promotion.promotion_id,
        promotion.contract_digest,
        gate,
    )
    return found if is_its and not promotion.candidate.differing(s.candidate) else None


def _judges_pass(evidence: Evidence, contract: Contract, gate: Gate) -> bool:
    """Judge again what was judged then."""
    verdict, _ = judge_statement(evidence.statement, contract, gate, evidence.statement.attempt)
    return verdict is GateVerdict.PASS


def unproven(promotion: Promotion, contract: Contract, kept: Sequence[Kept], keys: Keys) -> Blocked | None:
    """Return which gate before the present one has no evidence that holds today; None if all have."""
    for gate in gates(contract):
        if promotion.gate == gate:
            return None
        if passed_by(gate, promotion, contract, kept, keys) is None:
            text = f"no evidence that holds today is kept of {gate}"
            return Blocked(Block.FORGED, text)
    is_full = promotion.gate.stage is Stage.FULL
    return None if is_full else Blocked(Block.FORGED, f"{promotion.gate} is no gate of the contract")
