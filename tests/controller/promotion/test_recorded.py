"""A promotion over all four stages on recorded data judged by the real detectors, and everything that blocks it."""

import base64
import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from promotion_cases import (
    DOCUMENT,
    OTHER_KEY,
    S,
    contract,
    controller,
    evidence_of,
    promoted,
    recorded_candidate,
    recorded_report,
)

from paritas.clock import ManualClock
from paritas.contracts.dump import canonical_json
from paritas.contracts.model import Stage
from paritas.controller.promotion.model import Block, Candidate, Cause, Gate, Standing
from paritas.controller.refusals import RefusalError


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def client(tmp_path, clock):
    with controller(tmp_path, clock) as made:
        yield made


def healthy(promotion, stage=None, **changes):
    return recorded_report("healthy", stage or promotion.gate.stage, promotion.attempt, **changes)


def test_all_four_stages_on_recorded_data(client, clock):
    promotion = promoted(client, clock, 4)
    assert (promotion.standing, promotion.gate) == (Standing.FULL, Gate(Stage.FULL))
    detail = client.get("p1")
    way = [(k.transition.cause, str(k.transition.gate_after)) for k in detail.kept]
    assert way == [
        (Cause.STARTED, "offline_ci"),
        (Cause.GATE_PASSED, "shadow"),
        (Cause.GATE_PASSED, "canary step 1"),
        (Cause.GATE_PASSED, "canary step 2"),
        (Cause.GATE_PASSED, "full"),
    ]
    assert [bool(k.envelope) for k in detail.kept] == [False, True, True, True, True]
    assert {k.fault for k in detail.kept} == {""}
    assert detail.contract == DOCUMENT


def blocked(client, envelope, block, text):
    """Submit; nothing may move, and the text says why."""
    before = client.get("p1").promotion
    answer = client.submit("p1", envelope)
    assert answer.blocked is not None
    assert answer.blocked.block is block, answer.blocked
    assert text in answer.blocked.text
    assert answer.transitions == ()
    after = client.get("p1").promotion
    assert (after.gate, after.standing, after.transitions) == (
        before.gate,
        before.standing,
        before.transitions,
    )


def test_a_violated_clause_rolls_back(client, clock):
    tight = canonical_json(contract(0.06))
    promotion = client.start(tight, recorded_candidate(), promotion_id="p1")
    report = recorded_report("top_p", Stage.OFFLINE_CI, 1, tv=0.06)
    assert report["exit_code"] == 1
    answer = client.submit("p1", evidence_of(report, promotion, clock))
    assert (answer.promotion.standing, answer.transitions[0].cause) == (
        Standing.ROLLED_BACK,
        Cause.CLAUSE_VIOLATED,
    )
    assert answer.blocked.text == "violated: token-tv in all: 0.08987 against 0.06"
    assert client.get("p1").kept[-1].envelope


def test_missing_data_blocks(client, clock):
    promotion = promoted(client, clock, 1)
    clock.advance(seconds=60)
    empty = recorded_report("healthy", promotion.gate.stage, 1, lines=0)
    blocked(
        client,
        evidence_of(empty, promotion, clock),
        Block.MISSING_DATA,
        "no data: token-tv in all (no_units)",
    )
    told = evidence_of(healthy(promotion), promotion, clock, missing=("agent pod-7",))
    blocked(client, told, Block.MISSING_DATA, "missing: agent pod-7")


def test_too_few_sequences_are_undecided(client, clock):
    promotion = promoted(client, clock, 1)
    few = recorded_report("healthy", promotion.gate.stage, 1, lines=39)
    blocked(
        client,
        evidence_of(few, promotion, clock),
        Block.TOO_FEW_SEQUENCES,
        "39 sequences, the gate asks for 40",
    )


def test_an_undecided_verdict_blocks(client, clock):
    tight = canonical_json(contract(0.06))
    promotion = client.start(tight, recorded_candidate(), promotion_id="p1")
    report = recorded_report("healthy", Stage.OFFLINE_CI, 1, tv=0.06)
    blocked(
        client, evidence_of(report, promotion, clock), Block.UNDECIDED, "token-tv in all (needs_more_units)"
    )


def test_an_expired_verdict_blocks(client, clock):
    promotion = promoted(client, clock, 1)
    envelope = evidence_of(healthy(promotion), promotion, clock, expires_s=60)
    clock.advance(seconds=60)
    blocked(client, envelope, Block.EXPIRED, "the verdict expired at 2023-11-14T22:44:21Z")


