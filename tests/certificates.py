"""A throw-away authority that is its own server and client certificate."""

import shutil
import subprocess

import pytest

from paritas.controller.config import TlsFiles


def self_signed(folder, *names, common="localhost"):
    """Certificate, key and CA for localhost and further names in `folder`; skips where openssl is not."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command makes the certificates of this test")
    alternatives = ",".join(("DNS:localhost", "IP:127.0.0.1", *names))
    subject = ["-subj", f"/CN={common}", "-addext", f"subjectAltName={alternatives}"]
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    out = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([openssl, "req", "-x509", *made, *subject, *out], check=True, capture_output=True)
    return TlsFiles(folder / "cert.pem", folder / "key.pem", folder / "cert.pem")
