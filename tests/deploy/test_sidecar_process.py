"""The rendered agent.yaml and the rendered probes with real processes: the agent as its user, senders as theirs.

What a kubelet does is done by hand: an emptyDir is a folder of root's that everybody may write to (mode 0777).
"""

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from agent_scenes import requests_of
from deploy.parts import why_not
from deploy.sidecar_parts import BROKERS, explicit
from free_ports import free_port
from system.otel_parts import running, wait_until

pytestmark = [
    pytest.mark.skipif(bool(why_not("helm")), reason=why_not("helm") or ""),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("setpriv") is None,
        reason="becoming other users needs root and setpriv",
    ),
]
PARITAS = Path(sys.executable).parent / "paritas"
AGENT_UID, STRANGER_UID, OPENSHIFT_UID = 65532, 1000, 1_000_660_000
SEND = """
import sys
from pathlib import Path
from paritas.errors import ParitasError
from paritas.wire.records import WireRecord
from paritas.wire.sender import Sender
try:
    with Sender(Path(sys.argv[1])) as sender:
        sender.send(WireRecord(b"", bytes.fromhex(sys.argv[2])))
    print("taken")
except ParitasError as error:
    print(error)
"""


@pytest.fixture(autouse=True, scope="module")
def _others_can_run_us():
    """Below a home that is closed to others, as /root often is, another user finds neither Python nor the package."""
    asked = as_user(AGENT_UID, sys.executable, "-c", "import paritas")
    if subprocess.run(asked, capture_output=True, check=False, timeout=60).returncode:
        pytest.skip("other users cannot run the project from its folder here")


def as_user(uid, *command):
    """A command as a container's process: another user, no groups, no capabilities, no way to get any."""
    who = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    return ["setpriv", *who, "--inh-caps=-all", *map(str, command)]


def send(uid, socket, trace=1):
    """Send a trace as a user; return what came of it."""
    body = requests_of(bytes([trace]) * 16).hex()
    command = as_user(uid, sys.executable, "-c", SEND, socket, body)
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


class Pod:
    """One pod: its volumes as folders, its agent, and what its kubelet would ask."""

    name = "train-0-x7k2p"

    def __init__(self, folder, *, health=None, **sidecar):
        self.folder, self.port = folder, free_port()
        config = {"destination": {"kafka": {"connect_timeout": "300ms"}}, "health": health or {}}
        template, told = explicit(BROKERS, {"sidecar": {"port": self.port, "config": config, **sidecar}})
        (self.container,) = template["spec"]["initContainers"]
        self.socket, self.spool = folder / "run" / "otlp.sock", folder / "state" / "spool"
        for name in ("run", "state", "config"):
            (folder / name).mkdir()
            (folder / name).chmod(0o777)
        nobody = f"127.0.0.1:{free_port()}"  # at once, whatever a resolver makes of the name
        self.text = (
            told["agent.yaml"]
            .replace("kafka-0.kafka:9092", nobody)
            .replace("/run/paritas", f"{folder}/run")
            .replace("/var/lib/paritas", f"{folder}/state")
        )
        self.swap(self.text)

    def swap(self, text):
        """Change the file as the kubelet does: a new folder, and a link that moves in one step."""
        new = Path(tempfile.mkdtemp(prefix="..", dir=self.folder / "config"))
        new.chmod(0o755)
        (new / "agent.yaml").write_text(text)
        link = self.folder / "config" / "..data_tmp"
        link.symlink_to(new.name)
        link.replace(self.folder / "config" / "..data")
        file = self.folder / "config" / "agent.yaml"
        if not file.is_symlink():
            file.symlink_to("..data/agent.yaml")

    @contextmanager
    def agent(self, uid=AGENT_UID):
        """The container, until its startup probe has passed and to its SIGTERM."""
        config = self.folder / "config" / "agent.yaml"
        arguments = [
            str(config) if a.startswith("/etc/paritas/agent/") else a for a in self.container["args"]
        ]
        told = {variable["name"]: self.name for variable in self.container["env"]}
        with running(as_user(uid, PARITAS, *arguments), self.log, environment=told, ports={}) as part:
            wait_until(lambda: self.probe("startupProbe") == 200, "the startup probe passes", alive=part)
            yield part

    @property
    def log(self):
        return self.folder / "agent.log"

    def probe(self, name):
        """Ask as the kubelet does: the pod's address, the port and path of the rendered probe."""
        asked = self.container[name]["httpGet"]
        return status(f"http://127.0.0.1:{asked['port']}{asked['path']}")

    def metric(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"paritas_agent_{name}")
        )


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


