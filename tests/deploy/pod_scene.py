"""What the chart would put together, made of containers: agent, detector and controller with their volumes."""

import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from certificates import self_signed
from deploy.containers import USER, Container, Pod, Volume, run_once
from system.otel_parts import wait_until

from deploy import containers_setup
from paritas.client import EscalationClient, TlsFiles

PARITAS = Path(sys.executable).with_name("paritas")
AGENT_PORT, CONTROL_PORT, CONTROL_HEALTH, DETECT_PORT = 4319, 4320, 4322, 4323
EMBEDDED = "{embedded: {path: /var/lib/paritas/log, partitions: 1}}"
AGENT_FILE = """spool: {{path: /var/lib/paritas/spool, segment_bytes: 262144}}
receivers: {{unix: {{path: /run/paritas/otlp.sock, uids: [0]}}}}
destination: {destination}
health: {{listen: "0.0.0.0:4319", report: 1s}}
shipping: {{{shipping}retry_first: 50ms, retry_most: 200ms}}
grace: {grace}
"""
SECRETS = "/etc/paritas/secrets"


class Scene:
    """Folders, volumes and containers of one pod; a context manager.

    Parameters
    ----------
    folder : Path
        For what is mounted from here: configuration and secrets.
    """

    def __init__(self, folder):
        self.folder = folder
        self._stack = ExitStack()

    def __enter__(self):
        enter = self._stack.enter_context
        self.pod = enter(Pod())
        self.run, self.state = enter(Volume("kubelet")), enter(Volume("kubelet"))
        self.spool, self.log, self.data = enter(Volume()), enter(Volume()), enter(Volume("kubelet"))
        return self

    def __exit__(self, *details):
        self._stack.__exit__(*details)

    @property
    def socket(self):
        """Where the agent listens, seen from here."""
        return self.run.path / "otlp.sock"

    def agent(self, destination=EMBEDDED, *, grace="10s", shipping=""):
        """The sidecar, not started yet; `shipping` are fields of that section, each with a comma behind it."""
        config = self._mounted("agent")
        (config / "agent.yaml").write_text(
            AGENT_FILE.format(destination=destination, grace=grace, shipping=shipping)
        )
        options = (
            self.run.at("/run/paritas"),
            self.spool.at("/var/lib/paritas/spool"),
            self.log.at("/var/lib/paritas/log"),
            f"--volume={config}:/etc/paritas/agent:ro",
            "--hostname=pod-7",
        )
        return Container(self.pod, containers_setup.image("agent"), (), options)

    def controller(self, *words):
        """The controller as the chart starts it: for everybody, so with TLS and names."""
        secrets = self._secrets()
        given = ("--listen", f"0.0.0.0:{CONTROL_PORT}", "--health", f"0.0.0.0:{CONTROL_HEALTH}")
        tls = ("--certificate", f"{SECRETS}/cert.pem", "--key", f"{SECRETS}/key.pem")
        options = (self.data.at("/var/lib/paritas"), f"--volume={secrets}:{SECRETS}:ro")
        told = ("control", *given, *tls, "--access", f"{SECRETS}/access.jsonl", *words)
        return Container(self.pod, containers_setup.image("full"), told, options)

    def detector(self, *source):
        """The detector of one contract, whose log is the agent's unless told otherwise."""
        source = source or ("--log", "/var/lib/paritas/log")
        given = ("--controller", f"localhost:{CONTROL_PORT}", "--ca", f"{SECRETS}/cert.pem")
        told = ("detect", *source, *given, "--token-file", f"{SECRETS}/token")
        told = (*told, "--metrics", f"0.0.0.0:{DETECT_PORT}", "--state", "/var/lib/paritas/detector.state")
        options = (
            self.state.at("/var/lib/paritas"),
            self.log.at("/var/lib/paritas/log", read_only=True),
            f"--volume={self._secrets()}:{SECRETS}:ro",
        )
        return Container(self.pod, containers_setup.image("full"), told, options)

    def make_topics(self, bootstrap):
        """Make the topics as an operator would: with the image's own command, as soon as a broker answers."""
        words = ("topics", "--kafka", bootstrap, "--partitions", "1", "--replicas", "1")
        options = (f"--network={self.pod.network}",)

        def made():
            return run_once(containers_setup.image("full"), *words, options=options)[0] == 0

        wait_until(made, f"topics made on {bootstrap}")

    def client(self):
        """A client of the controller, from outside of the pod."""
        tls = TlsFiles(ca=self._secrets() / "cert.pem")
        return EscalationClient(
            f"{self.pod.ip}:{CONTROL_PORT}", tls=tls, token_file=self._secrets() / "token", timeout_s=60.0
        )

    def _mounted(self, name):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        return folder

    def _secrets(self):
        """Certificate, key, names and a token, as a kubelet mounts them with fsGroup: root's, and for the group to read."""
        if (self.folder / "secrets").exists():
            return self.folder / "secrets"
        folder = self._mounted("secrets")
        self_signed(folder, f"IP:{self.pod.ip}")
        add = [PARITAS, "access", "add", "tests", "--role", "actor", "--file", folder / "access.jsonl"]
        token = subprocess.run(add, check=True, capture_output=True, text=True).stdout
        (folder / "token").write_text(token)
        for path in folder.iterdir():
            os.chown(path, 0, USER)
            path.chmod(0o440)
        return folder


def send(socket, run_id, *names):
    """Stream recordings that come with the package into a socket; returns how many records were taken."""
    with ExitStack() as stack:
        kept = files("paritas") / "data"
        paths = [str(stack.enter_context(as_file(kept / f"{name}.jsonl.gz"))) for name in names]
        home = stack.enter_context(_folder())
        command = [PARITAS, "ingest", "--agent", f"unix:{socket}", "--data", home, "--run", run_id, *paths]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.split(" in ")[1].split()[0])


@contextmanager
def _folder():
    import tempfile

    with tempfile.TemporaryDirectory(prefix="paritas-") as name:
        yield name


def account(told):
    """Accepted, delivered, dropped and queued of a page of the agent; they must always add up."""
    accepted, delivered = (
        told["paritas_agent_records_accepted_total"],
        told["paritas_agent_records_delivered_total"],
    )
    dropped = sum(n for name, n in told.items() if name.startswith("paritas_agent_records_dropped_total"))
    queued = told["paritas_agent_records_queued"]
    assert accepted == delivered + dropped + queued, told
    return accepted, delivered, dropped, queued


def delivered_all(agent, accepted):
    """Wait until the agent has delivered so many records; returns its account."""
    told = []

    def done():
        told.append(account(agent.metrics(AGENT_PORT)))
        return told[-1] == (accepted, accepted, 0, 0)

    wait_until(done, f"all of {accepted} records delivered: {told[-1:]}")
    return told[-1]
