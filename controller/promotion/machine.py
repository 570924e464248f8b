"""The promotion as a pure function: state, event, time and contract in; state, transitions and refusal out.

Nothing here reads a clock, a file or a key: evidence comes in verified, and what is decided comes out
as values.  The same event twice changes nothing the second time.
"""

import hashlib
from dataclasses import dataclass, replace

from paritas.contracts.diff import compare_contracts
from paritas.contracts.model import Contract, Stage
from paritas.controller.promotion.events import (
    Aborted,
    Event,
    Judged,
    Outcome,
    Rebound,
    Resumed,
    Start,
    Ticked,
)
from paritas.controller.promotion.fitting import misfit, misfit_of_window, must_wait
from paritas.controller.promotion.gates import binding, declared, gates, judge_statement, next_gate
from paritas.controller.promotion.model import (
    Block,
    Blocked,
    Cause,
    Gate,
    GateVerdict,
    Promotion,
    Standing,
    Transition,
)
from paritas.controller.promotion.statement import ClauseVerdict, Statement, candidate_digest

__all__ = ["begin", "step"]

NS_PER_S = 1_000_000_000


def begin(start: Start, *, now_ns: int, contract: Contract) -> Outcome:
    """Return a promotion at the first gate of its contract, which must have one."""
    gate = gates(contract)[0]
    promotion = Promotion(
        promotion_id=start.promotion_id,
        contract=contract.name,
        contract_version=contract.version,
        contract_digest=contract.digest,
        candidate=start.candidate,
        candidate_digest=candidate_digest(start.candidate),
        standing=Standing.RUNNING,
        gate=gate,
        attempt=start.attempt,
        nonce="",
        stage_ns=now_ns,
        gate_ns=now_ns,
        seed=start.seed,
    )
    return _moved(promotion, _Move(Cause.STARTED, promotion, actor=start.actor), now_ns)


def step(promotion: Promotion, event: Event, *, now_ns: int, contract: Contract) -> Outcome:
    """Return what `event` does to `promotion` under the contract it is bound to."""
    if promotion.standing.is_over:
        return Outcome(promotion, (), _over(promotion))
    ticked = _tick(promotion, now_ns, contract)
    then = _answer(ticked.promotion, event, now_ns, contract)
    return Outcome(then.promotion, ticked.transitions + then.transitions, then.blocked)


def _answer(promotion: Promotion, event: Event, now_ns: int, contract: Contract) -> Outcome:
    match event:
        case Judged():
            return _judged(promotion, event, now_ns, contract)
        case Rebound():
            return _rebound(promotion, event, now_ns, contract)
        case Resumed():
            return _resumed(promotion, event.actor, now_ns)
        case Aborted():
            move = _Move(
                Cause.ABORTED, _ended(promotion, Standing.ABORTED), actor=event.actor, text=event.text
            )
            return _moved(promotion, move, now_ns)
        case Ticked():
            return Outcome(promotion)


def _tick(promotion: Promotion, now_ns: int, contract: Contract) -> Outcome:
    """Pause what is still undecided at its stage's deadline."""
    gate = declared(contract, promotion.gate.stage)
    if promotion.standing is not Standing.RUNNING or gate is None or gate.deadline_s is None:
        return Outcome(promotion)
    if now_ns < promotion.stage_ns + round(gate.deadline_s * NS_PER_S):
        return Outcome(promotion)
    text = f"undecided for {gate.deadline_s:g} s"
    return _moved(
        promotion,
        _Move(Cause.DEADLINE_PASSED, replace(promotion, standing=Standing.PAUSED), text=text),
        now_ns,
    )


def _judged(promotion: Promotion, event: Judged, now_ns: int, contract: Contract) -> Outcome:
    statement = event.statement
    if (blocked := misfit(promotion, statement, event.envelope, now_ns)) is not None:
        return Outcome(promotion, (), blocked)
    verdict, why = judge_statement(statement, contract, promotion.gate, promotion.attempt)
    if promotion.standing is Standing.FULL:
        return _watched(promotion, event, now_ns, contract, why)
    if verdict is GateVerdict.FAIL:
        return _fallen(promotion, event, now_ns, why)
    if not statement.window.sequences:  # of no time, and nothing that another try would have to contain
        return Outcome(promotion, (), why)
    if (blocked := misfit_of_window(promotion, statement)) is not None:
        return Outcome(promotion, (), blocked)
    if (blocked := why or must_wait(promotion, statement, contract)) is not None:
        return Outcome(_remembered(promotion, statement), (), blocked)
    return _passed(promotion, event, now_ns, contract)


def _fallen(promotion: Promotion, event: Judged, now_ns: int, why: Blocked | None) -> Outcome:
    text = "" if why is None else why.text
    after = _ended(promotion, Standing.ROLLED_BACK)
    move = _Move(Cause.CLAUSE_VIOLATED, after, envelope=event.envelope, text=text)
    return replace(_moved(promotion, move, now_ns), blocked=why)


def _watched(
    promotion: Promotion, event: Judged, now_ns: int, contract: Contract, why: Blocked | None
) -> Outcome:
    """At `full` evidence can only take it away again, in the states the contract declares."""
    gate = declared(contract, Stage.FULL)
    states = () if gate is None else gate.demote_on
    clauses = {c.id for c in binding(contract, Stage.FULL)}
    bad = [v for v in event.statement.clauses if v.state in states and v.clause in clauses]
    if not bad:
        return Outcome(promotion, (), why or misfit_of_window(promotion, event.statement))
    text = "; ".join(f"{v.clause} in {v.slice} is {v.state}" for v in bad[:3])
    move = _Move(
        Cause.DECLARED_STATE, _ended(promotion, Standing.DEMOTED), envelope=event.envelope, text=text
    )
    return replace(_moved(promotion, move, now_ns), blocked=why or _declared(bad, text))


