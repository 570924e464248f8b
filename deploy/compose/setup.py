"""Makes what a controller needs to serve other containers: a certificate, and who may do what. Once; secrets stay in volumes.

Where one of the two volumes was removed, or a run was cut off, what is missing is made anew and both fit again.
The certificate is self-signed and good for a year. For a stack that lasts bring a certificate of your own authority.

Run: python setup.py --controller FOLDER --clients FOLDER --host NAME
"""

import argparse
import hashlib
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from paritas.clock import NS_PER_S, SystemClock
from paritas.controller.access.grants import add_grant, load_grants
from paritas.controller.access.roles import Role

DAYS = 365
AGAIN = ", made anew, since the one before is gone: restart the controller if it is running"
WHO = {"detectors": Role.ACTOR, "people": Role.ACTOR}


def main() -> None:
    """Write everything that is not there yet."""
    parser = argparse.ArgumentParser(description="Make a certificate and tokens for a controller.")
    parser.add_argument(
        "--controller", type=Path, required=True, help="tls.crt, tls.key, access.jsonl go here"
    )
    parser.add_argument("--clients", type=Path, required=True, help="tls.crt and NAME.token go here")
    parser.add_argument("--host", required=True, help="name by which clients reach the controller")
    told = parser.parse_args()
    if not (told.controller / "tls.crt").exists():
        certify(told.controller, told.clients, host=told.host)
    elif read(told.clients / "tls.crt") != read(told.controller / "tls.crt"):
        write(told.clients / "tls.crt", read(told.controller / "tls.crt"), 0o644)
        sys.stdout.write("certificate given to the clients again\n")
    for name, role in WHO.items():
        admit(name, role, access=told.controller / "access.jsonl", token=told.clients / f"{name}.token")


def certify(controller: Path, clients: Path, *, host: str) -> None:
    """Write a key and a certificate that is its own authority; clients get the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = signed(key, host).public_bytes(serialization.Encoding.PEM)
    write(controller / "tls.key", private, 0o600)
    write(clients / "tls.crt", public, 0o644)
    write(controller / "tls.crt", public, 0o644)  # last: it says that all is there
    sys.stdout.write(f"certificate for {host}, good for {DAYS} days\n")


def signed(key: ec.EllipticCurvePrivateKey, host: str) -> x509.Certificate:
    """Return a certificate of `key` for `host` and this machine."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.fromtimestamp(SystemClock().now_ns() / NS_PER_S, UTC)
    names = [x509.DNSName(host), x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )


def admit(name: str, role: Role, *, access: Path, token: Path) -> None:
    """Add a name to the access file and keep its token where only its user reads it; nothing where both are there."""
    known = load_grants(access).grants if access.exists() else ()
    hashed = hashlib.sha256(read(token).strip()).hexdigest()
    if any((grant.name, grant.token_sha256) == (name, hashed) for grant in known):
        return
    is_lost = name in [grant.name for grant in known]
    if is_lost:
        withdraw(name, access)
    write(token, f"{add_grant(access, name, role)}\n".encode(), 0o600)
    sys.stdout.write(f"token of {name} ({role}){AGAIN if is_lost else ''}\n")


def withdraw(name: str, access: Path) -> None:
    """Take a name out of the access file; what was added to it by hand stays."""
    lines = access.read_bytes().splitlines(keepends=True)
    write(access, b"".join(line for line in lines if name_in(line) != name), 0o600)


def name_in(line: bytes) -> str:
    """Return whose line of the access file it is; empty for a comment."""
    is_grant = line.strip() and not line.lstrip().startswith(b"#")
    return str(json.loads(line)["name"]) if is_grant else ""


def read(path: Path) -> bytes:
    """Return what a file holds; nothing where there is none."""
    return path.read_bytes() if path.exists() else b""


def write(path: Path, content: bytes, mode: int) -> None:
    """Write a whole file or none, with its mode from the start."""
    part = path.with_suffix(f"{path.suffix}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    part.replace(path)


if __name__ == "__main__":
    main()
