"""Containers under the flags of the chart, in a network of their own as the containers of one pod have it."""

import contextlib
import itertools
import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from system.otel_parts import wait_until

from deploy import containers_setup

DEADLINE_S = 90
# cgroups of this process, and a limit on files that the machine allows; neither is a right the chart lacks.
PODMAN = ("podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs")
# Where it can, podman logs into the journal, which may be behind, or not be kept.
LOG = "--log-driver=k8s-file"
# What the chart says of every container of ours: securityContext, and /tmp as its only writable place beside volumes.
CHART = (
    "--read-only",
    "--read-only-tmpfs=false",
    "--user=65532:65532",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--tmpfs=/tmp:rw,noexec,nosuid,nodev,size=64m,mode=1777",
    "--memory=256m",
    "--ulimit=nofile=1024:1024",
    "--ulimit=nproc=1000:1000",
)
USER = 65532
NUMBERS = itertools.count()
METRIC = re.compile(r"^(paritas_[a-z_]+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


def podman(*words, check=True, timeout_s=DEADLINE_S):
    """Run podman in the tests' store; returns its standard output."""
    done = subprocess.run(
        [*PODMAN, *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=containers_setup.environment(),
    )
    assert not check or done.returncode == 0, (
        f"podman {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return done.stdout


class Pod:
    """A network namespace that containers share, reached from here over a pair of veth; a context manager.

    The probes come from outside, as a kubelet's do; its ports are those of the chart and clash with nobody's.
    """

    def __init__(self):
        number = next(NUMBERS)
        self.name = f"paritas-{os.getpid()}-{number}"
        self.link = f"pt{os.getpid() % 10**7}x{number}"
        high, low = divmod((os.getpid() * 16 + number) % 2**14 * 4, 256)
        # 198.18.0.0/15 is set aside for tests between networks.
        self.host, self.ip = f"198.18.{high}.{low + 1}", f"198.18.{high}.{low + 2}"
        self.network = f"ns:/run/netns/{self.name}"

    def __enter__(self):
        self._ip("netns", "add", self.name)
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _connect(self):
        inside = ("netns", "exec", self.name, "ip")
        self._ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        self._ip("addr", "add", f"{self.host}/30", "dev", self.link)
        self._ip("link", "set", self.link, "up")
        self._ip(*inside, "addr", "add", f"{self.ip}/30", "dev", "eth0")
        self._ip(*inside, "link", "set", "eth0", "up")
        self._ip(*inside, "link", "set", "lo", "up")

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)

    @staticmethod
    def _ip(*words):
        done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"ip {words}: {done.stderr}"


class Volume:
    """A named volume; a context manager. What is in it is seen at `path` from here.

    Parameters
    ----------
    owner : {'image', 'kubelet'}
        Whether podman gives it to the owner that the image's folder has, or it is as a kubelet leaves an emptyDir
        of a pod with fsGroup: of root and the group, writable for the group, setgid.
    """

    def __init__(self, owner="image"):
        self.name = f"paritas-{os.getpid()}-{next(NUMBERS)}"
        self._owner = owner

    def __enter__(self):
        podman("volume", "create", self.name)
        self.path = Path(podman("volume", "inspect", "--format", "{{.Mountpoint}}", self.name).strip())
        if self._owner == "kubelet":
            os.chown(self.path, 0, USER)
            self.path.chmod(0o2777)
            (self.path / ".made").touch()  # podman gives an empty volume to the image's owner
        return self

    def __exit__(self, *_):
        podman("volume", "rm", "-f", self.name, check=False)

    def at(self, place, *, read_only=False):
        """Return the option that mounts it there."""
        return f"--volume={self.name}:{place}{':ro' if read_only else ''}"


class Container:
    """One container of one of our images; each start is a new container with the same volumes.

    Parameters
    ----------
    words : sequence of str
        After `paritas`.
    options : sequence of str
        Of podman run, beside those of the chart: volumes, environment.
    """

    def __init__(self, pod, image, words, options=(), *, memory="256m"):
        self.pod, self.image, self.words, self.options = pod, image, words, options
        self.memory = memory
        self.name = ""

    def start(self):
        """Start it; returns itself."""
        self.name = f"paritas-{os.getpid()}-{next(NUMBERS)}"
        flags = (LOG, *CHART, f"--memory={self.memory}", f"--network={self.pod.network}", *self.options)
        podman("run", "--detach", "--name", self.name, *flags, self.image, *self.words)
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        podman("rm", "--force", "--time=0", self.name, check=False)

    @property
    def said(self):
        """Both streams so far."""
        told = subprocess.run(
            [*PODMAN, "logs", self.name],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=containers_setup.environment(),
        )
        return told.stdout

    def running(self):
        """Whether it runs."""
        return podman("inspect", "--format", "{{.State.Running}}", self.name).strip() == "true"

    def wait_for(self, true, what, *, deadline_s=DEADLINE_S):
        """Wait until `true` holds; fail with what it said, at once if it has ended."""

        def holds():
            if true():
                return True
            assert self.running(), f"{what}: ended with {self.code()}\n{self.said[-4000:]}"
            return False

        try:
            wait_until(holds, what, deadline_s=deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said[-4000:]}") from error
        return self

    def well(self, port, path="/readyz"):
        """Whether the probe of that port passes, asked from outside."""
        return probe(f"http://{self.pod.ip}:{port}{path}")[0] == 200

    def metrics(self, port):
        """Return its numbers: `name` or `name{labels}` to value."""
        status, text = probe(f"http://{self.pod.ip}:{port}/metrics")
        assert status == 200, text
        found = METRIC.findall(text)
        return {f"{name}{{{labels}}}" if labels else name: float(value) for name, labels, value in found}

    def exec(self, *words, check=True):
        """Run a program in it; returns its output."""
        return podman("exec", self.name, *words, check=check)

    def stop(self, grace_s=30):
        """SIGTERM, and SIGKILL after the grace period, as a kubelet does; returns the exit code."""
        podman("stop", f"--time={grace_s}", self.name, timeout_s=grace_s + DEADLINE_S)
        return self.code()

    def kill(self):
        """As kill -9 does."""
        podman("kill", "--signal=KILL", self.name)
        podman("wait", self.name)

    def code(self):
        """Exit code of one that has ended."""
        return int(podman("inspect", "--format", "{{.State.ExitCode}}", self.name))

    def remove(self):
        """Remove the container; volumes stay."""
        podman("rm", "--force", "--time=0", self.name)

    def state(self):
        """Return what podman knows of it."""
        return json.loads(podman("inspect", self.name))[0]


def probe(url, *, timeout_s=5.0):
    """Return status and text; status 0 if nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with contextlib.closing(error):
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def run_once(image, *words, entrypoint=None, options=()):
    """Run a command of an image to its end under the flags of the chart; without a network unless `options` give one."""
    entry = [f"--entrypoint={entrypoint}"] if entrypoint else []
    network = [] if any(option.startswith("--network") for option in options) else ["--network=none"]
    done = subprocess.run(
        [
            *PODMAN,
            "run",
            "--rm",
            "--no-healthcheck",
            *network,
            *CHART,
            *entry,
            *options,
            image,
            *words,
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=containers_setup.environment(),
    )
    return done.returncode, done.stdout, done.stderr
