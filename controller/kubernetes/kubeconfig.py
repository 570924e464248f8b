"""kubeconfig files, as far as a program that runs by itself can follow them: tokens and client certificates."""

import base64
import binascii
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from paritas.controller.kubernetes.access import ClusterAccess, trusting
from paritas.errors import UsageError

__all__ = ["from_kubeconfig"]

HINT = "a service account's token works everywhere: kubectl create token NAME"
LIMIT_BYTES = 4 << 20


def from_kubeconfig(file: Path, context: str = "") -> ClusterAccess:
    """Return the access that a context of the file describes; its current one where none is named.

    Raises
    ------
    UsageError
        The file cannot be read, names what it does not hold, or asks for what is not supported here.
    """
    told = _read(file)
    name = context or told.get("current-context") or ""
    if not name:
        raise UsageError(f"{file}: there is no current-context", hint="name one with --context")
    chosen = _named(told, "context", name, file)
    cluster = _named(told, "cluster", chosen.get("cluster", ""), file)
    user = _named(told, "user", chosen.get("user", ""), file) if chosen.get("user") else {}
    return _access(file, cluster, user, namespace=str(chosen.get("namespace") or ""))


def _read(file: Path) -> Mapping[str, Any]:
    try:
        with file.open("rb") as opened:
            told = yaml.safe_load(opened.read(LIMIT_BYTES))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: is no YAML") from error
    if not isinstance(told, dict) or "clusters" not in told:
        raise UsageError(f"{file}: is no kubeconfig", hint="it has clusters, users and contexts")
    return told


def _named(told: Mapping[str, Any], kind: str, name: str, file: Path) -> Mapping[str, Any]:
    rows = told.get(f"{kind}s")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and row.get("name") == name:
            found = row.get(kind) or {}
            if isinstance(found, dict):
                return found
    raise UsageError(f"{file}: there is no {kind} {name!r}")


def _access(
    file: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], *, namespace: str
) -> ClusterAccess:
    server = str(cluster.get("server", ""))
    if not server.startswith("https://"):
        raise UsageError(f"{file}: the server {server!r} is not an https URL")
    if cluster.get("insecure-skip-tls-verify"):
        message = f"{file}: insecure-skip-tls-verify would show the token to anybody"
        raise UsageError(message, hint="give the cluster's certificate-authority instead")
    for way in ("exec", "auth-provider", "username"):
        if way in user:
            raise UsageError(f"{file}: users with {way!r} are not supported", hint=HINT)
    ca = _pem(cluster, "certificate-authority", file)
    tls = trusting(text=ca.decode(errors="replace")) if ca else trusting()
    _identify(tls, user, file)
    token_file = _beside(file, str(user["tokenFile"])) if user.get("tokenFile") else None
    token = "" if token_file else str(user.get("token") or "")
    return ClusterAccess(server, tls, namespace, token, token_file)


def _identify(tls: Any, user: Mapping[str, Any], file: Path) -> None:
    """Take the client's certificate, if there is one; the library reads it from a file only."""
    chain = _pem(user, "client-certificate", file) + b"\n" + _pem(user, "client-key", file)
    if not chain.strip():
        return
    number, name = tempfile.mkstemp(prefix="paritas-")  # readable by its owner only
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(chain)
        tls.load_cert_chain(name)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(f"{file}: the client certificate and its key do not fit") from error
    finally:
        Path(name).unlink()


def _pem(holder: Mapping[str, Any], name: str, file: Path) -> bytes:
    """What a field holds as text in base64, or names as a file; empty for neither."""
    try:
        if holder.get(f"{name}-data"):
            return base64.b64decode(holder[f"{name}-data"], validate=True)
        return _beside(file, holder[name]).read_bytes() if holder.get(name) else b""
    except (binascii.Error, ValueError, TypeError) as error:
        raise UsageError(f"{file}: {name}-data is no base64") from error
    except OSError as error:
        raise UsageError(f"{file}: {name}: {holder[name]}: {error.strerror}") from error


def _beside(file: Path, name: str) -> Path:
    """Relative names are meant from the file's folder."""
    return file.parent / name
