"""Evidence is believed for its signature alone."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from promotion_cases import CANDIDATE, CONTRACT, KEY, KEYS, OTHER_KEY, T0, signed, statement

from paritas.controller.promotion.events import Start
from paritas.controller.promotion.evidence import LIMIT_BYTES, Evidence, read_evidence
from paritas.controller.promotion.machine import begin
from paritas.controller.promotion.model import Block, Blocked
from paritas.controller.promotion.statement import PAYLOAD_TYPE
from paritas.signing import sign

PROMOTION = begin(Start("p1", CANDIDATE, "seed"), now_ns=T0, contract=CONTRACT).promotion
ENVELOPE = signed(PROMOTION, T0)
FORGED = "the envelope is signed by no trusted key, or was changed since"


def test_what_was_signed_is_read_and_the_key_is_named():
    found = read_evidence(ENVELOPE, KEYS)
    assert isinstance(found, Evidence)
    assert (found.statement, found.key) == (statement(PROMOTION, T0), next(iter(KEYS)))


def test_another_spelling_of_the_envelope_is_the_same_evidence():
    told = json.loads(ENVELOPE)
    other = {**told, "signatures": [*told["signatures"], {"keyid": "x", "sig": ""}], "more": 1}
    assert (
        read_evidence(json.dumps(other, indent=4).encode(), KEYS).digest
        == read_evidence(ENVELOPE, KEYS).digest
    )


@given(st.integers(0), st.integers(1, 255))
def test_any_changed_byte_of_the_payload_is_a_forgery(place, change):
    told = json.loads(ENVELOPE)
    payload = bytearray(base64.b64decode(told["payload"]))
    payload[place % len(payload)] ^= change
    told["payload"] = base64.b64encode(payload).decode()
    assert read_evidence(json.dumps(told).encode(), KEYS) == Blocked(Block.FORGED, FORGED)


def test_another_key_and_no_key():
    assert read_evidence(signed(PROMOTION, T0, key=OTHER_KEY), KEYS) == Blocked(Block.FORGED, FORGED)
    assert read_evidence(ENVELOPE, {}) == Blocked(Block.FORGED, FORGED)


@pytest.mark.parametrize(
    ("envelope", "block", "text"),
    [
        (b"", Block.MALFORMED, "the envelope is not JSON"),
        (b"\xff", Block.MALFORMED, "the envelope is not JSON"),
        (b"[" * 100_000, Block.MALFORMED, "the envelope is not JSON"),
        (b"x" * (LIMIT_BYTES + 1), Block.MALFORMED, f"the envelope has more than {LIMIT_BYTES} bytes"),
        (b"{}", Block.FORGED, "the envelope is not a signed envelope"),
        (
            json.dumps({**json.loads(ENVELOPE), "signatures": []}).encode(),
            Block.FORGED,
            "the envelope is not signed",
        ),
        (
            json.dumps({**json.loads(ENVELOPE), "payloadType": "application/x"}).encode(),
            Block.FORGED,
            f"the envelope is of type 'application/x', not {PAYLOAD_TYPE!r}",
        ),
        (
            json.dumps(sign(b"{}", PAYLOAD_TYPE, KEY)).encode(),
            Block.MALFORMED,
            "the signed payload holds no contract verdict",
        ),
    ],
)
def test_what_is_no_evidence_says_what_it_is(envelope, block, text):
    assert read_evidence(envelope, KEYS) == Blocked(block, text)