def test_a_forged_verdict_blocks(client, clock):
    promotion = promoted(client, clock, 1)
    text = "the envelope is signed by no trusted key, or was changed since"
    blocked(client, evidence_of(healthy(promotion), promotion, clock, key=OTHER_KEY), Block.FORGED, text)
    envelope = json.loads(evidence_of(healthy(promotion), promotion, clock))
    payload = bytearray(base64.b64decode(envelope["payload"]))
    payload[payload.index(b'"INSUFFICIENT"' if b'"INSUFFICIENT"' in payload else b'"PASS"') + 1] ^= 1
    envelope["payload"] = base64.b64encode(payload).decode()
    blocked(client, json.dumps(envelope).encode(), Block.FORGED, text)


def test_a_replayed_verdict_blocks(client, clock):
    promotion = client.start(DOCUMENT, recorded_candidate(), promotion_id="p1")
    envelope = evidence_of(healthy(promotion), promotion, clock)
    assert client.submit("p1", envelope).blocked is None
    blocked(client, envelope, Block.REPLAYED, "this envelope has moved the promotion before")
    respelt = json.dumps(json.loads(envelope), indent=3).encode()
    blocked(client, respelt, Block.REPLAYED, "this envelope has moved the promotion before")


def test_a_verdict_from_before_a_pause_is_a_replay(client, clock):
    first = client.start(DOCUMENT, recorded_candidate(), promotion_id="p1")
    old = evidence_of(healthy(first), first, clock, attempt=2, alpha=0.001)
    clock.advance(seconds=3600)
    assert client.advance("p1", actor="ann").promotion.attempt == 2
    blocked(client, old, Block.REPLAYED, "the nonce is not the one given for offline_ci")


def test_a_verdict_of_another_contract_blocks(client, clock):
    promotion = promoted(client, clock, 1)
    envelope = evidence_of(healthy(promotion), promotion, clock, contract="serving")
    blocked(
        client, envelope, Block.ANOTHER_CONTRACT, "is of contract serving, the promotion is under rollout"
    )


def test_a_verdict_under_a_changed_contract_blocks(client, clock):
    promotion = promoted(client, clock, 1)
    report = healthy(promotion, tv=0.4, version="1.1.0")
    blocked(
        client,
        evidence_of(report, promotion, clock),
        Block.CHANGED_CONTRACT,
        f"the verdict is of rollout 1.1.0 ({contract(0.4, '1.1.0').digest[:8]}), the promotion is bound to 1.0.0",
    )


def test_a_verdict_of_another_candidate_blocks(client, clock):
    promotion = promoted(client, clock, 1)
    other = replace(promotion.candidate, inference="00" * 16)
    envelope = evidence_of(healthy(promotion), promotion, clock, candidate=other)
    blocked(client, envelope, Block.ANOTHER_CANDIDATE, "inference differ")


def test_a_verdict_of_another_stage_blocks(client, clock):
    promotion = promoted(client, clock, 1)
    report = healthy(promotion, Stage.OFFLINE_CI)
    envelope = evidence_of(report, promotion, clock)
    blocked(client, envelope, Block.ANOTHER_STAGE, "the verdict is of offline_ci, the promotion is at shadow")


def test_sequences_from_before_the_stage_block(client, clock):
    promotion = promoted(client, clock, 1)
    begun = promotion.gate_ns - 3600 * S
    envelope = evidence_of(healthy(promotion), promotion, clock, begun_ns=begun)
    blocked(client, envelope, Block.STALE_WINDOW, "before shadow began at")


def test_a_step_that_still_bakes_blocks(client, clock):
    promotion = promoted(client, clock, 2)
    clock.advance(seconds=60)
    blocked(
        client, evidence_of(healthy(promotion), promotion, clock), Block.BAKING, "canary step 1 bakes until"
    )


def test_a_loosened_contract_is_refused_and_a_tightened_one_starts_over(client, clock):
    promoted(client, clock, 2)
    looser = client.advance("p1", actor="ann", contract=canonical_json(contract(0.4, "1.1.0")))
    assert looser.transitions == ()
    assert looser.blocked.block is Block.LOOSENED_CONTRACT
    assert looser.blocked.text.endswith("loosens   clauses.token-tv.at_most: 0.3 -> 0.4")
    answer = client.advance("p1", actor="ann", contract=canonical_json(contract(0.29, "1.0.1")))
    assert (answer.promotion.gate, answer.promotion.attempt) == (Gate(Stage.OFFLINE_CI), 2)
    assert client.get("p1").contract == canonical_json(contract(0.29, "1.0.1"))
    blocked(
        client,
        evidence_of(healthy(answer.promotion), answer.promotion, clock),
        Block.CHANGED_CONTRACT,
        "the promotion is bound to 1.0.1",
    )
    report = healthy(answer.promotion, tv=0.29, version="1.0.1")
    assert (
        client.submit("p1", evidence_of(report, answer.promotion, clock)).promotion.gate.stage is Stage.SHADOW
    )


