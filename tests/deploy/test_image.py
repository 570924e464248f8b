"""Facts of the images that are really built: what is in them, whose it is, and what is not in them."""

import json
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
from deploy.containers import USER, podman, run_once
from deploy.parts import why_not

from deploy import containers_setup

pytestmark = pytest.mark.skipif(bool(why_not("containers")), reason=str(why_not("containers")))

IMAGE = Path(__file__).parents[2] / "deploy" / "image"
# Uncompressed, on the debootstrap base; measured 172 and 331 MB.
LIMIT_MB = {"agent": 190, "full": 360}
BOTH = pytest.mark.parametrize("target", ["agent", "full"])


@pytest.fixture(scope="module")
def config():
    """What each image declares."""
    return {
        target: json.loads(podman("image", "inspect", containers_setup.image(target)))[0]
        for target in containers_setup.TARGETS
    }


@pytest.fixture(scope="module", params=["agent", "full"])
def tree(request):
    """The files of an image, mounted."""
    name = containers_setup.image(request.param)
    yield request.param, Path(podman("image", "mount", name).strip())
    podman("image", "umount", name)


@BOTH
def test_declares_who_it_is_and_how_it_is_run(config, target):
    told = config[target]["Config"]
    assert told["User"] == f"{USER}:{USER}"
    assert told["Entrypoint"] == ["paritas"]
    assert told["StopSignal"] == "SIGTERM"
    assert told["WorkingDir"] == "/var/lib/paritas"
    assert {"PYTHONDONTWRITEBYTECODE=1", "PARITAS_DATA=/var/lib/paritas"} <= set(told["Env"])
    assert config[target]["HealthCheck" if "HealthCheck" in config[target] else "Healthcheck"]["Test"][
        :3
    ] == [
        "CMD",
        "paritas",
        "health",
    ]


@BOTH
def test_carries_the_labels_of_the_open_container_initiative(config, target):
    labels = {k.removeprefix("org.opencontainers.image."): v for k, v in config[target]["Labels"].items()}
    assert labels["title"] == {"agent": "paritas-agent", "full": "paritas"}[target]
    assert labels["version"] == "0.1.0"
    assert labels["licenses"] == "Apache-2.0"
    assert labels["source"] == "https://github.com/paritas-dev/paritas"
    assert re.fullmatch("[0-9a-f]{40}|unknown", labels["revision"])


@BOTH
def test_is_small(config, target):
    assert config[target]["Size"] / 1e6 < LIMIT_MB[target]


@BOTH
def test_is_one_layer_of_its_own_and_none_of_the_base(config, target):
    """What was taken away cannot be found in a lower layer."""
    assert len(config[target]["RootFS"]["Layers"]) <= 2


def test_holds_no_shell_package_manager_or_compiler(tree):
    _, root = tree
    programs = {
        path.name for folder in ("usr/bin", "usr/sbin", "usr/local/bin") for path in (root / folder).glob("*")
    }
    programs |= {path.name for path in (root / "opt/paritas/bin").iterdir()}
    assert programs <= {"python", "python3", "python3.11", "paritas"}
    names = {path.name for path in root.rglob("*")}
    assert not names & {
        "pip",
        "setuptools",
        "ensurepip",
        "dpkg",
        "apt",
        "gcc",
        "cc",
        "ld",
        "sh",
        "bash",
        "perl",
    }


def test_two_builds_give_the_same_bytes(tree_of):
    """Each image is built by itself, from its own wheel of ours; what both hold is the same, down to the dates."""
    agent, full = (tree_of(target) for target in containers_setup.TARGETS)
    ours = "opt/paritas/lib/python3.11/site-packages/paritas/"
    common = [path for path in agent.rglob("*") if path.is_file() and not path.is_symlink()]
    common = [path.relative_to(agent) for path in common if (full / path.relative_to(agent)).is_file()]
    assert sum(str(path).startswith(ours) and path.suffix == ".pyc" for path in common) > 100
    other = {
        str(path)
        for path in common
        if (agent / path).read_bytes() != (full / path).read_bytes()
        or (agent / path).stat().st_mtime != (full / path).stat().st_mtime
    }
    assert other <= {"usr/share/doc/paritas/sbom.cdx.json"}


def test_nothing_in_it_is_setuid_or_has_capabilities(tree):
    _, root = tree
    for path in root.rglob("*"):
        if not path.is_symlink():
            assert not path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID), path
            assert "security.capability" not in os.listxattr(path), path


def test_the_user_owns_only_what_volumes_are_mounted_on(tree):
    _, root = tree
    writable = {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if not path.is_symlink() and (path.stat().st_uid == USER or path.stat().st_mode & 0o022)
    }
    assert writable == {
        "tmp",
        "run/paritas",
        "var/lib/paritas",
        "var/lib/paritas/log",
        "var/lib/paritas/spool",
    }


def test_a_file_that_the_user_tries_to_change_stays_as_it_is():
    """Also without a read-only root."""
    code = "import paritas.cli; open(paritas.cli.__file__, 'a')"
    returned, _, errors = run_once(
        containers_setup.image("agent"), "-c", code, entrypoint="python", options=["--read-only=false"]
    )
    assert returned == 1
    assert "PermissionError" in errors


@BOTH
def test_says_its_version(target):
    returned, said, errors = run_once(containers_setup.image(target), "--version")
    assert (returned, said) == (0, "paritas 0.1.0\n"), errors


