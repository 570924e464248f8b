"""`paritas health` as a probe runs it."""

import socket

import pytest
from certificates import self_signed
from command_runs import run

from paritas.agent.health import Health
from paritas.agent.health_page import health_page
from paritas.agent.reasons import NotReady
from paritas.cli import main
from paritas.controller.config import ServerConfig, TlsFiles
from paritas.controller.server import SERVICE, serving


def page(health):
    return health_page("127.0.0.1:0", health=lambda: health, page=lambda: "x 1\n")


@pytest.mark.parametrize(
    ("health", "path", "code", "said"),
    [
        (Health(True, ()), "/readyz", 0, "ready\n"),
        (Health(True, (NotReady.NOT_SHIPPING,)), "/readyz", 1, "not ready: not_shipping\n"),
        (Health(True, (NotReady.NOT_SHIPPING,)), "/healthz", 0, "alive\n"),
        (Health(False, (NotReady.THREAD_DIED,)), "/healthz", 1, "not ready: thread_died\n"),
        (Health(True, ()), "", 1, "/healthz, /readyz and /metrics are served here\n"),
    ],
)
def test_it_prints_the_one_line_and_ends_as_a_probe_wants(health, path, code, said, capsys):
    with page(health) as server:
        assert main(["health", f"http://{server.address}{path}"]) == code
    assert capsys.readouterr() == (said, "")


def test_an_image_that_plays_several_roles_says_by_its_environment_what_to_ask(monkeypatch, capsys):
    with page(Health(True, ())) as server:
        monkeypatch.setenv("PARITAS_HEALTH", f"http://{server.address}/healthz")
        assert main(["health"]) == 0
    assert capsys.readouterr() == ("alive\n", "")


def test_nobody_there_is_not_well():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/readyz"
        done = run("health", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"[transient] {url}: Connection refused\n  hint: is it up, and does it serve health there?\n"
    )


@pytest.mark.parametrize("url", ["http://a..b/readyz", "http://127.0.0.1:1/ä"])
def test_an_address_that_cannot_be_written_is_not_well_and_no_traceback(url, capsys):
    assert main(["health", url]) == 1
    assert capsys.readouterr().err.startswith(f"[transient] {url}: ")


def test_one_that_never_answers_is_not_waited_for(capsys):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/readyz"
        assert main(["health", url, "--timeout", "0.1"]) == 1
    assert capsys.readouterr().err.startswith(f"[transient] {url}: timed out\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["https://h/readyz"],
            "'https://h/readyz' is no address to ask\n  hint: write http://HOST:PORT/readyz",
        ),
        (["127.0.0.1:4319"], "'127.0.0.1:4319' is no address to ask\n  hint: write http://HOST:PORT/readyz"),
        (
            ["http://h:99999/"],
            "'http://h:99999/' is no address to ask\n  hint: write http://HOST:PORT/readyz",
        ),
        (["--timeout", "0"], "--timeout is 0\n  hint: give seconds, more than 0, at most 3600"),
        (["--timeout", "nan"], "--timeout is nan\n  hint: give seconds, more than 0, at most 3600"),
        (
            ["http://h/", "--grpc", "h:1"],
            "argument --grpc: not allowed with argument URL\n  hint: paritas health --help shows what it takes",
        ),
    ],
)
def test_what_cannot_be_asked_is_said(words, said, capsys):
    assert main(["health", *words]) == 64
    assert capsys.readouterr().err == f"[usage] {said}\n"


def test_a_probe_without_tls_at_a_port_with_it_is_told_so(tmp_path, capsys):
    good = self_signed(tmp_path)
    tls = TlsFiles(good.certificate, good.key)
    with serving(ServerConfig(tmp_path / "log.sqlite", listen="127.0.0.1:0", tls=tls)) as target:
        assert main(["health", "--grpc", target]) == 1
    assert capsys.readouterr().err == (
        f"[transient] {target} speaks TLS, and this client does not\n"
        "  hint: name the authority of its certificate: --ca FILE\n"
    )


def test_the_grpc_health_service_is_asked_too(tmp_path, capsys):
    with serving(ServerConfig(tmp_path / "log", listen="127.0.0.1:0")) as target:
        assert main(["health", "--grpc", target]) == 0
        assert main(["health", "--grpc", target, "--service", SERVICE]) == 0
        assert capsys.readouterr() == ("serving\n" * 2, "")
        assert main(["health", "--grpc", target, "--service", "nobody"]) == 1
        assert capsys.readouterr().err == f"[transient] {target}: NOT_FOUND: no details\n"
    assert main(["health", "--grpc", target, "--timeout", "0.2"]) == 1
    assert capsys.readouterr().err.startswith(f"[transient] {target}: ")
