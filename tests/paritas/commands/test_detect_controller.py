"""`paritas detect` beside a real controller: TLS and tokens, health, a contract that changes under it."""

import os
import signal
import socket
from pathlib import Path

import pytest
from certificates import self_signed
from command_runs import recording, run, until
from kubelet_mounts import mount
from service_runs import asked, running, value

from paritas.agent.eventlog import EmbeddedLog, LogSettings, SyncMode
from paritas.clock import SystemClock
from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.commands.ingest import alternate
from paritas.contracts.load import preset_text
from paritas.controller.client import EscalationClient
from paritas.controller.config import TlsFiles
from paritas.tokens import TokenHasher
from paritas.wire import Origin, encode, stamp


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The stale recording in an embedded log."""
    folder = tmp_path_factory.mktemp("log") / "log"
    options = ReadOptions(TokenHasher(b"k" * 16), base_ns=10**18, step_ns=10_000_000)
    traces = alternate([read_dump(Path(recording(n)), options) for n in ("healthy.serve", "stale.train")])
    with EmbeddedLog(folder, LogSettings(partitions=1, sync=SyncMode.NONE), clock=SystemClock()) as made:
        for i, record in enumerate(r for trace in traces for r in encode([trace], resource={})):
            made.append(stamp(record, Origin("test", 1, i)), partition_key=record.key)
    return folder


def detecting(log, folder, target, *options, **more):
    """`paritas detect` on a log, once it judges."""
    where = ("--log", log, "--controller", target, "--state", folder / "detector.state")
    return running("detect", *where, "--metrics", "127.0.0.1:0", *options, until="judging", **more)


def page(service):
    """Address of a detector's page."""
    return service.lines[0].split()[-1].removesuffix("/metrics")


@pytest.fixture
def guarded(tmp_path):
    """A controller with TLS and an access file; yields its target, the files of a client, and token files."""
    pki, access = self_signed(tmp_path), tmp_path / "access.jsonl"
    tokens = {}
    for role in ("subscriber", "actor"):
        tokens[role] = tmp_path / f"{role}.token"
        made = run("access", "add", role, "--role", role, "--file", access)
        assert made.returncode == 0, made.stderr
        tokens[role].write_text(made.stdout)
    options = ("--certificate", pki.certificate, "--key", pki.key, "--access", access)
    where = ("--data", tmp_path / "control", "--listen", "127.0.0.1:0")
    with running("control", *where, *options, until="escalations:") as service:
        target = service.word("escalations:").replace("127.0.0.1", "localhost")
        yield target, TlsFiles(ca=pki.ca), tokens


def test_escalations_reach_a_controller_with_tls_and_access_control(log, guarded, tmp_path):
    target, tls, tokens = guarded
    reach = ("--ca", tls.ca, "--token-file", tokens["actor"])
    with (
        detecting(log, tmp_path, target, *reach) as service,
        EscalationClient(target, tls=tls, token_file=tokens["subscriber"]) as client,
    ):
        assert len(until(lambda: list(client.incidents()))) > 1
        assert until(lambda: asked(f"{page(service)}/readyz") == (200, "ready\n"))
        code, out, err, _ = service.end()
    assert (code, err) == (0, "")
    assert out.startswith("judged 96 records: 48 sequences, ")


def test_a_token_that_may_not_publish_is_named_and_one_that_may_is_taken_up(log, guarded, tmp_path):
    target, tls, tokens = guarded
    token = tmp_path / "token"
    token.write_text(tokens["subscriber"].read_text())
    with detecting(log, tmp_path, target, "--ca", tls.ca, env={"PARITAS_TOKEN_FILE": str(token)}) as service:
        refused = (503, "not ready: publish_refused\n")
        until(lambda: asked(f"{page(service)}/readyz") == refused)
        assert asked(f"{page(service)}/healthz") == (200, "alive\n")
        token.write_text(tokens["actor"].read_text())
        until(lambda: asked(f"{page(service)}/readyz") == (200, "ready\n"))
        code, _, err, _ = service.end()
    assert code == 0
    assert "subscriber is subscriber; this takes actor" in err


def test_a_detector_with_nothing_to_say_knows_that_nobody_could_hear_it(tmp_path):
    with EmbeddedLog(tmp_path / "log", LogSettings(partitions=1), clock=SystemClock()):
        pass
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{closed.getsockname()[1]}"
        with detecting(tmp_path / "log", tmp_path, target) as service:
            expected = (503, "not ready: controller_unreachable\n")
            until(lambda: asked(f"{page(service)}/readyz") == expected)
            assert run("health", f"{page(service)}/readyz").stdout == expected[1]
            text = asked(f"{page(service)}/metrics")[1]
            assert value(text, "paritas_detect_ready{") == 0
            assert value(text, 'paritas_detect_not_ready{contract="dense-bf16",reason="controller_unre') == 1
            assert service.end()[0] == 0


