"""Copies what the programs of an image need into an empty folder: Python, its libraries, certificates; nothing else.

The folder becomes the whole image, so there is no shell in it, no package manager, no pip, no compiler and nothing
setuid. What Debian's packages gave to it is listed for the SBOM.

Run in the build stage, on the base: python3 assemble.py VENV ROOT
"""
# ruff: noqa: S603, S607 -- a program of the build stage; what it runs is Debian's own, found on its PATH

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

USER = 65532
# Parts of the standard library that only a person at a keyboard, an installer or Python's own tests use.
LEFT_OUT = {"ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo", "site-packages"}
LEFT_OUT |= {"dist-packages", "__pycache__", "EXTERNALLY-MANAGED", "turtle.py"}
# Opened by name while a program runs; the linker knows nothing of them.
OPENED_BY_NAME = ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
CONFIGURATION = ("etc/ssl/certs", "etc/ssl/openssl.cnf", "etc/nsswitch.conf", "etc/debian_version")
CONFIGURATION += ("etc/os-release", "usr/lib/os-release", "etc/host.conf", "etc/gai.conf", "etc/ld.so.conf")
CONFIGURATION += (
    "etc/ld.so.conf.d",
    "etc/ld.so.cache",
    "usr/lib/ssl",
    "usr/share/ca-certificates",
    "usr/lib/locale/C.utf8",
)
# Debian's interpreter has links here; a copy with links kept as links needs them all.
TOP_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
EMPTY = (
    "etc/paritas",
    "var/lib/paritas/spool",
    "var/lib/paritas/log",
    "run/paritas",
    "tmp",
    "proc",
    "sys",
    "dev",
)
OWNED = ("var/lib/paritas", "var/lib/paritas/spool", "var/lib/paritas/log", "run/paritas")
PASSWD = (
    f"root:x:0:0:root:/root:/sbin/nologin\nparitas:x:{USER}:{USER}:paritas:/var/lib/paritas:/sbin/nologin\n"
)
GROUP = f"root:x:0:\nparitas:x:{USER}:\n"


def main(venv: Path, root: Path) -> None:
    """Fill ROOT."""
    for name in TOP_LINKS:
        if (link := Path("/") / name).is_symlink():
            (root / name).symlink_to(link.readlink())
            (root / name).resolve().mkdir(parents=True, exist_ok=True)
    _copy_python(root)
    _copy(venv, root)
    for path in _libraries(root):
        _copy_file(path, root)
    for name in CONFIGURATION:
        if (path := Path("/") / name).exists():
            _copy(path, root)
    _make_folders(root)
    _write_packages(root)


def _copy_python(root: Path) -> None:
    """The interpreter of this process with its standard library, both where they are here."""
    program = Path(sys.executable)
    for path in (program, program.resolve()):
        _copy_file(path, root)
    library = Path(sysconfig.get_path("stdlib"))
    _copy(library, root)
    if (own := Path("/etc/python3.11")).is_dir():  # Debian's sitecustomize.py is a link there
        _copy(own, root)


def _copy(source: Path, root: Path) -> None:
    """Copy a file or a folder to the same place below ROOT, links as links."""
    if source.is_dir() and not source.is_symlink():
        kept = shutil.ignore_patterns(*LEFT_OUT, "*.a", "config-3*") if "python3" in source.name else None
        shutil.copytree(source, _placed(source, root), symlinks=True, ignore=kept, dirs_exist_ok=True)
    else:
        _copy_file(source, root)


def _copy_file(source: Path, root: Path) -> None:
    """Copy one file, and what it points to if it is a link."""
    place = _placed(source, root)
    place.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(place):
        shutil.copy2(source, place, follow_symlinks=False)
    if source.is_symlink():
        _copy(source.parent.resolve() / source.readlink(), root)


def _placed(source: Path, root: Path) -> Path:
    """Where it goes; `/lib/x` and `/usr/lib/x` are one place."""
    return root / source.parent.resolve().relative_to("/") / source.name


def _libraries(root: Path) -> Iterator[Path]:
    """Shared libraries of this machine that programs below ROOT are linked with, and those opened by name."""
    programs = [
        path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and _is_elf(path)
    ]
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    found = {
        word
        for line in told.splitlines()
        for word in line.split()
        if word.startswith("/") and ":" not in word
    }
    cached = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found |= {
        line.split(" => ")[1]
        for line in cached.splitlines()
        if line.split()[:1] and line.split()[0] in OPENED_BY_NAME
    }
    yield from (Path(name) for name in sorted(found) if not name.startswith(f"{root}/"))


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _make_folders(root: Path) -> None:
    """Folders that volumes are mounted on; a named volume takes its owner and mode from here."""
    for name in EMPTY:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name in OWNED:
        os.chown(root / name, USER, USER)
        (root / name).chmod(0o750)
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text(GROUP)
    for path in root.rglob("*"):  # nothing setuid, nothing that everybody may write but /tmp
        if not path.is_symlink() and path != root / "tmp":
            path.chmod(path.stat().st_mode & 0o1755)


def _write_packages(root: Path) -> None:
    """List Debian's packages that files came from, for the SBOM."""
    files = [f"/{path.relative_to(root)}" for path in root.rglob("*") if not path.is_dir()]
    files += [
        name.removeprefix("/usr") for name in files if name.startswith("/usr/lib")
    ]  # as dpkg knows some
    told = subprocess.run(["dpkg", "-S", *files], capture_output=True, text=True, check=False).stdout
    owners = [line.rpartition(": ")[0] for line in told.splitlines() if not line.startswith("diversion ")]
    names = {name for owner in owners for name in owner.split(", ") if name}
    form = "${Package}\t${Version}\t${Architecture}\n"
    shown = subprocess.run(
        ["dpkg-query", "-W", f"-f={form}", *sorted(names)], stdout=subprocess.PIPE, check=True
    )
    (root.parent / "debian.tsv").write_bytes(shown.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
