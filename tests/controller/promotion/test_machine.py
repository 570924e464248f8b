"""The machine: what moves a promotion, what does not, and that nothing else ever does."""

from dataclasses import replace

import pytest
from promotion_cases import BAKE, CANDIDATE, CONTRACT, HOUR, T0, TEXT, S, clauses, contract, statement
from promotion_walks import CANARY, LATER, LATER_DIGEST, ORDER, at, judge, started

from paritas.contracts.model import Stage
from paritas.controller.promotion.events import Aborted, Judged, Rebound, Resumed, Start, Ticked
from paritas.controller.promotion.machine import begin, step
from paritas.controller.promotion.model import Block, Candidate, Cause, Gate, GateVerdict, Standing
from paritas.controller.promotion.statement import Window, candidate_digest
from paritas.records import State


def test_the_way_to_full():
    for position, gate in enumerate(ORDER):
        promotion, _ = at(position)
        standing = Standing.FULL if gate.stage is Stage.FULL else Standing.RUNNING
        assert (promotion.gate, promotion.standing) == (gate, standing)
    assert promotion.used == ("e0", "e1", "e2", "e3")


def test_a_verdict_on_nothing_is_missing_data_and_binds_no_later_one():
    promotion, now = at(1)
    told = judge(promotion, now, "empty", window=Window(0, 0, 0, 0), verdict=GateVerdict.INSUFFICIENT)
    assert (told.blocked.block, told.blocked.text) == (Block.MISSING_DATA, "no sequence was looked at")
    assert told.promotion == promotion
    assert judge(told.promotion, now, "later").promotion.gate == ORDER[2]


def test_a_transition_says_what_was_decided_and_under_what():
    promotion, now = at(1)
    outcome = judge(promotion, now + S, "proof")
    (moved,) = outcome.transitions
    assert (moved.number, moved.cause, moved.envelope) == (3, Cause.GATE_PASSED, "proof")
    assert (moved.gate_before, moved.gate_after) == (ORDER[1], ORDER[2])
    assert (moved.contract_digest, moved.candidate_digest) == (CONTRACT.digest, candidate_digest(CANDIDATE))
    assert (moved.at_ns, moved.attempt, outcome.blocked) == (now + S, 1, None)


def test_every_gate_and_attempt_has_a_nonce_of_its_own():
    nonces = [at(position)[0].nonce for position in range(len(ORDER))]
    paused = step(started(), Ticked(), now_ns=T0 + HOUR, contract=CONTRACT).promotion
    again = step(paused, Resumed("ann"), now_ns=T0 + HOUR, contract=CONTRACT).promotion
    assert len({*nonces, again.nonce}) == len(ORDER) + 1
    other = begin(Start("p1", CANDIDATE, "other seed"), now_ns=T0, contract=CONTRACT).promotion
    assert other.nonce != started().nonce


BLOCKS = [
    (
        {"verdict": GateVerdict.INSUFFICIENT},
        Block.UNDECIDED,
        "undecided: the verdict says so itself",
    ),
    (
        {"clauses": clauses(token_tv=State.UNDECIDED)},
        Block.UNDECIDED,
        "undecided: token-tv in all (certified)",
    ),
    (
        {"clauses": clauses(paired=State.NO_DATA)},
        Block.MISSING_DATA,
        "no data: paired in all (certified)",
    ),
    ({"clauses": clauses()[:2]}, Block.MISSING_DATA, "no verdict of finite in all, finite"),
    ({"clauses": ()}, Block.MISSING_DATA, "no verdict of token-tv in all, paired in all, finite in all"),
    ({"missing": ("agent pod-7",)}, Block.MISSING_DATA, "missing: agent pod-7"),
    ({"window": Window(T0, T0, 0, 0)}, Block.MISSING_DATA, "no sequence was looked at"),
    ({"window": Window(T0, T0, 39, 5)}, Block.TOO_FEW_SEQUENCES, "39 sequences, the gate asks for 40"),
    ({"expires_ns": T0 + S}, Block.EXPIRED, "the verdict expired at 2023-11-14T22:13:21Z"),
    (
        {"issued_ns": T0 + HOUR},
        Block.NOT_YET_VALID,
        "the verdict is issued at 2023-11-14T23:13:20Z, in the future",
    ),
    ({"alpha": 0.05}, Block.ALPHA_EXCEEDED, "a pass spent alpha 0.05, attempt 1 may spend 0.0304"),
    ({"alpha": float("nan")}, Block.ALPHA_EXCEEDED, "a pass spent alpha nan, attempt 1 may spend 0.0304"),
    ({"alpha": 0.0}, Block.ALPHA_EXCEEDED, "a pass spent alpha 0, attempt 1 may spend 0.0304"),
    ({"attempt": 2}, Block.ANOTHER_ATTEMPT, "the verdict is of attempt 2, this is attempt 1"),
    (
        {"nonce": "another"},
        Block.REPLAYED,
        "the nonce is not the one given for offline_ci: it answers another time here",
    ),
    (
        {"gate": Gate(Stage.CANARY, 1)},
        Block.ANOTHER_STAGE,
        "the verdict is of canary step 2, the promotion is at offline_ci",
    ),
    (
        {"contract": "other", "contract_digest": "00" * 16},
        Block.ANOTHER_CONTRACT,
        "the verdict is of contract other, the promotion is under rollout",
    ),
    (
        {"contract_version": "1.1.0", "contract_digest": "00" * 16},
        Block.CHANGED_CONTRACT,
        f"the verdict is of rollout 1.1.0 (00000000), the promotion is bound to 1.0.0 ({CONTRACT.digest[:8]})",
    ),
    (
        {"candidate": LATER},
        Block.ANOTHER_CANDIDATE,
        f"the verdict is of candidate {LATER_DIGEST[:8]}, the promotion is of {candidate_digest(CANDIDATE)[:8]}: weights differ",
    ),
    ({"promotion_id": "p2"}, Block.ANOTHER_PROMOTION, "the verdict is of promotion 'p2', this is 'p1'"),
]


