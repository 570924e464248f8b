"""Floor files on disk; every mistake is one error with the file's name."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.contracts.floors.record import PAYLOAD_TYPE, MeasuredFloor
from paritas.errors import PermanentError, UsageError
from paritas.signing import sign, verify

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["read_floor", "write_floor"]

MEASURE_HINT = "paritas floor measure writes one"
LIMIT_BYTES = 1 << 20


def read_floor(path: Path, key: "Ed25519PublicKey") -> MeasuredFloor:
    """Return the floor in a file after verifying its signature.

    Raises
    ------
    UsageError
        The file cannot be read, holds no signed floor, or `key` did not sign it.
    """
    content = _content(path)
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
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LIMIT_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", hint=MEASURE_HINT) from error


def _json(content: bytes) -> object:
    try:
        told: object = json.loads(content)
    except (ValueError, RecursionError):
        return None  # no envelope, which `verify` says
    return told
