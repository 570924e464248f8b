"""A signed payload: DSSE, the envelope of in-toto attestations, with Ed25519.

What is signed is ``DSSEv1 LEN(type) type LEN(payload) payload``, lengths in decimal, one space between
(github.com/secure-systems-lab/dsse, protocol 1.0.2), so that a payload cannot be taken for one of another type.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paritas.errors import PermanentError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["key_id", "sign", "verify", "verify_trusted"]

Envelope = dict[str, Any]


def sign(payload: bytes, payload_type: str, key: "Ed25519PrivateKey") -> Envelope:
    """Return the envelope of a payload, signed by one key, JSON-ready."""
    signature = key.sign(_encoded(payload, payload_type))
    return {
        "payloadType": payload_type,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [
            {"keyid": key_id(key.public_key()), "sig": base64.b64encode(signature).decode()},
        ],
    }


def verify(envelope: object, payload_type: str, key: "Ed25519PublicKey") -> bytes:
    """Return the payload of an envelope that `key` signed.

    Raises
    ------
    PermanentError
        It is no envelope, of another type, not signed, or not by this key.
    """
    from cryptography.exceptions import InvalidSignature

    payload, signatures = _parts(envelope, payload_type)
    if not signatures:
        raise PermanentError("is not signed")
    for signature in signatures:
        try:
            key.verify(signature, _encoded(payload, payload_type))
        except InvalidSignature:
            continue
        return payload
    raise PermanentError("is not signed by this key, or was changed since")


def verify_trusted(
    envelope: object, payload_type: str, keys: "Mapping[str, Ed25519PublicKey]"
) -> tuple[bytes, str]:
    """Return the payload of an envelope that one of `keys` signed, and that key's name.

    The names in the envelope decide nothing: every trusted key is tried.

    Raises
    ------
    PermanentError
        It is no envelope, of another type, not signed, or by none of these keys.
    """
    if not _parts(envelope, payload_type)[1]:
        raise PermanentError("is not signed")
    for name, key in sorted(keys.items()):
        try:
            return verify(envelope, payload_type, key), name
        except PermanentError:
            continue
    raise PermanentError("is signed by no trusted key, or was changed since")


def key_id(key: "Ed25519PublicKey") -> str:
    """Name of a public key: SHA-256 of its 32 bytes, hexadecimal; a hint for people, nothing rests on it."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def _encoded(payload: bytes, payload_type: str) -> bytes:
    """The pre-authentication encoding."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def _parts(envelope: object, payload_type: str) -> tuple[bytes, list[bytes]]:
    """Payload and signatures; PermanentError where the shape is not that of an envelope of this type."""
    try:
        told: Any = envelope
        kind, payload = told["payloadType"], _bytes(told["payload"])
        signatures = [_bytes(entry["sig"]) for entry in told["signatures"]]
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise PermanentError("is not a signed envelope") from error
    if kind != payload_type:
        raise PermanentError(f"is of type {kind!r}, not {payload_type!r}")
    return payload, signatures


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
