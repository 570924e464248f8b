"""A client that speaks TLS at a port that does not, and the other way round, is told which it is."""

import socket

import grpc
import pytest
from certificates import self_signed
from escalation_examples import config
from odd_servers import speaking

from paritas.controller.client import EscalationClient
from paritas.controller.config import TlsFiles
from paritas.controller.promotion_client import PromotionClient
from paritas.controller.route_admin import RouteAdmin
from paritas.controller.server import serving
from paritas.controller.unreached import call_error, mismatch, speaks_tls
from paritas.errors import TransientError

SPEAKS = "[transient] {} speaks TLS, and this client does not\n  hint: name the authority of its certificate: --ca FILE"
SPEAKS_NOT = (
    "[transient] {} does not speak TLS\n  hint: leave out --ca, --certificate and --key, or name its TLS port"
)
CALLS = [
    (EscalationClient, EscalationClient.silences),
    (PromotionClient, PromotionClient.page),
    (RouteAdmin, RouteAdmin.states),
]


def refusal(kind, call, target, tls):
    with pytest.raises(TransientError) as told, kind(target, tls=tls) as client:
        call(client)
    return told.value.render()


@pytest.fixture
def good(tmp_path):
    return self_signed(tmp_path)


@pytest.mark.parametrize(("kind", "call"), CALLS)
@pytest.mark.parametrize("asks_clients", [False, True])
def test_a_plain_client_is_told_that_the_port_speaks_tls(tmp_path, good, kind, call, asks_clients):
    tls = good if asks_clients else TlsFiles(good.certificate, good.key)
    with serving(config(tmp_path, listen="127.0.0.1:0", tls=tls)) as target:
        assert refusal(kind, call, target, None) == SPEAKS.format(target)


@pytest.mark.parametrize(("kind", "call"), CALLS)
def test_a_client_with_tls_is_told_that_the_port_does_not_speak_it(tmp_path, good, kind, call):
    with serving(config(tmp_path, listen="127.0.0.1:0")) as target:
        assert refusal(kind, call, target, TlsFiles(ca=good.ca)) == SPEAKS_NOT.format(target)


def test_a_certificate_of_somebody_else_is_no_reason_to_ask_whether_it_runs(tmp_path, good):
    (tmp_path / "b").mkdir()
    other = self_signed(tmp_path / "b")
    with serving(config(tmp_path, listen="127.0.0.1:0", tls=TlsFiles(good.certificate, good.key))) as target:
        told = refusal(*CALLS[0], target, TlsFiles(ca=other.ca))
    assert told.endswith("\n  hint: it runs; does --ca name the authority of its certificate?")


def test_what_answers_in_another_language_does_not_speak_tls():
    with speaking(b"SSH-2.0-somewhere\r\n") as url:
        assert speaks_tls(url.removeprefix("http://")) is False


def test_a_refusal_in_tls_is_tls():
    close_notify = bytes([21, 3, 3, 0, 2, 1, 0])
    with speaking(close_notify) as url:
        assert speaks_tls(url.removeprefix("http://")) is True


def test_a_port_that_asks_for_certificates_has_nothing_to_log(tmp_path, good, capfd):
    with serving(config(tmp_path, listen="127.0.0.1:0", tls=good)) as target:
        assert speaks_tls(target) is True
    assert capfd.readouterr().err == ""


def test_who_says_nothing_tells_nothing(good):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        assert speaks_tls(target) is None
    with speaking(b"") as url:
        target = url.removeprefix("http://")
        assert mismatch(target, None) is mismatch(target, good) is None
    for nobody in (target, "unix:/no/such.sock", "a..b:1", "127.0.0.1:99999", "dns:///localhost:1", "host"):
        assert speaks_tls(nobody) is None


class Failed(grpc.RpcError):
    """A failed call with chosen words; a server drops a connection so only in passing."""

    def __init__(self, details):
        super().__init__()
        self._details = details

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return self._details


def test_a_dropped_connection_to_a_port_like_the_client_is_what_it_is(tmp_path):
    with serving(config(tmp_path, listen="127.0.0.1:0")) as target:
        error = call_error(Failed("Socket closed"), target=target, tls=None)
    assert (
        error.render()
        == f"[transient] {target}: UNAVAILABLE: Socket closed\n  hint: is the controller running?"
    )
