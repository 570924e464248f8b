"""Signed statements: the DSSE envelope with Ed25519, and keys in files.  Needs ``paritas[sign]``."""

from paritas.signing.envelope import key_id, sign, verify, verify_trusted
from paritas.signing.keys import key_pair, private_key, public_key, trusted_keys

__all__ = [
    "key_id",
    "key_pair",
    "private_key",
    "public_key",
    "sign",
    "trusted_keys",
    "verify",
    "verify_trusted",
]
