"""DSSE: the published test vector's encoding, and that nothing unsigned is taken."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from paritas.contracts.floors.envelope import key_id, sign, verify
from paritas.errors import PermanentError

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key()
KIND = "application/x"


def test_what_is_signed_is_the_pre_authentication_encoding():
    """The example of the protocol: ``PAE("http://example.com/HelloWorld", "hello world")``."""
    envelope = sign(b"hello world", "http://example.com/HelloWorld", KEY)
    encoded = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    PUBLIC.verify(base64.b64decode(envelope["signatures"][0]["sig"]), encoded)
    assert base64.b64decode(envelope["payload"]) == b"hello world"
    assert envelope["signatures"][0]["keyid"] == key_id(PUBLIC)


@given(st.binary(max_size=200))
def test_a_payload_comes_back_through_json(payload):
    assert verify(json.loads(json.dumps(sign(payload, KIND, KEY))), KIND, PUBLIC) == payload


@given(st.binary(min_size=1, max_size=60), st.integers(0), st.integers(1, 255))
def test_one_changed_byte_is_refused(payload, place, change):
    envelope = sign(payload, KIND, KEY)
    changed = bytearray(payload)
    changed[place % len(changed)] ^= change
    with pytest.raises(PermanentError, match=r"^is not signed by this key, or was changed since$"):
        verify({**envelope, "payload": base64.b64encode(changed).decode()}, KIND, PUBLIC)


def test_one_good_signature_among_others_is_enough():
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    mine, theirs = sign(b"x", KIND, KEY), sign(b"x", KIND, other)
    both = {**mine, "signatures": theirs["signatures"] + mine["signatures"]}
    assert verify(both, KIND, PUBLIC) == b"x"
    with pytest.raises(PermanentError, match=r"^is not signed by this key, or was changed since$"):
        verify(theirs, KIND, PUBLIC)


@pytest.mark.parametrize(
    ("envelope", "text"),
    [
        (None, "is not a signed envelope"),
        ([], "is not a signed envelope"),
        ({"payloadType": KIND}, "is not a signed envelope"),
        ({"payloadType": KIND, "payload": "!", "signatures": []}, "is not a signed envelope"),
        ({"payloadType": KIND, "payload": 3, "signatures": []}, "is not a signed envelope"),
        ({"payloadType": KIND, "payload": "", "signatures": [{}]}, "is not a signed envelope"),
        ({"payloadType": KIND, "payload": "", "signatures": []}, "is not signed"),
        (
            {"payloadType": "other", "payload": "", "signatures": []},
            "is of type 'other', not 'application/x'",
        ),
    ],
)
def test_everything_else_is_refused_by_name(envelope, text):
    with pytest.raises(PermanentError) as caught:
        verify(envelope, KIND, PUBLIC)
    assert str(caught.value) == text
