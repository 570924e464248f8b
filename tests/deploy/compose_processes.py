"""The services of deploy/compose/compose.yaml as processes of this machine, with the file's own commands.

Only what a container gives is put in: folders for its volumes, loopback ports for the names of its network.
"""

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml
from free_ports import free_port
from system.otel_parts import Part, running, wait_until

FOLDER = Path(__file__).parents[2] / "deploy" / "compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
OWN = tuple(name for name, service in SERVICES.items() if "paritas" in service["image"])
PORTS = {"controller": (4320, 4322), "detectors": (4323,), "agent": (4319,)}
BIN = Path(sys.executable).parent
LISTENERS = re.compile(
    r"KAFKA_(NODE_ID|PROCESS_ROLES|CONTROLLER_|LISTENER|ADVERTISED|INTER_BROKER|LOG_DIRS|HEAP)"
)
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


def broker_properties() -> list[str]:
    """Settings that the compose file gives the broker, less addresses and folders, as the image reads them."""
    environment = SERVICES["kafka"]["environment"]
    names = [name for name in environment if name.startswith("KAFKA_") and not LISTENERS.match(name)]
    return [f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={environment[name]}" for name in names]


class Stack:
    """Turns a service into a command of this machine.

    Parameters
    ----------
    folder : Path
        Volumes, logs and rewritten files; short, since a socket is in it.
    bootstrap : str
        Address of a broker.
    variables : mapping of str to str
        What a user may set in the environment, such as PASSES.
    edits : mapping of str to str
        Further texts to replace, such as a pace.
    """

    def __init__(self, folder, bootstrap, *, variables, edits):
        self.folder, self._variables, self._edits = folder, variables, edits
        self.ports = {(name, port): free_port() for name, ports in PORTS.items() for port in ports}
        self._bootstrap = bootstrap
        self.parts: dict[str, Part] = {}

    def volumes(self, name):
        """Folder on this machine of every path that a container has mounted, longest path first."""
        found = {}
        for volume in SERVICES[name].get("volumes", ()):
            source, target = volume.split(":")[:2]
            here = (FOLDER / source).resolve() if source.startswith(".") else self.folder / "volumes" / source
            if not source.startswith("."):
                here.mkdir(mode=0o700, parents=True, exist_ok=True)
            found[target] = here
        return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))

    def placed(self, name, text):
        """A text of the service with this machine's folders, ports and addresses."""
        text = VARIABLE.sub(lambda found: self._variables.get(found[1], found[2]), text)
        for target, here in self.volumes(name).items():
            text = text.replace(target, str(here))
        for (service, port), own in self.ports.items():
            text = text.replace(f"{service}:{port}", f"127.0.0.1:{own}")
            if service == name:
                text = re.sub(rf"\b(?:0\.0\.0\.0|127\.0\.0\.1):{port}\b", f"127.0.0.1:{own}", text)
        text = text.replace("kafka:19092", self._bootstrap)
        for old, new in self._edits.items():
            text = text.replace(old, new)
        return text

    def command(self, name, words=None):
        """The service's command, or other words in its place; files of configuration are rewritten too."""
        entry = SERVICES[name].get("entrypoint", ["paritas"])
        told = [self.placed(name, word) for word in (words or [*entry, *SERVICES[name]["command"]])]
        for place, word in enumerate(told):
            if word.endswith("agent.yaml"):
                rewritten = self.folder / "agent.yaml"
                rewritten.write_text(self.placed(name, Path(word).read_text()))
                told[place] = str(rewritten)
        return [str(BIN / told[0]), *told[1:]]

    def environment(self, name):
        """Where a container of the image keeps its state."""
        return {"PARITAS_DATA": str(self.volumes(name).get("/var/lib/paritas", self.folder / name))}

    def run(self, name):
        """Run a service that ends."""
        done = subprocess.run(
            self.command(name),
            env=os.environ | self.environment(name),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, stack: ExitStack, name):
        """Start a service that stays; returns when its own health check passes, if it has one."""
        log, environment = self.folder / f"{name}.log", self.environment(name)
        part = stack.enter_context(running(self.command(name), log, environment=environment, ports={}))
        self.parts[name] = part
        check = SERVICES[name].get("healthcheck", {})
        if "test" in check:
            words = check["test"][1:]
            wait_until(lambda: self.passes(name, words), f"{name} is healthy", alive=part)

    def passes(self, name, words):
        """Whether a health check of the file passes."""
        done = subprocess.run(self.command(name, words), capture_output=True, timeout=30, check=False)
        return done.returncode == 0

    def port(self, name, port):
        return self.ports[name, port]


@contextmanager
def stack(folder: Path, bootstrap: str, *, without: Collection[str] = (), **told) -> Iterator[Stack]:
    """Run all of our services, in the order that `depends_on` asks for; a test starts those left out itself."""
    made, done = Stack(folder, bootstrap, **told), {"kafka"}
    with ExitStack() as held:
        while missing := [name for name in OWN if name not in done and name not in without]:
            name = next(n for n in missing if set(SERVICES[n].get("depends_on", ())) <= done)
            if SERVICES[name]["restart"] == "no":
                made.run(name)
            else:
                made.start(held, name)
            done.add(name)
        yield made
