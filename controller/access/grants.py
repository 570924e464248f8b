"""The access file: names, roles, and for each the hash of a token or the name in a certificate.

One JSON object a line, so that a line can be added or taken out by hand.  Tokens are 256 random
bits, so a plain SHA-256 hides them; the file never holds one.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paritas.controller.access.roles import Role
from paritas.errors import UsageError

__all__ = ["Grant", "Grants", "add_grant", "load_grants", "own_grant"]

_TOKEN_BYTES = 32
_OTHERS = 0o077
_OTHERS_THAN_GROUP = 0o037
_OWNER = "owner of the data folder"


@dataclass(frozen=True, slots=True)
class Grant:
    """One line: who, what they may do, and how they show who they are.

    Attributes
    ----------
    token_sha256 : str
        Hex of the hash of their token; "" if they use a certificate.
    subject : str
        A common name or alternative name (such as ``spiffe://cluster/ns/a/sa/b``) of their
        certificate; "" if they use a token.
    """

    name: str
    role: Role
    token_sha256: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Grants:
    """All lines of one file."""

    grants: tuple[Grant, ...]

    def by_token(self, token: str) -> Grant | None:
        """Return whose token it is; every line is compared, each in constant time."""
        shown = hashlib.sha256(token.encode()).hexdigest()
        found = [g for g in self.grants if g.token_sha256 and hmac.compare_digest(g.token_sha256, shown)]
        return found[0] if found else None

    def by_subjects(self, subjects: Iterable[str]) -> Grant | None:
        """Return whose certificate carries one of `subjects`."""
        names = set(subjects)
        return next((g for g in self.grants if g.subject and g.subject in names), None)


def load_grants(path: Path) -> Grants:
    """Read an access file.

    Raises
    ------
    UsageError
        It cannot be read, others may write or read it, or a line is wrong (with its number).
    """
    try:
        status = path.stat()
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"cannot read access file {str(path)!r}: {reason}") from error
    if _is_open(status, os.geteuid()):
        message = f"access file {str(path)!r} is open to others"
        raise UsageError(message, hint=f"chmod 600 {path}")
    grants = tuple(_parsed(lines, path))
    _refuse_doubles(grants, path)
    return Grants(grants)


def _is_open(status: os.stat_result, own_uid: int) -> bool:
    """Whether others may read or write the file that has this status.

    A group may read a file of root's that this process cannot own: so Kubernetes hands a secret to a pod that is not
    root, as ``root:fsGroup`` and 0440.
    """
    is_handed_by_root = status.st_uid == 0 and own_uid != 0
    return bool(status.st_mode & (_OTHERS_THAN_GROUP if is_handed_by_root else _OTHERS))


def add_grant(path: Path, name: str, role: Role, *, subject: str = "") -> str:
    """Add a line; return the new token, which is nowhere else, or "" for a certificate.

    Raises
    ------
    UsageError
        The name is taken, or the file cannot be used.
    """
    known = load_grants(path).grants if path.exists() else ()
    token = "" if subject else secrets.token_urlsafe(_TOKEN_BYTES)
    hashed = hashlib.sha256(token.encode()).hexdigest() if token else ""
    _refuse_doubles((*known, Grant(name, role, hashed, subject)), path)
    line = {"name": name, "role": role.value} | (
        {"subject": subject} if subject else {"token_sha256": hashed}
    )
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:
        raise UsageError(f"cannot write access file {str(path)!r}: {error.strerror}") from error
    return token


def own_grant(token_file: Path) -> Grant:
    """Write a new token for the owner of the controller's private folder; return its grant, kept in memory only.

    Raises
    ------
    UsageError
        It cannot be written.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        token_file.unlink(missing_ok=True)
        with os.fdopen(os.open(token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
    except OSError as error:
        raise UsageError(f"cannot write token file {str(token_file)!r}: {error.strerror}") from error
    return Grant(_OWNER, Role.ADMIN, hashlib.sha256(token.encode()).hexdigest())


def _parsed(lines: Iterable[str], path: Path) -> Iterator[Grant]:
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                yield _grant(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                message = f"{path}:{number}: not a grant: {_reason(error)}"
                hint = 'write {"name": …, "role": …} with token_sha256 or subject'
                raise UsageError(message, hint=hint) from error


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _grant(values: dict[str, str]) -> Grant:
    if unknown := set(values) - {"name", "role", "token_sha256", "subject"}:
        raise ValueError(f"unknown field {min(unknown)!r}")
    grant = Grant(
        values["name"], Role(values["role"]), values.get("token_sha256", ""), values.get("subject", "")
    )
    if bool(grant.token_sha256) == bool(grant.subject):
        raise ValueError("give either token_sha256 or subject")
    if grant.token_sha256:
        _check_hash(grant.token_sha256)
    return grant


def _check_hash(hashed: str) -> None:
    if len(hashed) != hashlib.sha256().digest_size * 2 or set(hashed) - set("0123456789abcdef"):
        raise ValueError("token_sha256 is not 64 hex digits in lower case")


def _refuse_doubles(grants: tuple[Grant, ...], path: Path) -> None:
    names = [grant.name for grant in grants]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            f"access file {str(path)!r}: {doubled[0]!r} is there already", hint="names are unique"
        )
