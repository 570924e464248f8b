"""What a server that cannot listen says of its files and of its address."""

import asyncio
import socket
from pathlib import Path

import pytest
from certificates import self_signed

from paritas.controller.config import ServerConfig, TlsFiles
from paritas.controller.listening import bind, client_credentials
from paritas.errors import UsageError


def refusal(folder, tls, listen="127.0.0.1:0"):
    """What binding says; gRPC's servers belong to a loop."""

    async def bound():
        return bind(ServerConfig(folder / "log.sqlite", listen=listen, tls=tls))

    with pytest.raises(UsageError) as told:
        asyncio.run(bound())
    return told.value.render().replace(f"{folder}/", "")


@pytest.fixture
def good(tmp_path):
    return self_signed(tmp_path)


NO_PAIR = "both in PEM: a chain of certificates, and the key of its first one without a password"


def test_files_that_are_no_certificate_are_named_and_not_the_port(tmp_path, good):
    (tmp_path / "x.pem").write_text("nonsense")
    told = refusal(tmp_path, TlsFiles(tmp_path / "x.pem", good.key))
    assert told == f"[usage] tls: 'x.pem' and 'key.pem' are no pair\n  hint: {NO_PAIR}"


def test_a_key_of_another_certificate_is_named(tmp_path, good):
    (tmp_path / "b").mkdir()
    other = self_signed(tmp_path / "b")
    told = refusal(tmp_path, TlsFiles(good.certificate, other.key))
    assert told == f"[usage] tls: 'cert.pem' and 'b/key.pem' are no pair\n  hint: {NO_PAIR}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::]"])
def test_a_port_in_use_is_what_it_is_with_tls_too_and_grpc_says_nothing(tmp_path, good, host, capfd):
    tls = TlsFiles(good.certificate, good.key, good.certificate)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"{host}:{taken.getsockname()[1]}"
        assert refusal(tmp_path, tls, listen) == (
            f"[usage] listen: cannot bind {listen!r}: Address already in use\n"
            "  hint: is another controller running there? choose another address"
        )
    assert capfd.readouterr().err == ""


def test_an_address_of_another_machine_is_said_and_grpc_says_nothing(tmp_path, good, capfd):
    tls = TlsFiles(good.certificate, good.key, good.certificate)
    told = refusal(tmp_path, tls, "192.0.2.1:0").splitlines()[0]
    assert told == "[usage] listen: cannot bind '192.0.2.1:0': Cannot assign requested address"
    assert capfd.readouterr().err == ""


def test_a_file_that_is_away_is_named(tmp_path):
    away = TlsFiles(Path("/no/such.pem"), Path("/no/such.key"))
    assert refusal(tmp_path, away).startswith("[usage] tls: cannot read '/no/such.key': No such file")


def test_authorities_that_are_none_are_named(tmp_path, good):
    (tmp_path / "x.pem").write_text("nonsense")
    told = refusal(tmp_path, TlsFiles(good.certificate, good.key, tmp_path / "x.pem"))
    assert told == "[usage] tls: 'x.pem' holds no certificate of an authority\n  hint: in PEM"


def test_a_client_is_told_that_its_authorities_are_none(tmp_path, good):
    (tmp_path / "x.pem").write_text("nonsense")
    with pytest.raises(UsageError) as told:
        client_credentials(TlsFiles(ca=tmp_path / "x.pem"))
    assert told.value.render() == (
        f"[usage] tls: '{tmp_path}/x.pem' holds no certificate of an authority\n  hint: in PEM"
    )
    client_credentials(TlsFiles(ca=good.ca))
