"""What long-running commands do when they are told to end, and that they write only where they may."""

import os
import shlex
import shutil
import signal
import socket
import subprocess

import pytest
from command_runs import recording, run, until
from escalation_examples import RawStream, escalation, start, stub
from service_runs import PARITAS, Service, asked, running

from paritas.controller.client import EscalationClient
from paritas.proto.v1 import escalation_pb2 as pb

GRACE_S = 25  # a pod has 30 s by default


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_controller_ends_its_streams_with_where_to_go_on_and_keeps_its_log(tmp_path, number):
    where = ("--data", tmp_path / "d", "--listen", "127.0.0.1:0")
    with running("control", *where, until="escalations:") as service:
        target = service.word("escalations:")
        with EscalationClient(target) as client, stub(target) as calls:
            client.publish([escalation()])
            with RawStream(calls, start()) as stream:
                stream.next("created")
                code, _, err, took_s = service.end(number)
                _, error = stream.end()
    assert (code, err) == (0, "")
    assert took_s < GRACE_S
    trailer = dict(error.trailing_metadata())["paritas-canceled-bin"]
    canceled = pb.ServerMsg.Canceled.FromString(trailer)
    assert canceled.reason == pb.ServerMsg.Reason.Value("REASON_DRAINING")
    assert canceled.resume
    with running("control", *where, until="escalations:") as again:
        done = run("incidents", "list", "--data", tmp_path / "d")
        assert done.stdout.startswith("incident-1 ")
        assert again.end()[0] == 0


@pytest.fixture
def silent_broker(tmp_path):
    """Writes the settings of one that takes connections and never answers, and how long a client waits for it."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)

        def settings(timeout_s):
            bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
            file = tmp_path / "kafka.yaml"
            file.write_text(f"kafka: {{bootstrap: ['{bootstrap}'], connect_timeout: {timeout_s}s}}")
            return file

        yield settings


# Before it listens, and while it waits to read: a request to the broker is under way in both.
@pytest.mark.parametrize(("ready", "timeout_s"), [("health:", 2 * GRACE_S), ("escalations:", 5)])
def test_a_controller_that_waits_for_a_broker_ends_in_time(tmp_path, silent_broker, ready, timeout_s):
    where = ("--data", tmp_path / "d", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0")
    broker = silent_broker(timeout_s)
    with running("control", *where, "--escalations-from", broker, until=ready) as service:
        code, out, _, took_s = service.end()
    assert code == 0
    assert out.endswith("taken from topic 'paritas.escalations': 0 escalations, 0 refused, 0 lost\n")
    assert took_s < GRACE_S


def test_a_detector_that_waits_for_a_broker_ends_in_time(tmp_path, silent_broker):
    where = (
        "--kafka",
        silent_broker(2 * GRACE_S),
        "--controller",
        "127.0.0.1:1",
        "--state",
        tmp_path / "detector.state",
    )
    with running("detect", *where, "--metrics", "127.0.0.1:0", until="metrics on") as service:
        code, _, _, took_s = service.end()
    assert code == 0
    assert took_s < GRACE_S


def test_up_keeps_what_it_judged(tmp_path):
    where = ("up", "--data", tmp_path / "d", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    told = "records_total{contract="
    with running(*where, until="  metrics:") as service:
        sent = run("ingest", "--data", tmp_path / "d", recording("healthy.serve"), recording("healthy.train"))
        assert sent.returncode == 0, sent.stderr
        until(lambda: f'{told}"dense-bf16"}} 96' in asked(service.word("  metrics:"))[1])
        code, out, err, took_s = service.end()
    assert (code, err) == (0, "")
    assert out.startswith("stopped: 96 records, ")
    assert took_s < GRACE_S
    with running(*where, until="  metrics:") as service:
        code, out, _, _ = service.end()
    assert out.startswith("stopped: 0 records, 0 refused, 0 repeated; sequences: 48 paired; ")


# ---- a root file system that cannot be written, as in a container


TOOLS = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin"  # a user's PATH may lack root's tools


def why_not():
    """Why this machine cannot show it, or None."""
    if os.geteuid() != 0 or not all(
        shutil.which(tool, path=TOOLS) for tool in ("unshare", "mount", "chroot")
    ):
        return "root, unshare, mount and chroot make the read-only root of this test"
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        check=False,
        env={"PATH": TOOLS},
    )
    return None if tried.returncode == 0 else "nothing can be mounted here"


@pytest.fixture
def contained(tmp_path):
    """Start a command where only `tmp_path`/state and /tmp of its own can be written; yields a starter."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    root, state, started = tmp_path / "root", tmp_path / "state", []
    root.mkdir()
    state.mkdir()
    inside = shlex.quote(f"{root}{state}")
    script = (
        f"mount --rbind / {root} && mount -o remount,bind,ro {root} && "
        f'mount --bind {state} {inside} && cd / && exec chroot {root} "$@"'
    )
    env = {"PATH": TOOLS, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}

    def begin(*words, ready):
        command = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", PARITAS]
        process = subprocess.Popen(
            [*command, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        started.append(process)
        lines = []
        while not lines or not lines[-1].startswith(ready):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            lines.append(line)
        return Service(process, lines)

    yield begin, state
    for process in started:
        process.kill()
        process.communicate()


AGENT = """name: pod-7
spool: {{path: {state}/spool}}
receivers: {{unix: {{path: {state}/otlp.sock}}}}
health: {{listen: "127.0.0.1:0"}}
destination: {{embedded: {{path: {state}/log}}}}
"""


def test_agent_detector_and_controller_need_only_their_own_folders(contained):
    begin, state = contained
    (state / "agent.yaml").write_text(AGENT.format(state=state))
    agent = begin("agent", "--config", state / "agent.yaml", ready="ready")
    control = begin(
        *("control", "--data", state / "control", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0"),
        ready="escalations:",
    )
    sent = run(
        *(
            "ingest",
            "--agent",
            f"unix:{state}/otlp.sock",
            recording("healthy.serve"),
            recording("stale.train"),
        )
    )
    assert sent.returncode == 0, sent.stderr
    target = control.word("escalations:")
    judging = begin(
        *("detect", "--log", state / "log", "--controller", target, "--state", state / "detector.state"),
        *("--metrics", "127.0.0.1:0"),
        ready="judging",
    )
    with EscalationClient(target) as client:
        until(lambda: list(client.incidents()))
    healthy = (200, "ready\n")
    page = next(line.split()[1] for line in agent.lines if "/readyz" in line)
    assert until(lambda: asked(page) == healthy)
    assert until(lambda: asked(control.word("health:")) == healthy)
    for service in (judging, control, agent):
        code, _, err, took_s = service.end()
        assert (code, err) == (0, "")
        assert took_s < GRACE_S
