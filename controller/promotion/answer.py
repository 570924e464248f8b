"""The answer a rollout controller reads: PASS, FAIL or INSUFFICIENT of one stage of one candidate.

PASS only over evidence that verifies now and has not expired; whatever is missing is INSUFFICIENT.
"""

from dataclasses import asdict, dataclass

from paritas.contracts.model import Stage
from paritas.controller.promotion.evidence import Evidence, Keys, read_evidence
from paritas.controller.promotion.fitting import time_text
from paritas.controller.promotion.gates import gates, judge_statement
from paritas.controller.promotion.model import Block, Blocked, Gate, GateVerdict, Promotion, Standing
from paritas.controller.promotion.proof import passed_by, unproven
from paritas.controller.promotion.statement import ClauseVerdict
from paritas.controller.promotion.whole import Whole

__all__ = ["Answer", "answer", "unknown"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; `reason` and `text` say why it is no PASS, and are empty where it is."""

    verdict: GateVerdict
    stage: Stage
    reason: str = ""
    text: str = ""
    promotion: Promotion | None = None
    evidence: Evidence | None = None

    def as_dict(self) -> dict[str, object]:
        """JSON-ready values."""
        told: dict[str, object] = {
            "verdict": str(self.verdict),
            "stage": str(self.stage),
            "reason": self.reason,
            "text": self.text,
        }
        if self.promotion is not None:
            told |= _of_promotion(self.promotion)
        return told | ({} if self.evidence is None else _of_evidence(self.evidence))


def _of_promotion(p: Promotion) -> dict[str, object]:
    return {
        "promotion": p.promotion_id,
        "standing": str(p.standing),
        "gate": str(p.gate),
        "attempt": p.attempt,
        "contract": p.contract,
        "contract_version": p.contract_version,
        "contract_digest": p.contract_digest,
        "candidate_digest": p.candidate_digest,
    }


def _of_evidence(evidence: Evidence) -> dict[str, object]:
    s = evidence.statement
    return {
        "window": asdict(s.window),
        "clauses": [_clause(c) for c in s.clauses],
        "evidence": evidence.digest,
        "expires": time_text(s.expires_ns),
    }


def _clause(clause: ClauseVerdict) -> dict[str, object]:
    numbers = {name: getattr(clause, name) for name in ("estimate", "limit")}
    told = {name: value if value == value else None for name, value in numbers.items()}  # noqa: PLR0124 -- NaN
    return {
        "id": clause.clause,
        "slice": clause.slice,
        "state": str(clause.state),
        "reason": str(clause.reason),
        **told,
        "units": clause.units,
    }


def unknown(stage: Stage, text: str) -> Answer:
    """Return the answer where there is nothing to judge by."""
    return Answer(GateVerdict.INSUFFICIENT, stage, str(Block.MISSING_DATA), text)


def answer(whole: Whole, stage: Stage, *, now_ns: int, keys: Keys, step: int | None = None) -> Answer:
    """Return what is proven now of one stage of a promotion; of one step of its canary, from 1, if told."""
    promotion = whole.stored.promotion
    if promotion.standing.is_over:
        return Answer(
            GateVerdict.FAIL, stage, str(promotion.standing), _end(whole), promotion, _latest(whole, keys)
        )
    if stage is Stage.FULL:
        return _full(whole, now_ns, keys)
    mine = [gate for gate in gates(whole.contract) if gate.stage is stage and step in (None, gate.step + 1)]
    if not mine:
        name = stage if step is None else Gate(stage, step - 1)
        return _open(whole, stage, Block.MISSING_DATA, f"the contract does not gate {name}")
    found = [passed_by(gate, promotion, whole.contract, whole.kept, keys) for gate in mine]
    proofs = [evidence for evidence in found if evidence is not None]
    if len(proofs) < len(mine):
        return _waiting(whole, stage, keys, step)
    expired = [e for e in proofs if e.statement.expires_ns <= now_ns]
    if expired:
        return _expired(whole, stage, expired[0])
    return Answer(GateVerdict.PASS, stage, promotion=promotion, evidence=proofs[-1])


def _full(whole: Whole, now_ns: int, keys: Keys) -> Answer:
    """Full needs every gate, and evidence that is fresh and still conforms."""
    promotion, contract = whole.stored.promotion, whole.contract
    if promotion.standing is not Standing.FULL:
        return _waiting(whole, Stage.FULL, keys)
    blocked = unproven(promotion, contract, whole.kept, keys)
    evidence = _latest(whole, keys)
    if blocked is not None or evidence is None:
        why = blocked or Blocked(Block.FORGED, "the latest evidence no longer verifies")
        return _open(whole, Stage.FULL, why.block, why.text)
    if evidence.statement.expires_ns <= now_ns:
        return _expired(whole, Stage.FULL, evidence)
    s = evidence.statement
    verdict, why_not = judge_statement(s, contract, s.gate, s.attempt)
    why_not = why_not or (whole.stored.blocked if verdict is GateVerdict.PASS else None)
    if why_not is None:
        return Answer(GateVerdict.PASS, Stage.FULL, "", "", promotion, evidence)
    told = verdict if verdict is GateVerdict.FAIL else GateVerdict.INSUFFICIENT
    return Answer(told, Stage.FULL, str(why_not.block), why_not.text, promotion, evidence)


def _latest(whole: Whole, keys: Keys) -> Evidence | None:
    found = read_evidence(whole.stored.latest, keys) if whole.stored.latest else None
    return found if isinstance(found, Evidence) else None


def _end(whole: Whole) -> str:
    """How it ended, in the words of its last transition."""
    last = whole.kept[-1].transition
    return last.text or f"{last.cause} by {last.actor or 'somebody'}"


def _waiting(whole: Whole, stage: Stage, keys: Keys, step: int | None = None) -> Answer:
    """Not proven: what the latest evidence of its present gate was answered, if that is the gate asked for."""
    promotion, blocked = whole.stored.promotion, whole.stored.blocked
    latest = _latest(whole, keys)
    if latest is None or latest.statement.nonce != promotion.nonce or blocked is None:
        text = f"it is {promotion.standing} at {promotion.gate}: no evidence decides {stage} yet"
        return _open(whole, stage, Block.MISSING_DATA, text)
    if promotion.gate.stage is not stage or step not in (None, promotion.gate.step + 1):
        return _open(whole, stage, Block.WAITING, f"it is at {promotion.gate}: {blocked.text}")
    return Answer(GateVerdict.INSUFFICIENT, stage, str(blocked.block), blocked.text, promotion, latest)


def _expired(whole: Whole, stage: Stage, evidence: Evidence) -> Answer:
    text = f"the evidence expired at {time_text(evidence.statement.expires_ns)}"
    told = (whole.stored.promotion, evidence)
    return Answer(GateVerdict.INSUFFICIENT, stage, str(Block.EXPIRED), text, *told)


def _open(whole: Whole, stage: Stage, block: Block, text: str) -> Answer:
    return Answer(GateVerdict.INSUFFICIENT, stage, str(block), text, whole.stored.promotion)