def _declared(bad: list[ClauseVerdict], text: str) -> Blocked:
    return Blocked(Block.VIOLATED_CLAUSE, f"{len(bad)} in a state that demotes: {text}")


def _remembered(promotion: Promotion, statement: Statement) -> Promotion:
    """Keep which data an attempt is judged on: it may grow, and not be exchanged."""
    window = statement.window
    return replace(promotion, window_from_ns=window.from_ns, window_sequences=window.sequences)


def _passed(promotion: Promotion, event: Judged, now_ns: int, contract: Contract) -> Outcome:
    gate = next_gate(contract, promotion.gate)
    standing = Standing.FULL if gate.stage is Stage.FULL else Standing.RUNNING
    after = _entered(replace(promotion, standing=standing), gate, now_ns)
    return _moved(promotion, _Move(Cause.GATE_PASSED, after, envelope=event.envelope), now_ns)


def _resumed(promotion: Promotion, actor: str, now_ns: int) -> Outcome:
    if promotion.standing is not Standing.PAUSED:
        text = f"at {promotion.gate}, attempt {promotion.attempt}: signed evidence moves it, not a person"
        return Outcome(promotion, (), Blocked(Block.WAITING, text))
    fresh = replace(
        promotion, standing=Standing.RUNNING, attempt=promotion.attempt + 1, stage_ns=now_ns, gate_ns=now_ns
    )
    after = _entered(fresh, promotion.gate, now_ns)
    return _moved(promotion, _Move(Cause.RESUMED, after, actor=actor), now_ns)


def _rebound(promotion: Promotion, event: Rebound, now_ns: int, contract: Contract) -> Outcome:
    """Take another version of the contract, unless it asks for less; every gate is passed again under it."""
    new = event.contract
    if new.digest == promotion.contract_digest:
        return _resumed(promotion, event.actor, now_ns)
    if (blocked := _unfit(promotion, contract, new)) is not None:
        return Outcome(promotion, (), blocked)
    fresh = replace(
        promotion,
        standing=Standing.RUNNING,
        contract_version=new.version,
        contract_digest=new.digest,
        attempt=promotion.attempt + 1,
        stage_ns=now_ns,
    )
    after = _entered(fresh, gates(new)[0], now_ns)
    text = f"{contract.version} -> {new.version}"
    return _moved(promotion, _Move(Cause.CONTRACT_TIGHTENED, after, actor=event.actor, text=text), now_ns)


def _unfit(promotion: Promotion, old: Contract, new: Contract) -> Blocked | None:
    if new.name != old.name:
        text = f"the promotion is under {old.name}, this is {new.name}"
        return Blocked(Block.ANOTHER_CONTRACT, text)
    difference = compare_contracts(old, new)
    if difference.may_loosen or not gates(new):
        shown = [str(c) for c in difference.changes if c.effect in ("loosens", "incomparable")][:3]
        text = "a contract in promotion is only tightened: " + "; ".join(shown)
        return Blocked(Block.LOOSENED_CONTRACT, text)
    if promotion.standing is Standing.FULL:
        text = "it is full: start a new promotion under the changed contract"
        return Blocked(Block.CHANGED_CONTRACT, text)
    return None


def _over(promotion: Promotion) -> Blocked:
    return Blocked(Block.OVER, f"it is {promotion.standing}, at {promotion.gate}: start a new one")


@dataclass(frozen=True, slots=True)
class _Move:
    """A transition before it has a number."""

    cause: Cause
    after: Promotion
    envelope: str = ""
    actor: str = ""
    text: str = ""


def _entered(promotion: Promotion, gate: Gate, now_ns: int) -> Promotion:
    """At a gate, from now on: its stage's time runs on if the stage is the same."""
    is_new = gate.stage is not promotion.gate.stage
    stage_ns = now_ns if is_new else promotion.stage_ns
    return replace(
        promotion, gate=gate, gate_ns=now_ns, stage_ns=stage_ns, window_from_ns=-1, window_sequences=0
    )


def _ended(promotion: Promotion, standing: Standing) -> Promotion:
    return replace(promotion, standing=standing)


def _moved(before: Promotion, move: _Move, now_ns: int) -> Outcome:
    """Number the transition, keep the envelope as used, and give a gate that is new its nonce."""
    used = (*before.used, move.envelope) if move.envelope else before.used
    after = replace(move.after, transitions=before.transitions + 1, used=used)
    if _visit(after) != _visit(before) or not before.nonce:
        after = replace(after, nonce=_nonce(after))
    return Outcome(after, (_transition(before, after, move, now_ns),))


def _visit(promotion: Promotion) -> tuple[Gate, int, int]:
    """What makes a stay at a gate another one."""
    return promotion.gate, promotion.attempt, promotion.gate_ns


def _transition(before: Promotion, after: Promotion, move: _Move, now_ns: int) -> Transition:
    return Transition(
        promotion_id=after.promotion_id,
        number=after.transitions,
        at_ns=now_ns,
        cause=move.cause,
        before=before.standing,
        after=after.standing,
        gate_before=before.gate,
        gate_after=after.gate,
        attempt=before.attempt,
        contract_digest=before.contract_digest,
        candidate_digest=before.candidate_digest,
        envelope=move.envelope,
        actor=move.actor,
        text=move.text,
    )


def _nonce(promotion: Promotion) -> str:
    """What evidence for this gate must carry: nobody can know it before the gate is entered."""
    told = f"{promotion.promotion_id}/{promotion.gate}/{promotion.attempt}/{promotion.transitions}"
    return hashlib.blake2b(told.encode(), key=promotion.seed.encode()[:64], digest_size=16).hexdigest()
