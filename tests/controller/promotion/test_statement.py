"""Statements: canonical, exact through a round trip, and nothing else is taken for one."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from promotion_cases import CANDIDATE, CONTRACT, T0, clause, statement

from paritas.controller.promotion.events import Start
from paritas.controller.promotion.machine import begin
from paritas.controller.promotion.model import Candidate, GateVerdict
from paritas.controller.promotion.statement import (
    Window,
    candidate_digest,
    number_text,
    statement_of,
    statement_payload,
)
from paritas.errors import PermanentError

PROMOTION = begin(Start("p1", CANDIDATE, "seed"), now_ns=T0, contract=CONTRACT).promotion
STATEMENT = statement(PROMOTION, T0)
COUNTS = st.integers(0, 2**63 - 1)


@given(
    st.builds(
        lambda floats, window, verdict, names: statement(
            PROMOTION,
            T0,
            clauses=(clause(estimate=floats[0], lower=floats[1], limit=floats[2], clause=names[0]),),
            window=Window(*window),
            verdict=verdict,
            missing=tuple(names),
            alpha=abs(floats[0]),
        ),
        st.tuples(*[st.floats(allow_nan=False)] * 3),
        st.tuples(*[COUNTS] * 4),
        st.sampled_from(GateVerdict),
        st.lists(st.text(max_size=8), min_size=1, max_size=3),
    )
)
def test_a_statement_comes_back_exactly(told):
    payload = statement_payload(told)
    assert statement_of(payload) == told
    assert statement_payload(statement_of(payload)) == payload


def test_not_a_number_comes_back_as_such():
    told = statement_of(statement_payload(statement(PROMOTION, T0, clauses=(clause(lower=math.nan),))))
    assert math.isnan(told.clauses[0].lower)


def test_the_payload_is_canonical_and_holds_no_float():
    payload = statement_payload(STATEMENT)
    told = json.loads(payload, parse_float=lambda text: pytest.fail(f"a float: {text}"))
    assert payload == json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert told["_type"] == "https://in-toto.io/Statement/v1"
    assert told["predicateType"] == "https://paritas.dev/contract-verdict/v0.1"
    names = [s["name"] for s in told["subject"]]
    assert names == ["candidate", "inference", "reference", "train", "weights"]
    assert told["subject"][0]["digest"] == {"blake2b128": candidate_digest(CANDIDATE)}
    assert told["predicate"]["alpha"] == number_text(STATEMENT.alpha)


def test_a_candidate_of_other_parts_has_another_digest():
    digests = {
        candidate_digest(Candidate(*parts)) for parts in [("a",), ("", "a"), ("a", "b"), ("a", "", "b")]
    }
    assert len(digests) == 4


def changed(**changes):
    told = json.loads(statement_payload(STATEMENT))
    told["predicate"] |= changes
    return json.dumps(told).encode()


WITHOUT = "holds no contract verdict"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        changed(verdict="MAYBE"),
        changed(verdict=True),
        changed(stage="beta"),
        changed(step=-1),
        changed(step=True),
        changed(step=1 << 63),
        changed(alpha=0.01),
        changed(alpha="1e-2"),
        changed(alpha=" 0.01"),
        changed(window={}),
        changed(clauses=[{}]),
        changed(clauses=[{"clause": "token-tv"}]),
        changed(missing=[3]),
        changed(candidate={"inference": "a"}),
        changed(promotion=None),
    ],
)
def test_what_is_no_verdict_is_refused(payload):
    with pytest.raises(PermanentError, match=f"^{WITHOUT}$"):
        statement_of(payload)


def test_another_predicate_is_named():
    told = json.loads(statement_payload(STATEMENT))
    told["predicateType"] = "https://in-toto.io/attestation/test-result/v0.1"
    with pytest.raises(
        PermanentError, match=r"^is not a statement https://in-toto.io/Statement/v1 of a verdict"
    ):
        statement_of(json.dumps(told).encode())


def test_subjects_that_are_not_those_of_the_verdict_are_refused():
    told = json.loads(statement_payload(STATEMENT))
    told["subject"][1]["digest"]["blake2b128"] = "00"
    with pytest.raises(PermanentError, match=r"^names other subjects than its verdict is of$"):
        statement_of(json.dumps(told).encode())
