"""What compose.yaml promises: nothing open but loopback, no rights, no secrets, and commands that our programs take."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from deploy.compose_processes import FOLDER, OWN, SERVICES, Stack
from deploy.parts import why_not
from deploy.tools_setup import tool

from paritas.cli import parser
from paritas.controller.access.grants import load_grants

FILE = FOLDER / "compose.yaml"
COMPOSE = yaml.safe_load(FILE.read_text())
# Without read_only, without a health check, and why.
WRITABLE = {"kafka": "the image writes its configuration when it starts"}
UNASKED = {
    "collector": "no program in the image could ask",
    "jaeger": "nobody waits for it",
    "producer": "listens nowhere",
}
with_tools = pytest.mark.skipif(bool(why_not("tools")), reason=str(why_not("tools")))


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_rights_beyond_its_work(name):
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert int(service["user"].split(":")[0]) > 0
    assert "mem_limit" in service
    assert service.get("read_only", False) != (name in WRITABLE)
    assert not {"privileged", "pid", "ipc", "devices", "cap_add"} & set(service)


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_alone(name):
    for port in SERVICES[name].get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z]+_PORT:-\d+\}:\d+", port), port


def test_images_are_pinned_and_no_secret_is_in_the_file():
    for name, service in SERVICES.items():
        image = re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", service["image"])
        assert re.fullmatch(r"[a-z.]+/[a-z/.-]+:v?\d+\.\d+\.\d+(@sha256:[0-9a-f]{64})?", image), name
        for key in service.get("environment", {}):
            assert not re.search(r"(?i)passw|secret|token|_key", key), f"{name}: {key}"


def test_every_mounted_file_is_there_and_read_only_and_every_volume_declared():
    used = set()
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source, target, *mode = volume.split(":")
            if source.startswith("."):
                assert (FOLDER / source).exists(), f"{name}: {volume}"
                assert mode == ["ro"], f"{name}: {volume}"
            else:
                used.add(source)
            assert target.startswith("/")
    assert used == set(COMPOSE["volumes"])


def test_who_is_waited_for_can_say_that_it_is_well():
    for name, service in SERVICES.items():
        for other, told in service.get("depends_on", {}).items():
            condition, needed = told["condition"], SERVICES[other]
            if condition == "service_healthy":
                assert "test" in needed["healthcheck"], f"{name} waits for {other}"
            if condition == "service_completed_successfully":
                assert needed["restart"] == "no"
        stays = service["restart"] != "no"
        assert not stays or name in UNASKED or "test" in service["healthcheck"], name


@pytest.mark.parametrize("name", [name for name in OWN if "entrypoint" not in SERVICES[name]])
def test_our_program_takes_the_command(name, tmp_path):
    stack = Stack(tmp_path, "127.0.0.1:9", variables={}, edits={})
    told = parser().parse_args(stack.command(name)[1:])
    assert callable(told.run)


def test_the_agent_takes_its_configuration():
    paritas = Path(sys.executable).with_name("paritas")
    done = subprocess.run(
        [paritas, "agent", "--check", "--config", FOLDER / "agent" / "agent.yaml"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def set_up(folder):
    """Run setup.py on two folders; return what it said."""
    volumes = [folder / name for name in ("controller", "clients")]
    for volume in volumes:
        volume.mkdir(exist_ok=True)
    command = [sys.executable, FOLDER / "setup.py", "--controller", volumes[0], "--clients", volumes[1]]
    done = subprocess.run(
        [*command, "--host", "controller"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


MADE = "certificate for controller, good for 365 days\ntoken of detectors (actor)\ntoken of people (actor)\n"
ANEW = ", made anew, since the one before is gone: restart the controller if it is running"


def test_setup_makes_private_files_once(tmp_path):
    assert set_up(tmp_path) == MADE
    made = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    names = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777 for path in made}
    private = (
        *("controller/tls.key", "controller/access.jsonl"),
        *("clients/detectors.token", "clients/people.token"),
    )
    public = ("controller/tls.crt", "clients/tls.crt")
    assert names == dict.fromkeys(public, 0o644) | dict.fromkeys(private, 0o600)
    assert set_up(tmp_path) == ""
    assert all(path.read_bytes() == content for path, content in made.items())


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("controller/*", MADE),
        (
            "clients/*",
            (
                "certificate given to the clients again\n"
                f"token of detectors (actor){ANEW}\ntoken of people (actor){ANEW}\n"
            ),
        ),
        ("clients/people.token", f"token of people (actor){ANEW}\n"),
        ("*/tls.crt", "certificate for controller, good for 365 days\n"),
    ],
)
def test_setup_makes_both_volumes_fit_again_where_one_has_lost_something(tmp_path, lost, said):
    set_up(tmp_path)
    with (tmp_path / "controller" / "access.jsonl").open("a") as file:
        file.write("# by hand\n\n")
    for file in tmp_path.glob(lost):
        file.unlink()
    assert set_up(tmp_path) == said
    controller, clients = tmp_path / "controller", tmp_path / "clients"
    assert (controller / "tls.crt").read_bytes() == (clients / "tls.crt").read_bytes()
    grants = load_grants(controller / "access.jsonl")
    tokens = {name: (clients / f"{name}.token").read_text().strip() for name in ("detectors", "people")}
    assert {name: grants.by_token(token).name for name, token in tokens.items()} == {n: n for n in tokens}
    assert len(grants.grants) == len(tokens)
    assert set_up(tmp_path) == ""


@with_tools
def test_the_schema_of_compose_takes_the_file(tmp_path):
    check = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, FILE], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text().replace("cap_drop:", "cap_dropped:"))
    assert subprocess.run([*check, wrong], capture_output=True, check=False, timeout=60).returncode == 1


@with_tools
@pytest.mark.parametrize(
    ("profiles", "count"), [((), 7), (("traces",), 9), (("metrics",), 9), (("traces", "metrics"), 11)]
)
def test_podman_compose_resolves_the_file(profiles, count):
    asked = [word for profile in profiles for word in ("--profile", profile)]
    program = [tool("podman-compose"), "--dry-run"]  # else it wants to find podman first
    done = subprocess.run(
        [*program, "-f", FILE, *asked, "config", "--services"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == count
