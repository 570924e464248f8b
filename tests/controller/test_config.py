"""Which addresses need mutual TLS, and durations."""

from pathlib import Path

import pytest

from paritas.controller.config import ServerConfig, TlsFiles
from paritas.errors import UsageError

LOCAL = ["127.0.0.1:0", "127.9.9.9:4320", "localhost:4320", "[::1]:4320", "unix:/run/p.sock", "unix:p.sock"]
REMOTE = ["0.0.0.0:4320", "[::]:4320", "10.0.0.7:4320", "controller.example:4320", "localhost.example:1"]
FULL = TlsFiles(Path("cert.pem"), Path("key.pem"), Path("ca.pem"))


def text_of(**changes):
    with pytest.raises(UsageError) as caught:
        ServerConfig(**{"database": Path("log.db"), **changes})
    return caught.value.render()


@pytest.mark.parametrize("listen", LOCAL)
def test_an_address_of_this_machine_needs_nothing(listen):
    assert ServerConfig(database=Path("log.db"), listen=listen).listen == listen


@pytest.mark.parametrize("listen", REMOTE)
def test_an_address_others_can_reach_needs_mutual_tls(listen):
    assert text_of(listen=listen) == (
        f"[usage] listen: {listen!r} can be reached from other machines and has no TLS\n"
        "  hint: listen on 127.0.0.1 or unix:/path, or give certificate, key and client CA"
    )
    assert text_of(listen=listen, tls=TlsFiles(Path("cert.pem"), Path("key.pem"))) == (
        f"[usage] listen: {listen!r} can be reached from other machines and takes any client\n"
        "  hint: give the CA of the clients' certificates, or an access file"
    )
    assert ServerConfig(database=Path("log.db"), listen=listen, tls=FULL).tls == FULL


@pytest.mark.parametrize("listen", ["4320", ":4320", "127.0.0.1", "127.0.0.1:", "localhost:http", ""])
def test_a_malformed_address(listen):
    assert text_of(listen=listen) == (
        f"[usage] listen: {listen!r} is not an address\n  hint: write host:port or unix:/path"
    )


@pytest.mark.parametrize("name", ["heartbeat_s", "farewell_s", "start_s", "drain_s", "housekeeping_s"])
def test_durations_are_positive(name):
    assert text_of(**{name: 0}) == f"[usage] {name}: must be positive, got 0"
    assert text_of(**{name: float("nan")}) == f"[usage] {name}: must be positive, got nan"
