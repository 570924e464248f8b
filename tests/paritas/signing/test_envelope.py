"""DSSE: the published test vector's encoding, and that nothing unsigned is taken."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from paritas.errors import PermanentError
from paritas.signing import key_id, sign, verify, verify_trusted

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


def test_one_trusted_key_of_several_is_enough_and_is_named():
    other = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
    trusted = {key_id(other): other, key_id(PUBLIC): PUBLIC}
    assert verify_trusted(sign(b"x", KIND, KEY), KIND, trusted) == (b"x", key_id(PUBLIC))


@pytest.mark.parametrize(
    "keys", [{}, {"other": Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()}]
)
def test_no_trusted_key_signed_it(keys):
    with pytest.raises(PermanentError, match=r"^is signed by no trusted key, or was changed since$"):
        verify_trusted(sign(b"x", KIND, KEY), KIND, keys)


def test_a_name_in_the_envelope_decides_nothing():
    """An envelope that calls itself signed by a trusted key is not, for that."""
    forged = sign(b"x", KIND, Ed25519PrivateKey.from_private_bytes(bytes(32)))
    forged["signatures"][0]["keyid"] = key_id(PUBLIC)
    with pytest.raises(PermanentError, match=r"^is signed by no trusted key"):
        verify_trusted(forged, KIND, {key_id(PUBLIC): PUBLIC})


def test_an_envelope_without_signatures_is_said_to_have_none():
    with pytest.raises(PermanentError, match=r"^is not signed$"):
        verify_trusted({**sign(b"x", KIND, KEY), "signatures": []}, KIND, {"k": PUBLIC})