def test_the_next_attempt_of_a_candidate_spends_less(client, clock):
    promoted(client, clock, 1)
    client.abort("p1", actor="ann", text="again from the start")
    second = client.start(DOCUMENT, recorded_candidate(), promotion_id="p2")
    assert second.attempt == 2
    first_again = recorded_report("healthy", Stage.OFFLINE_CI, 1)
    answer = client.submit("p2", evidence_of(first_again, second, clock, attempt=2))
    assert answer.blocked.text == "a pass spent alpha 0.0304, attempt 2 may spend 0.0076"
    assert client.submit("p2", evidence_of(healthy(second), second, clock)).blocked is None
    other = client.start(DOCUMENT, Candidate("00" * 16), promotion_id="p3")
    assert other.attempt == 1


def test_a_paused_promotion_waits_for_a_person(client, clock):
    promotion = promoted(client, clock, 1)
    clock.advance(seconds=6 * 3600)
    paused = client.get("p1").promotion
    assert paused.standing is Standing.PAUSED
    blocked(
        client,
        evidence_of(healthy(promotion), promotion, clock),
        Block.PAUSED,
        "`paritas promote advance` opens another attempt",
    )
    resumed = client.advance("p1", actor="ann").promotion
    assert (
        client.submit("p1", evidence_of(healthy(resumed), resumed, clock)).promotion.gate.stage
        is Stage.CANARY
    )


def test_full_is_demoted_by_a_violation(client, clock):
    promotion = promoted(client, clock, 4)
    kept = evidence_of(healthy(promotion, Stage.FULL), promotion, clock)
    assert (client.submit("p1", kept).blocked, client.get("p1").promotion.standing) == (None, Standing.FULL)
    clauses = healthy(promotion, Stage.FULL)["verdicts"]
    bad = {**healthy(promotion, Stage.FULL), "exit_code": 1}
    bad["verdicts"] = [{**v, "state": "violated", "reason": "refuted"} for v in clauses]
    answer = client.submit("p1", evidence_of(bad, promotion, clock))
    assert (answer.promotion.standing, answer.transitions[0].cause) == (
        Standing.DEMOTED,
        Cause.DECLARED_STATE,
    )


# What is kept


def test_a_restart_keeps_everything(tmp_path, clock):
    with controller(tmp_path, clock) as client:
        promotion = promoted(client, clock, 2)
        before = client.get("p1")
    with controller(tmp_path, clock) as client:
        assert client.get("p1") == before
        clock.advance(seconds=1801)
        answer = client.submit("p1", evidence_of(healthy(promotion), promotion, clock))
        assert answer.promotion.gate == Gate(Stage.CANARY, 1)
        blocked(client, before.kept[1].envelope, Block.REPLAYED, "has moved the promotion before")


def test_a_deadline_passes_while_the_controller_is_away(tmp_path, clock):
    with controller(tmp_path, clock) as client:
        promoted(client, clock, 1)
    clock.advance(seconds=7 * 3600)
    with controller(tmp_path, clock) as client:
        assert client.get("p1").promotion.standing is Standing.PAUSED


def test_evidence_that_was_changed_on_disk_stops_the_promotion(tmp_path, clock):
    with controller(tmp_path, clock) as client:
        promotion = promoted(client, clock, 2)
    with closing(sqlite3.connect(tmp_path / "log.sqlite")) as db:
        query = "SELECT envelope FROM promotion_transitions WHERE number = 2"
        envelope = db.execute(query).fetchone()[0]
        changed = envelope.replace(b'"sig":"', b'"sig":"AAAA')
        db.execute("UPDATE promotion_transitions SET envelope = ? WHERE number = 2", (changed,))
        db.commit()
    with controller(tmp_path, clock) as client:
        clock.advance(seconds=1801)
        faults = [k.fault for k in client.get("p1").kept]
        assert faults == ["", "the envelope is not a signed envelope", ""] or faults[1].startswith(
            "the envelope is "
        )
        told = evidence_of(healthy(promotion), promotion, clock)
        blocked(client, told, Block.FORGED, "no evidence that holds today is kept of offline_ci")


def test_a_key_that_is_no_longer_trusted_takes_its_evidence_with_it(tmp_path, clock):
    with controller(tmp_path, clock) as client:
        promoted(client, clock, 2)
    with controller(tmp_path, clock, keys=None) as client:
        detail = client.get("p1")
        assert {k.fault for k in detail.kept[1:]} == {
            "the envelope is signed by no trusted key, or was changed since"
        }
        answer = client.submit("p1", detail.kept[1].envelope)
        assert answer.blocked.block is Block.FORGED
        assert answer.blocked.text == (
            "the envelope is signed by no trusted key, or was changed since; start the controller with "
            "--promotion-keys FILE, the public keys it is to trust"
        )


def test_a_promotion_that_is_not_known(client):
    with pytest.raises(RefusalError, match=r"^promotion 'p9' is not known$"):
        client.get("p9")