def test_a_controller_that_hangs_does_not_keep_a_signal_waiting(log, tmp_path):
    with socket.socket() as silent:  # takes connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with detecting(log, tmp_path, target) as service:
            until(lambda: "controller_unreachable" in asked(f"{page(service)}/readyz")[1])
            failed = "paritas_detect_failed_turns_total"
            until(lambda: value(asked(f"{page(service)}/metrics")[1], failed) > 0)
            code, out, _, took_s = service.end()
    assert code == 0
    assert out.endswith(" 0 escalations\n")
    assert took_s < 25, "a pod has 30 s"


def test_a_broker_that_is_away_is_waited_for_and_named(tmp_path):
    where = ("--kafka", "127.0.0.1:1", "--controller", "127.0.0.1:1", "--state", tmp_path / "s")
    with running("detect", *where, "--metrics", "127.0.0.1:0", until="metrics on") as service:
        until(lambda: "not ready: starting, waiting_for_log" in asked(f"{page(service)}/readyz")[1])
        assert asked(f"{page(service)}/healthz") == (200, "alive\n")
        code, _, err, took_s = service.end()
    assert code == 0
    assert "Detection waits." in err
    assert took_s < 25


@pytest.fixture
def control(tmp_path):
    with running(
        "control", "--data", tmp_path / "control", "--listen", "127.0.0.1:0", until="escalations:"
    ) as service:
        yield service.word("escalations:")


def preset(version):
    return preset_text("dense-bf16").replace("version: 1.0.0", f"version: {version}")


def test_a_mounted_contract_is_taken_over_and_a_bad_one_is_not(log, control, tmp_path):
    path = mount(tmp_path / "contracts", "dense.yaml", preset("1.0.0"))
    with (
        detecting(log, tmp_path, control, "--contract", path) as service,
        EscalationClient(control) as client,
    ):
        shown = lambda: asked(f"{page(service)}/metrics")[1]  # noqa: E731
        until(lambda: {i.current.contract_version for i in client.incidents()} == {"1.0.0"})
        mount(path.parent, "dense.yaml", preset("1.1.0"))
        until(lambda: "1.1.0" in {i.current.contract_version for i in client.incidents()})
        until(lambda: 'version="1.1.0"' in shown())
        assert value(shown(), "paritas_detect_contract_applied_total") == 1

        mount(path.parent, "dense.yaml", "nonsense: [")
        service.process.send_signal(signal.SIGHUP)
        until(lambda: asked(f"{page(service)}/readyz") == (200, "ready, but: contract_stale\n"))
        assert value(shown(), "paritas_detect_contract_rejected_total") == 1
        assert value(shown(), "paritas_detect_contract_stale") == 1
        assert 'version="1.1.0"' in shown()
        _, out, err, _ = service.end()
    assert out.startswith("judging by dense-bf16 1.1.0 now, from the log's oldest record on\n")
    assert err.startswith(f"[contract] {path}:")
    assert err.endswith("  still judging by dense-bf16 1.1.0\n")
    assert err.count("[contract]") == 1


def test_up_takes_a_contract_over_too(tmp_path):
    path = mount(tmp_path / "contracts", "dense.yaml", preset("1.0.0"))
    where = ("--data", tmp_path / "d", "--listen", "127.0.0.1:0", "--contract", path)
    with running("up", *where, "--metrics", "127.0.0.1:0", until="  metrics:") as service:
        mount(path.parent, "dense.yaml", preset("1.1.0").replace("name: dense-bf16", "name: other"))
        service.process.send_signal(signal.SIGHUP)
        address = service.word("  metrics:")
        until(lambda: 'contract_info{contract="other",version="1.1.0"' in asked(address)[1])
        until(lambda: '"contract": "other"' in (tmp_path / "d/running.json").read_text())
        code, out, err, _ = service.end()
    assert (code, err) == (0, "")
    assert out.startswith("judging by other 1.1.0 now")


def test_detect_and_control_write_nowhere_but_into_their_own_folders(log, tmp_path):
    """As in a container whose root is read-only: everything else refuses, and home is not there."""
    if os.geteuid() == 0:
        options = {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1", "XDG_STATE_HOME": "/proc/none"}
    else:
        options = {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    empty = tmp_path / "cwd"
    empty.mkdir()
    empty.chmod(0o555)
    where = ("--data", tmp_path / "control", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0")
    with running("control", *where, until="escalations:", env=options, cwd=empty) as service:
        target = service.word("escalations:")
        with detecting(log, tmp_path, target, env=options, cwd=empty) as judging:
            until(lambda: value(asked(f"{page(judging)}/metrics")[1], "paritas_detect_escalations_total") > 0)
            assert judging.end()[0] == 0
        assert service.end()[0] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["control", "cwd", "detector.state"]
    assert list(empty.iterdir()) == []