@pytest.mark.parametrize(("changes", "block", "text"), BLOCKS)
def test_what_blocks_says_why_and_moves_nothing(changes, block, text):
    outcome = judge(started(), T0 + S, **changes)
    assert outcome.blocked is not None
    assert (outcome.blocked.block, outcome.blocked.text) == (block, text)
    assert outcome.transitions == ()
    assert (outcome.promotion.gate, outcome.promotion.standing) == (ORDER[0], Standing.RUNNING)


def test_a_violated_clause_rolls_back_and_is_named():
    outcome = judge(started(), T0 + S, clauses=clauses(token_tv=State.VIOLATED))
    assert (outcome.promotion.standing, outcome.transitions[0].cause) == (
        Standing.ROLLED_BACK,
        Cause.CLAUSE_VIOLATED,
    )
    assert (outcome.blocked.block, outcome.blocked.text) == (
        Block.VIOLATED_CLAUSE,
        "violated: token-tv in all: 0.02 against 0.3",
    )
    after = judge(outcome.promotion, T0 + 2 * S, "later")
    assert (after.blocked.block, after.blocked.text) == (
        Block.OVER,
        "it is rolled_back, at offline_ci: start a new one",
    )


def test_a_headline_that_says_pass_over_a_violated_clause_fails():
    outcome = judge(started(), T0 + S, verdict=GateVerdict.PASS, clauses=clauses(finite=State.VIOLATED))
    assert outcome.promotion.standing is Standing.ROLLED_BACK
    outcome = judge(started(), T0 + S, verdict=GateVerdict.FAIL)
    assert outcome.promotion.standing is Standing.ROLLED_BACK


def test_an_envelope_moves_a_promotion_once():
    promotion = started()
    told = Judged(statement(promotion, T0 + S), "e")
    moved = step(promotion, told, now_ns=T0 + S, contract=CONTRACT).promotion
    again = step(moved, told, now_ns=T0 + S, contract=CONTRACT)
    assert (again.promotion, again.transitions) == (moved, ())
    assert again.blocked.block is Block.REPLAYED
    assert again.blocked.text == "this envelope has moved the promotion before; each one does so once"


def test_a_part_of_the_candidate_that_was_not_told_binds_nothing_and_one_that_was_does():
    loose = begin(Start("p1", Candidate("ab" * 16), "seed"), now_ns=T0, contract=CONTRACT).promotion
    assert judge(loose, T0 + S, candidate=CANDIDATE).blocked is None
    other = judge(loose, T0 + S, candidate=replace(CANDIDATE, inference="00"))
    assert other.blocked.block is Block.ANOTHER_CANDIDATE
    assert other.blocked.text.endswith(": inference differ")
    silent = judge(started(), T0 + S, candidate=Candidate("ab" * 16))
    assert silent.blocked.text.endswith(": train, reference, weights differ")