@pytest.fixture
def folder():
    """Where every user may look; pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_engines_of_any_user_send_to_an_agent_of_another(folder):
    pod = Pod(folder)
    with pod.agent():
        senders = (0, STRANGER_UID, OPENSHIFT_UID, AGENT_UID)
        assert [send(uid, pod.socket, trace) for trace, uid in enumerate(senders, 1)] == ["taken"] * 4
        assert pod.metric("records_accepted_total") == 4
        assert pod.socket.stat().st_uid == AGENT_UID
        assert (folder / "run").stat().st_uid == 0


def test_it_reports_under_the_name_of_its_pod(folder):
    pod = Pod(folder)
    with pod.agent() as part:  # its page answers before it says so
        wait_until(lambda: f"agent {pod.name}\n" in pod.log.read_text(), "it says its name", alive=part)


def test_of_named_users_only_they_may(folder):
    pod = Pod(folder, uids=[STRANGER_UID])
    with pod.agent():
        assert send(STRANGER_UID, pod.socket) == "taken"
        for uid in (OPENSHIFT_UID, 0):
            assert (
                send(uid, pod.socket) != "taken"
            )  # "403", or a connection that was closed before it was read
        assert pod.metric("records_accepted_total") == 1


def test_the_probes_answer_on_the_port_that_the_agent_opens_and_kafka_is_not_asked(folder):
    """No broker is there: alive all the same, and not ready once something waits too long."""
    pod = Pod(folder, failClosed=True, health={"stall": "100ms"})
    with pod.agent():
        assert send(0, pod.socket) == "taken"
        wait_until(lambda: pod.probe("readinessProbe") == 503, "it is not ready")
        assert (pod.probe("startupProbe"), pod.probe("livenessProbe")) == (200, 200)


def test_the_page_on_loopback_can_be_asked_from_inside(folder):
    pod = Pod(folder, probes={"kind": "exec"})
    command = pod.container["livenessProbe"]["exec"]["command"]
    pod.container["startupProbe"] = {"httpGet": {"path": "/healthz", "port": pod.port}}
    inside = as_user(AGENT_UID, PARITAS, *command[1:])
    with pod.agent():
        assert subprocess.run(inside, capture_output=True, check=False, timeout=60).returncode == 0
    assert subprocess.run(inside, capture_output=True, check=False, timeout=60).returncode != 0


def test_a_changed_configmap_is_read_while_it_runs(folder):
    pod = Pod(folder)
    with pod.agent() as part:
        told = yaml.safe_load(pod.text)
        told["destination"]["kafka"]["topic"] = "other"
        pod.swap(yaml.safe_dump(told))
        wait_until(lambda: "reloaded" in pod.log.read_text(), "it has read the file", alive=part)
        pod.swap("nonsense: true\n")
        wait_until(
            lambda: "unknown field 'nonsense'" in pod.log.read_text(), "it names the fault", alive=part
        )
        assert pod.probe("livenessProbe") == 200


def test_what_could_not_be_sent_is_there_when_the_container_comes_back(folder):
    pod = Pod(folder, grace="200ms")
    with pod.agent():
        assert send(0, pod.socket) == "taken"
    with pod.agent():
        assert pod.metric("records_queued") == 1


def test_it_ends_within_its_grace_though_nothing_can_be_sent(folder):
    pod = Pod(folder, grace="200ms")
    with ExitStack() as stack:
        part = stack.enter_context(pod.agent())
        assert send(0, pod.socket) == "taken"
        part.process.terminate()
        assert part.process.wait(timeout=30) == 0


def test_a_spool_of_somebody_elses_is_refused_in_words(folder):
    """As a hostPath or a claim that is root's: the agent cannot write, and says so instead of running without."""
    Pod(folder)
    (folder / "state").chmod(0o755)
    arguments = ["agent", "--config", folder / "config" / "agent.yaml"]
    done = subprocess.run(
        as_user(AGENT_UID, PARITAS, *arguments), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert f"{folder}/state/spool" in done.stderr
    assert "Traceback" not in done.stderr
