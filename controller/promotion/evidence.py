"""Evidence: a statement in a signed envelope, made with a private key and read with trusted ones."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paritas.controller.promotion.model import Block, Blocked
from paritas.controller.promotion.statement import (
    PAYLOAD_TYPE,
    Statement,
    statement_of,
    statement_payload,
)
from paritas.errors import PermanentError
from paritas.signing import sign, verify_trusted

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["LIMIT_BYTES", "Evidence", "Keys", "read_evidence", "sign_statement"]

LIMIT_BYTES = 1 << 20  # a thousand clause verdicts are a quarter of it
Keys = Mapping[str, "Ed25519PublicKey"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A verified statement.

    Attributes
    ----------
    digest : str
        BLAKE2b-128 of what was signed, so that another spelling of the envelope is no other envelope.
    key : str
        Name of the trusted key that signed it.
    """

    statement: Statement
    digest: str
    key: str


def sign_statement(statement: Statement, key: "Ed25519PrivateKey") -> bytes:
    """Return the envelope of a statement: JSON, one line."""
    envelope = sign(statement_payload(statement), PAYLOAD_TYPE, key)
    return json.dumps(envelope, sort_keys=True, separators=(",", ":")).encode()


def read_evidence(envelope: bytes, keys: Keys) -> Evidence | Blocked:
    """Return what an envelope says if a trusted key signed it, else why it is not believed."""
    if len(envelope) > LIMIT_BYTES:
        return Blocked(Block.MALFORMED, f"the envelope has more than {LIMIT_BYTES} bytes")
    try:
        told = json.loads(envelope)
    except (ValueError, RecursionError):
        return Blocked(Block.MALFORMED, "the envelope is not JSON")
    try:
        payload, key = verify_trusted(told, PAYLOAD_TYPE, keys)
    except PermanentError as error:
        return Blocked(Block.FORGED, f"the envelope {error}")
    try:
        statement = statement_of(payload)
    except PermanentError as error:
        return Blocked(Block.MALFORMED, f"the signed payload {error}")
    return Evidence(statement, hashlib.blake2b(payload, digest_size=16).hexdigest(), key)