def test_a_step_bakes():
    promotion, now = at(2)
    early = judge(promotion, now + BAKE - S)
    assert early.promotion.gate == CANARY[0]
    assert early.blocked.block is Block.BAKING
    assert early.blocked.text.startswith("canary step 1 bakes until ")
    assert judge(early.promotion, now + BAKE).promotion.gate == CANARY[1]


def test_a_signature_after_the_bake_over_sequences_from_before_it_ended_is_early():
    promotion, now = at(2)
    window = Window(promotion.gate_ns, now + BAKE - 10 * S, 100, 9000)
    assert judge(promotion, now + BAKE, window=window).blocked.block is Block.BAKING


def test_sequences_of_another_time_do_not_count():
    promotion, now = at(1)
    before = judge(promotion, now + HOUR, window=Window(now - HOUR, now + HOUR, 100, 1))
    assert (before.promotion, before.blocked.block) == (promotion, Block.STALE_WINDOW)
    assert before.blocked.text == (
        "sequences from 2023-11-14T21:43:21Z, before shadow began at 2023-11-14T22:43:21Z"
    )
    old = judge(promotion, now + HOUR, window=Window(now, now + S, 100, 1))
    assert old.blocked.text == "the last sequence is of 2023-11-14T22:43:22Z, 3599 s before the verdict"
    assert judge(promotion, now + HOUR).promotion.gate == CANARY[0]


def test_an_undecided_attempt_may_grow_its_sequences_and_not_exchange_them():
    few = Window(T0, T0 + S, 50, 1)
    undecided = judge(started(), T0 + S, clauses=clauses(token_tv=State.UNDECIDED), window=few).promotion
    assert (undecided.window_from_ns, undecided.window_sequences) == (T0, 50)
    for window in (Window(T0 + 1, T0 + S, 99, 1), Window(T0, T0 + S, 49, 1)):
        fresh = judge(undecided, T0 + 2 * S, window=window)
        assert (fresh.promotion, fresh.blocked.block) == (undecided, Block.ANOTHER_ATTEMPT)
        assert fresh.blocked.text == (
            "this attempt was begun on other sequences, which may only grow: new ones are another attempt"
        )
    assert judge(undecided, T0 + 2 * S, window=Window(T0, T0 + 2 * S, 51, 1)).promotion.gate == ORDER[1]


def test_undecided_waits_to_the_deadline_then_pauses_then_a_person_goes_on_with_less_alpha():
    promotion = started()
    assert step(promotion, Ticked(), now_ns=T0 + HOUR - 1, contract=CONTRACT).promotion == promotion
    outcome = step(promotion, Ticked(), now_ns=T0 + HOUR, contract=CONTRACT)
    assert [t.text for t in outcome.transitions] == ["undecided for 3600 s"]
    paused = outcome.promotion
    assert paused.standing is Standing.PAUSED
    late = judge(paused, T0 + HOUR + S)
    assert (late.promotion.standing, late.blocked.block) == (Standing.PAUSED, Block.PAUSED)
    resumed = step(paused, Resumed("ann"), now_ns=T0 + 2 * HOUR, contract=CONTRACT).promotion
    assert (resumed.standing, resumed.attempt, resumed.stage_ns) == (Standing.RUNNING, 2, T0 + 2 * HOUR)
    old_alpha = judge(resumed, T0 + 2 * HOUR + S, alpha=0.03)
    assert old_alpha.blocked.text == "a pass spent alpha 0.03, attempt 2 may spend 0.0076"
    assert judge(resumed, T0 + 2 * HOUR + S).promotion.gate == ORDER[1]


def test_a_pass_that_comes_after_the_deadline_comes_too_late_even_before_the_tick():
    outcome = judge(started(), T0 + HOUR)
    assert outcome.promotion.standing is Standing.PAUSED
    assert [t.cause for t in outcome.transitions] == [Cause.DEADLINE_PASSED]
    assert outcome.blocked.block is Block.PAUSED


def test_a_violation_counts_while_it_is_paused():
    paused = step(started(), Ticked(), now_ns=T0 + HOUR, contract=CONTRACT).promotion
    outcome = judge(paused, T0 + HOUR + S, clauses=clauses(token_tv=State.VIOLATED))
    assert outcome.promotion.standing is Standing.ROLLED_BACK


def test_a_person_cannot_pass_a_gate():
    outcome = step(started(), Resumed("ann"), now_ns=T0 + S, contract=CONTRACT)
    assert (outcome.promotion, outcome.transitions) == (started(), ())
    assert outcome.blocked.text == "at offline_ci, attempt 1: signed evidence moves it, not a person"


