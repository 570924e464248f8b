"""What is proven is read from the kept evidence alone: no stored standing is taken for it."""

from dataclasses import replace

import pytest
from promotion_cases import BAKE, CANDIDATE, CONTRACT, KEYS, OTHER_KEY, T0, S, clauses, contract, signed

from paritas.contracts.model import Stage
from paritas.controller.promotion.events import Judged, Start
from paritas.controller.promotion.evidence import read_evidence
from paritas.controller.promotion.machine import begin, step
from paritas.controller.promotion.model import Block, Candidate, Gate, Standing
from paritas.controller.promotion.proof import Kept, fault_of, unproven
from paritas.records import State


def full():
    """A promotion at full with its kept transitions."""
    outcome = begin(Start("p1", CANDIDATE, "seed"), now_ns=T0, contract=CONTRACT)
    promotion, kept, now = outcome.promotion, [Kept(t) for t in outcome.transitions], T0
    while promotion.standing is not Standing.FULL:
        now += BAKE + S
        envelope = signed(promotion, now)
        found = read_evidence(envelope, KEYS)
        outcome = step(promotion, Judged(found.statement, found.digest), now_ns=now, contract=CONTRACT)
        promotion, kept = outcome.promotion, kept + [Kept(t, envelope) for t in outcome.transitions]
    return promotion, kept


PROMOTION, KEPT = full()


def test_full_with_all_its_evidence_is_proven():
    assert unproven(PROMOTION, CONTRACT, KEPT, KEYS) is None
    assert {fault_of(k, KEYS) for k in KEPT} == {""}


@pytest.mark.parametrize("number", range(1, 5))
def test_every_gate_needs_its_own_evidence(number):
    without = unproven(PROMOTION, CONTRACT, KEPT[:number] + KEPT[number + 1 :], KEYS)
    assert without.block is Block.FORGED
    assert without.text == f"no evidence that holds today is kept of {KEPT[number].transition.gate_before}"


@pytest.mark.parametrize("number", range(1, 5))
def test_the_envelope_of_another_transition_is_another_one(number):
    other = replace(KEPT[number], envelope=KEPT[number % 4 + 1].envelope)
    assert fault_of(other, KEYS) == "the stored envelope is another one"
    changed = [*KEPT[:number], other, *KEPT[number + 1 :]]
    assert unproven(PROMOTION, CONTRACT, changed, KEYS).block is Block.FORGED


def test_an_envelope_that_is_gone_or_of_another_key_is_a_fault():
    gone = replace(KEPT[1], envelope=b"")
    assert fault_of(gone, KEYS) == "the envelope is not JSON"
    at_gate = replace(PROMOTION, gate=Gate(Stage.OFFLINE_CI), nonce="")
    forged = replace(KEPT[1], envelope=signed(at_gate, T0, key=OTHER_KEY))
    assert fault_of(forged, KEYS).startswith("the envelope is signed by no trusted key")


def test_evidence_proves_nothing_of_another_contract_candidate_or_promotion():
    assert unproven(PROMOTION, CONTRACT, KEPT, {}).block is Block.FORGED
    for other in (
        replace(PROMOTION, contract_digest=contract(0.29).digest),
        replace(PROMOTION, candidate=Candidate("00")),
        replace(PROMOTION, promotion_id="p2"),
    ):
        assert unproven(other, CONTRACT, KEPT, KEYS).block is Block.FORGED


def test_a_stored_pass_over_evidence_that_is_none_proves_nothing():
    """Somebody with the database and a trusted key's old undecided verdict."""
    before = replace(PROMOTION, gate=Gate(Stage.OFFLINE_CI), attempt=1, gate_ns=T0, standing=Standing.RUNNING)
    weak = signed(before, T0, clauses=clauses(token_tv=State.UNDECIDED))
    digest = read_evidence(weak, KEYS).digest
    kept = [KEPT[0], Kept(replace(KEPT[1].transition, envelope=digest), weak), *KEPT[2:]]
    assert fault_of(kept[1], KEYS) == ""
    assert unproven(PROMOTION, CONTRACT, kept, KEYS).text.endswith("is kept of offline_ci")


def test_a_gate_that_is_none_of_the_contract_is_not_proven():
    lost = replace(PROMOTION, gate=Gate(Stage.CANARY, 7))
    assert unproven(lost, CONTRACT, KEPT, KEYS).text == "canary step 8 is no gate of the contract"
