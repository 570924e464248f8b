"""Our services of the compose file as containers: podman-compose, the built image, a real broker, the file's own rights.

The file is used as it is but for what this machine lacks: an image registry, so the broker is a process; a bridge, so
the containers share one network and find each other by /etc/hosts; systemd, so health checks are run from here.
"""

import json
import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import yaml
from deploy.compose_processes import FOLDER, OWN, SERVICES
from deploy.containers import PODMAN, Pod, podman
from deploy.parts import why_not
from deploy.pod_kafka import PORT, PodKafka
from deploy.tools_setup import tool
from system.otel_parts import wait_until
from system.parts import why_not as why_no_part

from deploy import containers_setup

MISSING = why_no_part("kafka") or why_not("tools") or why_not("containers")
pytestmark = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))

# As tests/deploy/containers.py: limits that this machine allows, no right that the file lacks.
LIMITS = "--ulimit=nofile=1024:1024 --ulimit=nproc=1000:1000"


class Project:
    """The stack under podman-compose; a context manager that takes everything away.

    Parameters
    ----------
    pod : Pod
        The network of all containers.
    folder : Path
        For the adapted file.
    """

    def __init__(self, pod, folder):
        self.name = f"paritas{os.getpid()}"
        self._pod, self._file = pod, folder / "compose.yaml"
        self._file.write_text(yaml.safe_dump(self._adapted(), sort_keys=False))

    def _adapted(self):
        text = (FOLDER / "compose.yaml").read_text().replace("kafka:19092", f"kafka:{PORT}")
        text = text.replace("--every=10s", "--every=2s")
        told = yaml.safe_load(text)
        services = {name: told["services"][name] for name in OWN}
        hosts = [f"kafka:{self._pod.ip}", "controller:127.0.0.1"]
        for name, service in services.items():
            service.pop("build"), service.pop("depends_on", None), service.pop("ports", None)
            service["image"] = containers_setup.image("full")
            service["volumes"] = [self._mounted(name, volume) for volume in service.get("volumes", ())]
            if service.get("network_mode") != "none":
                service |= {"network_mode": self._pod.network, "extra_hosts": hosts}
        volumes = {name: {} for name in told["volumes"]}
        return {"name": self.name, "services": services, "volumes": volumes}

    def _mounted(self, name, volume):
        """A volume with the path of this machine; the agent's file names the broker by the port it has here."""
        source, rest = volume.split(":", 1)
        if not source.startswith("."):
            return volume
        if name == "agent" and source == "./agent":
            config = self._file.parent / "agent" / "agent.yaml"
            config.parent.mkdir(exist_ok=True)
            config.write_text(
                (FOLDER / "agent/agent.yaml").read_text().replace("kafka:19092", f"kafka:{PORT}")
            )
            return f"{config.parent}:{rest}"
        return f"{(FOLDER / source).resolve()}:{rest}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._compose("down", "--volumes", "--timeout", "5", check=False)
        left = [f"{self.name}_{name}" for name in yaml.safe_load(self._file.read_text())["volumes"]]
        podman("volume", "rm", "-f", *left, check=False)  # podman-compose leaves some

    def _compose(self, *words, check=True):
        program = [tool("podman-compose"), "-p", self.name, "-f", self._file, "--in-pod=false"]
        args = [f"--podman-args={' '.join(PODMAN[1:])}", f"--podman-run-args={LIMITS}"]
        done = subprocess.run(
            [*map(str, program), *args, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=containers_setup.environment() | {"PASSES": "4"},
        )
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def up(self):
        """Start every service in the order of the file's conditions."""
        done = {"kafka"}
        while missing := [name for name in OWN if name not in done]:
            name = next(n for n in missing if set(SERVICES[n].get("depends_on", ())) <= done)
            self._compose("up", "-d", "--no-deps", name)
            if SERVICES[name]["restart"] == "no":
                code = podman("wait", self.container(name)).strip()
                assert code == "0", self.logs(name)
            elif "test" in SERVICES[name]["healthcheck"]:
                wait_until(partial(self.is_healthy, name), f"{name} is healthy")
            done.add(name)

    def container(self, name):
        return f"{self.name}_{name}_1"

    def is_healthy(self, name):
        """Run the health check of the file inside the container, as its engine would."""
        words = [*PODMAN, "healthcheck", "run", self.container(name)]
        return (
            subprocess.run(
                words, env=containers_setup.environment(), capture_output=True, check=False
            ).returncode
            == 0
        )

    def logs(self, name):
        return podman("logs", self.container(name), check=False)

    def inspect(self, name):
        return yaml.safe_load(podman("inspect", self.container(name)))[0]

    def volume(self, name):
        return Path(podman("volume", "inspect", "--format", "{{.Mountpoint}}", f"{self.name}_{name}").strip())


@pytest.fixture(scope="module")
def project():
    """The stack, up and healthy."""
    folder = Path(tempfile.mkdtemp(prefix="paritas-compose-"))
    with ExitStack() as held:
        held.callback(shutil.rmtree, folder)
        pod = held.enter_context(Pod())
        kafka = held.enter_context(PodKafka(pod, folder / "kafka"))
        made = held.enter_context(Project(pod, folder))
        made.pod = pod
        wait_until(kafka.serves, "the broker is healthy, which `topics` depends on")
        made.up()
        yield made


def test_every_container_has_the_rights_of_the_file_and_no_more(project):
    for name in OWN:
        found = project.inspect(name)
        assert found["EffectiveCaps"] in (None, []), name
        assert found["HostConfig"]["ReadonlyRootfs"], name
        assert "no-new-privileges" in str(found["HostConfig"]["SecurityOpt"]), name
        assert found["Config"]["User"] == "65532:65532", name


def test_secrets_are_in_volumes_and_private(project):
    own, clients = project.volume("controller-access"), project.volume("client-access")
    private = [own / "tls.key", own / "access.jsonl", clients / "detectors.token", clients / "people.token"]
    for path in private:
        status = path.stat()
        assert (status.st_uid, status.st_mode & 0o777) == (65532, 0o600), path


def test_the_fault_of_the_second_act_reaches_a_person(project):
    found = set()

    def is_told():
        words = ["paritas", "incidents", "list", "--all", "--json"]
        said = podman("exec", project.container("controller"), *words, check=False)
        lines = [line for line in said.splitlines() if line.startswith("{")]
        found.update(json.loads(line)["current"]["slice"] for line in lines)
        return "replica=r2" in found

    wait_until(is_told, "the controller is told of the replica", deadline_s=300.0)
    assert not {"replica=r0", "replica=r1", "replica=r3"} & found


def test_nothing_was_restarted(project):
    for name in OWN:
        assert project.inspect(name)["RestartCount"] == 0, project.logs(name)