def test_the_deadline_of_the_canary_is_that_of_all_its_steps():
    promotion, now = at(2)
    second = judge(promotion, now + 23 * HOUR).promotion
    assert second.gate == CANARY[1]
    outcome = step(second, Ticked(), now_ns=now + 24 * HOUR, contract=CONTRACT)
    assert outcome.promotion.standing is Standing.PAUSED


@pytest.mark.parametrize("state", [State.VIOLATED, State.NO_DATA])
def test_full_is_demoted_on_the_states_the_contract_declares(state):
    promotion, now = at(4)
    outcome = judge(promotion, now + S, clauses=clauses(paired=state), verdict=GateVerdict.INSUFFICIENT)
    assert (outcome.promotion.standing, outcome.transitions[0].cause) == (
        Standing.DEMOTED,
        Cause.DECLARED_STATE,
    )
    assert outcome.transitions[0].text == f"paired in all is {state}"


def test_a_clause_of_another_stage_neither_demotes_nor_is_asked_for():
    text = TEXT.replace("at_most: 0}", "at_most: 0, stages: [offline_ci]}")
    staged, (promotion, now) = contract(text=text), at(4)
    promotion = replace(promotion, contract_digest=staged.digest)
    for told in (clauses(finite=State.VIOLATED), clauses()[:2]):
        event = Judged(statement(promotion, now + S, clauses=told), "e")
        outcome = step(promotion, event, now_ns=now + S, contract=staged)
        assert (outcome.promotion, outcome.blocked) == (promotion, None)


def test_full_stays_on_a_state_that_does_not_demote_and_says_it():
    promotion, now = at(4)
    outcome = judge(promotion, now + S, clauses=clauses(paired=State.UNDECIDED))
    assert (outcome.promotion, outcome.transitions) == (promotion, ())
    assert outcome.blocked.block is Block.UNDECIDED
    assert judge(promotion, now + S).blocked is None


def test_a_person_may_abort_at_any_gate():
    for position in range(len(ORDER)):
        promotion, now = at(position)
        told = Aborted("ann", "not today")
        outcome = step(promotion, told, now_ns=now, contract=CONTRACT)
        (moved,) = outcome.transitions
        assert (outcome.promotion.standing, moved.actor, moved.text) == (Standing.ABORTED, "ann", "not today")
        again = step(outcome.promotion, told, now_ns=now, contract=CONTRACT)
        assert (again.promotion, again.transitions, again.blocked.block) == (
            outcome.promotion,
            (),
            Block.OVER,
        )


def test_a_tightened_contract_is_bound_and_every_gate_is_passed_again():
    promotion, now = at(2)
    tighter = contract(tv=0.29, version="1.0.1")
    outcome = step(promotion, Rebound(tighter, "ann"), now_ns=now, contract=CONTRACT)
    after = outcome.promotion
    assert (after.gate, after.attempt, after.contract_digest) == (ORDER[0], 2, tighter.digest)
    (moved,) = outcome.transitions
    assert (moved.cause, moved.text, moved.actor) == (Cause.CONTRACT_TIGHTENED, "1.0.0 -> 1.0.1", "ann")


def test_a_loosened_contract_is_refused_in_the_middle():
    promotion, now = at(2)
    looser = contract(tv=0.31, version="1.1.0")
    outcome = step(promotion, Rebound(looser, "ann"), now_ns=now, contract=CONTRACT)
    assert (outcome.promotion, outcome.transitions) == (promotion, ())
    assert (outcome.blocked.block, outcome.blocked.text) == (
        Block.LOOSENED_CONTRACT,
        "a contract in promotion is only tightened: loosens   clauses.token-tv.at_most: 0.3 -> 0.31",
    )


def test_the_contract_it_is_bound_to_is_no_change():
    promotion, now = at(2)
    outcome = step(promotion, Rebound(contract(), "ann"), now_ns=now, contract=CONTRACT)
    assert (outcome.promotion, outcome.blocked.block) == (promotion, Block.WAITING)


def test_full_takes_no_other_contract():
    promotion, now = at(4)
    tighter = contract(tv=0.29, version="1.0.1")
    outcome = step(promotion, Rebound(tighter, "ann"), now_ns=now, contract=CONTRACT)
    assert (outcome.promotion, outcome.blocked.text) == (
        promotion,
        "it is full: start a new promotion under the changed contract",
    )
