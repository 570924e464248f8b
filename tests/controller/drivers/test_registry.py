"""Drivers by their kind: what each must be told, and what it refuses."""

import shutil
import subprocess

import pytest
from fleets import fleet_of

from paritas.clock import ManualClock
from paritas.controller.drivers.registry import KINDS, open_driver
from paritas.errors import UsageError

TARGETS = {"r0": "http://a", "r1": "http://b", "ref": "http://c"}
KINDS_SAID = "envoy, file, kubernetes-label, sglang-router, vllm-router, webhook"


def certificate(folder):
    """A certificate that no server has: a driver only reads it here."""
    made = folder / "ca.crt"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x"]
    subprocess.run(
        ["openssl", *words, "-keyout", folder / "ca.key", "-out", made], check=True, capture_output=True
    )
    return made


def opened(kind, fleet=None, **settings):
    return open_driver(kind, settings, fleet or fleet_of(targets=TARGETS), ManualClock())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_every_kind_opens_with_what_it_must_be_told(tmp_path):
    key = tmp_path / "key"
    key.write_text("whsec_c2VjcmV0\n")
    settings = {
        "envoy": {"listen": "127.0.0.1:0"},
        "file": {"path": str(tmp_path / "routes.json")},
        "kubernetes-label": {"namespace": "serving", "ca_file": str(certificate(tmp_path))},
        "sglang-router": {"url": "http://127.0.0.1:1", "token_file": str(key), "settle_s": 1},
        "vllm-router": {"url": "https://router"},
        "webhook": {"url": "https://gateway/routes", "key_file": str(key)},
    }
    assert {kind: opened(kind, **settings[kind]).name for kind in KINDS} == {kind: kind for kind in KINDS}


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("nginx", {}, "driver: there is none called 'nginx'"),
        ("envoy", {"lissen": "x"}, "driver 'envoy': unknown setting 'lissen'"),
        ("envoy", {"ack_s": True}, "driver 'envoy': 'ack_s' must be a number, got True"),
        ("envoy", {"ack_s": 0}, "driver 'envoy': ack_s: must be positive, got 0.0"),
        ("envoy", {"listen": 3}, "driver 'envoy': 'listen' must be text, got 3"),
        (
            "envoy",
            {"listen": "0.0.0.0:1"},
            "driver 'envoy': listen: '0.0.0.0:1' can be reached from other machines and has no TLS",
        ),
        ("kubernetes-label", {}, "driver 'kubernetes-label': 'namespace' is missing"),
        (
            "kubernetes-label",
            {"namespace": "n", "server": "http://api"},
            "driver 'kubernetes-label': server: 'http://api' is not an https URL",
        ),
        (
            "kubernetes-label",
            {"namespace": "n", "request_s": 0},
            "driver 'kubernetes-label': request_s: must be positive, got 0.0",
        ),
        (
            "kubernetes-label",
            {"namespace": "n", "ca_file": "/no/ca"},
            "kubernetes-label: cannot use '/no/ca': No such file or directory",
        ),
        ("file", {}, "driver 'file': 'path' is missing"),
        ("file", {"path": "/no/such/place/x"}, "driver 'file': path: there is no folder '/no/such/place'"),
        (
            "vllm-router",
            {"url": "router:1"},
            "driver 'vllm-router': url: 'router:1' is not an http or https URL",
        ),
        (
            "vllm-router",
            {"url": "http://r", "poll_s": -1},
            "driver 'vllm-router': poll_s: must be positive, got -1.0",
        ),
        (
            "sglang-router",
            {"url": "http://r", "token_file": "/no/key"},
            "cannot read key file '/no/key': No such file or directory",
        ),
        (
            "webhook",
            {"url": "http://gateway/routes", "key_file": "k"},
            "driver 'webhook': url: 'http://gateway/routes' is neither https nor on this machine",
        ),
        (
            "webhook",
            {"url": "https://g", "observe_url": "ftp://g", "key_file": "k"},
            "driver 'webhook': observe_url: 'ftp://g' is neither https nor on this machine",
        ),
        (
            "webhook",
            {"url": "https://g", "key_file": "k", "request_s": 0},
            "driver 'webhook': request_s: must be positive, got 0.0",
        ),
    ],
)
def test_what_a_driver_cannot_use_is_refused_with_its_name(kind, settings, message):
    with pytest.raises(UsageError) as refused:
        opened(kind, **settings)
    assert str(refused.value) == message


def test_the_hint_says_what_there_is():
    with pytest.raises(UsageError) as refused:
        opened("nginx")
    assert refused.value.hint == f"one of {KINDS_SAID}"
    with pytest.raises(UsageError) as refused:
        opened("envoy", lissen="x")
    assert refused.value.hint == "one of listen, ack_s"


def test_a_router_needs_to_know_its_replicas_by_url():
    with pytest.raises(UsageError, match=r"^vllm-router: replica 'r0' has no target$"):
        opened("vllm-router", fleet_of(), url="http://r")


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (b"\n", "is empty"),
        (b"x" * 70_000, "is too large"),
        (b"\xff\xfe", "is not ASCII text"),
        (b"a key\nand more", "holds more than one line of text"),
    ],
)
def test_a_key_file_without_a_usable_key(tmp_path, held, why):
    key = tmp_path / "key"
    key.write_bytes(held)
    with pytest.raises(UsageError) as refused:
        opened("sglang-router", url="http://r", token_file=str(key))
    assert str(refused.value) == f"key file {str(key)!r} {why}"


def test_a_webhook_key_that_only_looks_like_the_convention(tmp_path):
    key = tmp_path / "key"
    key.write_text("whsec_###")
    with pytest.raises(UsageError, match=r"^key_file: what follows whsec_ is not base64$"):
        opened("webhook", url="https://g", key_file=str(key))