def _distributions(target):
    code = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]"
    returned, said, errors = run_once(containers_setup.image(target), "-c", code, entrypoint="python")
    assert returned == 0, errors
    return {tuple(line.split()) for line in said.splitlines()}


@BOTH
def test_the_sbom_names_every_distribution_and_library(tree_of, target):
    bom = json.loads((tree_of(target) / "usr/share/doc/paritas/sbom.cdx.json").read_text())
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    listed = {(_plain(part["name"]), part["version"]) for part in bom["components"]}
    assert {(_plain(name), version) for name, version in _distributions(target)} <= listed
    assert {"cpython", "libc6", "libssl3", "libsqlite3-0", "ca-certificates"} <= {name for name, _ in listed}
    assert bom["metadata"]["component"]["name"] == {"agent": "paritas-agent", "full": "paritas"}[target]
    purls = [part["purl"] for part in bom["components"] if part["name"] != "paritas"]
    assert len(set(purls)) == len(purls)


@pytest.fixture
def tree_of():
    """Mount an image's files while a test looks at them."""
    mounted = []

    def root(target):
        mounted.append(containers_setup.image(target))
        return Path(podman("image", "mount", mounted[-1]).strip())

    yield root
    for name in mounted:
        podman("image", "umount", name)


def _plain(name):
    return re.sub("[-_.]+", "-", name).lower()


@BOTH
def test_the_sbom_beside_the_image_is_the_one_in_it(tree_of, target):
    inside = tree_of(target) / "usr/share/doc/paritas/sbom.cdx.json"
    assert containers_setup.sbom(target).read_bytes() == inside.read_bytes()


@BOTH
def test_the_sbom_is_as_its_schema_says(target):
    if reason := why_not("tools"):
        pytest.skip(reason)
    from deploy.tools_setup import tool

    code = (
        "import sys; from cyclonedx.schema import SchemaVersion as V; from cyclonedx.validation.json import JsonStrictValidator as J\n"
        "sys.exit(J(V.V1_6).validate_str(open(sys.argv[1]).read()) and 1)"
    )
    python = tool("cyclonedx-py").with_name("python")
    done = subprocess.run(
        [python, "-c", code, containers_setup.sbom(target)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@BOTH
def test_holds_the_versions_of_its_lock_file(target):
    locked = set(
        re.findall(
            r"^([a-z0-9-]+)==([^ ;]+)", (IMAGE / f"requirements-{target}.txt").read_text(), re.MULTILINE
        )
    )
    found = {(_plain(name), version) for name, version in _distributions(target)}
    assert found == locked | {("paritas", "0.1.0")}


def test_the_lock_files_name_what_the_project_asks_for():
    """A dependency that is added to the project and not to the lock would be missing in the image."""
    import tomllib

    project = tomllib.loads((IMAGE.parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = {"agent": ("agent", "kafka"), "full": ("agent", "control", "detect", "kafka", "operator", "sign")}
    for target, names in asked.items():
        lines = [*project["dependencies"], *(line for name in names for line in _resolved(extras, name))]
        wanted = {_plain(re.match("[A-Za-z0-9_.-]+", line)[0]) for line in lines}
        locked = set(
            re.findall("^([a-z0-9-]+)==", (IMAGE / f"requirements-{target}.txt").read_text(), re.MULTILINE)
        )
        assert wanted <= locked, f"{target}: run deploy/image/lock.sh {target}"


def _resolved(extras, name):
    for line in extras.get(name, ()):
        inner = re.match(r"paritas\[([a-z,]+)\]", line)
        yield from (
            (more for extra in inner[1].split(",") for more in _resolved(extras, extra)) if inner else (line,)
        )


def test_the_agent_image_can_be_an_agent_and_nothing_else():
    code = (
        "import sys, paritas.agent.agent, paritas.commands.agent_config, paritas.agent.eventlog.kafka_log\n"
    )
    code += "print([n for n in ('torch', 'river', 'aiohttp', 'scipy', 'paritas.controller', 'paritas.detectors') if n in sys.modules])"
    image = containers_setup.image("agent")
    assert run_once(image, "-c", code, entrypoint="python") == (0, "[]\n", "")
    returned, _, errors = run_once(image, "control")
    hint = "  hint: pip install 'paritas[all]'"
    assert (returned, errors.splitlines()) == (
        64,
        ["[usage] this command needs the module 'grpc_reflection'", hint],
    )


def test_python_in_it_has_what_we_use():
    code = (
        "import ssl, sqlite3, socket, locale, os, uuid, lzma, bz2\n"
        "assert len(ssl.create_default_context().get_ca_certs()) > 100\n"
        "print(socket.getaddrinfo('localhost', 1)[0][4][0], locale.getencoding(), os.getuid(), os.getgid())"
    )
    returned, said, errors = run_once(containers_setup.image("full"), "-c", code, entrypoint="python")
    assert (returned, said) == (0, f"127.0.0.1 UTF-8 {USER} {USER}\n"), errors


@BOTH
def test_its_programs_find_every_library_they_are_linked_with(target):
    """Loads each extension module, as an import would when it is first used."""
    code = (
        "import pathlib, sys, ctypes\n"
        "for p in sorted(pathlib.Path('/').glob('usr/lib/python3*/lib-dynload/*.so')): ctypes.CDLL(p)\n"
        "import numpy, grpc, yaml, zstandard, crc32c, kafka\n"
        "from google.protobuf.internal.api_implementation import Type; print(Type())"
    )
    returned, said, errors = run_once(containers_setup.image(target), "-c", code, entrypoint="python")
    assert (returned, said) == (0, "upb\n"), errors
