"""Ed25519 keys in PEM files; every mistake is one error with the file's name."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.errors import UsageError
from paritas.signing.envelope import key_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["key_pair", "private_key", "public_key", "trusted_keys"]

KEY_HINT = "paritas floor key PRIVATE.pem PUBLIC.pem makes a pair"
NEVER_HINT = "keys are never overwritten: name new files, in a folder that is there"
LIMIT_BYTES = 1 << 16


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
    try:
        _write_new(
            public, key.public_key().public_bytes(encoding, pem.PublicFormat.SubjectPublicKeyInfo), 0o644
        )
    except UsageError:
        private.unlink()  # of no use alone, and in the way of the next try
        raise


def private_key(path: Path) -> "Ed25519PrivateKey":
    """Return the key in a PEM file that nobody but its owner can read.

    Raises
    ------
    UsageError
        There is none, or others can read it.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_content(path), None)
    except (ValueError, TypeError) as error:
        raise _no_key(path, "private") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(path, "private")
    if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        message = f"{path}: others can read this private key (mode {mode:04o})"
        raise UsageError(message, hint=f"chmod 600 {path}; if others may have read it, make a new one")
    return key


def public_key(path: Path) -> "Ed25519PublicKey":
    """Return the key in a PEM file; raises `UsageError` where there is none."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_content(path))
    except ValueError as error:
        raise _no_key(path, "public") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key(path, "public")
    return key


def trusted_keys(place: Path) -> Mapping[str, "Ed25519PublicKey"]:
    """Return the public keys in a PEM file, or in every ``*.pem`` of a folder, by `key_id`.

    Raises
    ------
    UsageError
        Nothing is there, or a file holds no public key.
    """
    files = sorted(place.glob("*.pem")) if place.is_dir() else [place]
    if not files:
        raise UsageError(
            f"{place}: holds no key", hint="put the public keys to be trusted there, as NAME.pem"
        )
    return {key_id(key): key for key in map(public_key, files)}


def _no_key(path: Path, kind: str) -> UsageError:
    return UsageError(f"{path}: is not an Ed25519 {kind} key in PEM without a password", hint=KEY_HINT)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LIMIT_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", hint=KEY_HINT) from error


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> UsageError:
    hint = NEVER_HINT if isinstance(error, FileExistsError | FileNotFoundError) else ""
    return UsageError(f"{path}: cannot be written: {error.strerror}", hint=hint)
