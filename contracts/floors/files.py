"""Floor files and keys on disk; every mistake is one error with the file's name."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.contracts.floors.envelope import sign, verify
from paritas.contracts.floors.record import PAYLOAD_TYPE, MeasuredFloor
from paritas.errors import PermanentError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["key_pair", "private_key", "public_key", "read_floor", "write_floor"]

MEASURE_HINT = "paritas floor measure writes one"
KEY_HINT = "paritas floor key PRIVATE.pem PUBLIC.pem makes a pair"
LIMIT_BYTES = 1 << 20


def read_floor(path: Path, key: "Ed25519PublicKey") -> MeasuredFloor:
    """Return the floor in a file after verifying its signature.

    Raises
    ------
    UsageError
        The file cannot be read, holds no signed floor, or `key` did not sign it.
    """
    content = _content(path, MEASURE_HINT)
    try:
        return MeasuredFloor.from_payload(verify(_json(content), PAYLOAD_TYPE, key))
    except PermanentError as error:
        raise UsageError(f"{path}: {error}", hint=MEASURE_HINT) from error


def write_floor(path: Path, floor: MeasuredFloor, key: "Ed25519PrivateKey") -> None:
    """Write a signed floor; the file gets its name when it is complete.

    Raises
    ------
    UsageError
        The file system refuses.
    """
    text = json.dumps(sign(floor.payload(), PAYLOAD_TYPE, key), indent=2) + "\n"
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(text)
        beside.replace(path)
    except OSError as error:
        raise _refused(path, error) from error


def key_pair(private: Path, public: Path) -> None:
    """Make an Ed25519 key pair as PEM; the private file is readable by its owner only, nothing is overwritten.

    Raises
    ------
    UsageError
        A file is there, or the file system refuses.
    """
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, encoding = Ed25519PrivateKey.generate(), pem.Encoding.PEM
    secret = key.private_bytes(encoding, pem.PrivateFormat.PKCS8, pem.NoEncryption())
    _write_new(private, secret, 0o600)
    _write_new(public, key.public_key().public_bytes(encoding, pem.PublicFormat.SubjectPublicKeyInfo), 0o644)


def private_key(path: Path) -> "Ed25519PrivateKey":
    """Return the key in a PEM file; raises `UsageError` where there is none."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_content(path, KEY_HINT), None)
    except (ValueError, TypeError) as error:
        raise _no_key(path, "private") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(path, "private")
    return key


def public_key(path: Path) -> "Ed25519PublicKey":
    """Return the key in a PEM file; raises `UsageError` where there is none."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_content(path, KEY_HINT))
    except ValueError as error:
        raise _no_key(path, "public") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key(path, "public")
    return key


def _no_key(path: Path, kind: str) -> UsageError:
    return UsageError(f"{path}: is not an Ed25519 {kind} key in PEM without a password", hint=KEY_HINT)


def _content(path: Path, hint: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LIMIT_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", hint=hint) from error


def _json(content: bytes) -> object:
    try:
        told: object = json.loads(content)
    except (ValueError, RecursionError):
        return None  # no envelope, which `verify` says
    return told


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> UsageError:
    return (
        UsageError(
            f"{path}: cannot be written: {error.strerror}",
            hint="keys are never overwritten: name new files, in a folder that is there",
        )
        if isinstance(error, FileExistsError)
        else UsageError(f"{path}: cannot be written: {error.strerror}")
    )
