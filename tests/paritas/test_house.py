"""The rules of the house that a machine can check: imports, packaging, public names."""

import ast
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agent", "collectors", "contracts", "controller", "detectors", "proto")
# architecture.md 2, last column; `wire` is the part of `paritas` that reads the generated code.
MAY_IMPORT = {
    "paritas": {"paritas"},
    "wire": {"paritas", "proto"},
    "contracts": {"paritas"},
    "collectors": {"paritas"},
    "agent": {"paritas", "proto"},
    "detectors": {"paritas", "contracts"},
    "controller": {"paritas", "contracts", "proto"},
}
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")


def sources(room):
    """Python files of a room; the composition root (cli, client, commands) may import everything."""
    folder = {"paritas": ROOT / "src/paritas", "wire": ROOT / "src/paritas/wire"}.get(room, ROOT / room)
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder).parts
        composed = room == "paritas" and inside[0] in (*ROOMS, "commands", "cli.py", "client.py", "wire")
        if not composed and not GENERATED.search(path.name):
            yield path


def room_of(module):
    """Room of an absolute module name of ours, or None."""
    parts = module.split(".")
    if parts[0] != "paritas":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "paritas"


def imported(path):
    """Absolute names a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from ((name, node.lineno) for name in names)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_import_only_what_they_may(room):
    allowed = MAY_IMPORT[room] | {room}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources(room)
        for name, line in imported(path)
        if (target := room_of(name)) is not None and target not in allowed
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "module",
    [
        "paritas",
        "paritas.collectors",
        "paritas.collectors.dumps",
        "paritas.collectors.emitter",
        "paritas.collectors.openai",
        "paritas.wire",
    ],
)
def test_what_enters_a_trainer_is_light(module):
    heavy = {"torch", "grpc", "kafka", "river", "scipy", "pandas", "yaml", "rich", "asyncio"}
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert heavy & set(run.stdout.split()) == set()


def test_the_command_starts_without_heavy_imports():
    code = "import sys; from paritas.cli import parser; parser(); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"torch", "grpc", "river", "scipy", "rich"} & set(run.stdout.split()) == set()


def public_modules():
    for room in ("paritas", *MAY_IMPORT):
        yield from sources(room)
    yield from sorted((ROOT / "src/paritas/commands").glob("*.py"))


def test_public_names_are_sorted_and_real():
    for path in public_modules():
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                names = ast.literal_eval(node.value)
                assert sorted(names) == sorted(set(names)), path
                assert names == sorted(names, key=sort_key), f"{path}: __all__ is not sorted"


def sort_key(name):
    """Constants first, then classes, then functions, as the linter sorts."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return (kind, name)


def test_proto_never_becomes_a_package():
    """A proto/__init__.py would shadow the `proto` of proto-plus for whoever runs Python here."""
    assert not (ROOT / "proto/__init__.py").exists()


def test_the_wheel_built_from_the_sdist_holds_the_whole_tree(tmp_path):
    """hatchling drops linked folders from an sdist unless told otherwise (style 3.1)."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    run = subprocess.run(build, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(sdist) as archive:
        in_sdist = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    tree = set(shipped())
    assert {f"src/{name}" for name in tree} - in_sdist == set()
    assert tree - in_wheel == set()


def shipped():
    """Every file of the package as it must stand in the wheel."""
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *ROOMS, "src/paritas"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in tracked:
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            yield name.removeprefix("src/") if name.startswith("src/") else f"paritas/{name}"


def test_no_machine_path_is_committed():
    """A path of the machine it was written on helps nobody and says too much."""
    pattern = re.compile(r"(?<![\w.])/(work|root|farm)/")
    texts = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    here = Path(__file__).name
    found = [
        name
        for name in texts
        if (ROOT / name).is_file()
        and Path(name).name != here
        and pattern.search((ROOT / name).read_text(errors="ignore"))
    ]
    assert found == []
