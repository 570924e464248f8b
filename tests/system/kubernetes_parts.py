"""Gets a Kubernetes API server (built from its Go module) and etcd (Debian's package), once, and says what it does.

Both are kept in the cache folder (PARITAS_CACHE, else .cache) under kubernetes; a program takes its name when it is
whole, and its name holds its recipe, so that another version is another program.

Run: python tests/system/kubernetes_parts.py
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from part_setup import SetupError, last_said, one_at_a_time, set_up, speaker, too_late

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute() / "kubernetes"
VERSION = "1.37.2"
COMMAND = "k8s.io/kubernetes/cmd/kube-apiserver"
STAMP = (
    "k8s.io/component-base/version.git"  # the release stamps its version at the link, and Helm asks for it
)
LINK = " ".join(
    f"-X {STAMP}{name}={value}"
    for name, value in zip(
        ("Version", "Major", "Minor"), (f"v{VERSION}", *VERSION.split(".")[:2]), strict=True
    )
)
MODULE = f"module paritas.dev/kubernetes\n\ngo 1.26\n\nrequire k8s.io/kubernetes v{VERSION}\n"
MAIN = f'package main\n\nimport _ "{COMMAND}/app"\n\nfunc main() {{}}\n'
RECIPE = hashlib.sha256(f"{MODULE}{MAIN}{LINK}".encode()).hexdigest()[:12]
API_SERVER = CACHE / f"kube-apiserver-{VERSION}-{RECIPE}"
ETCD = CACHE / "etcd"
STEP_S = 1800

say = speaker("kubernetes")


def missing_tool():
    """Why they cannot be had here; None if they can."""
    if not API_SERVER.exists() and shutil.which("go") is None:
        return f"needs Go 1.26 or newer to build the Kubernetes API server {VERSION}"
    if not _has_etcd() and not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return "needs etcd on PATH, or Debian's apt-get and dpkg-deb to unpack its package"
    return None


def etcd():
    """The program `etcd`: the one on PATH, else the one in the cache."""
    return Path(shutil.which("etcd") or ETCD)


def fetch():
    """Unpack etcd and build the API server unless they are there; SetupError names the reason if that fails."""
    with one_at_a_time(CACHE / "lock"):
        if not _has_etcd():
            _unpack_etcd()
        if not API_SERVER.exists():
            _build_api_server()


def _has_etcd():
    return ETCD.exists() or shutil.which("etcd") is not None


def _unpack_etcd():
    """Take the program out of Debian's package; nothing is installed, so it needs no root."""
    say(f"unpacking Debian's etcd-server into {CACHE} (8 MB, once)")
    folder = _empty("etcd.src")
    _run(["apt-get", "-q", "download", "etcd-server"], folder, "etcd-server (apt-get update first?)")
    (package,) = folder.glob("etcd-server_*.deb")
    _run(["dpkg-deb", "-x", package, folder], folder, "etcd-server")
    (folder / "usr/bin/etcd").replace(ETCD)
    shutil.rmtree(folder)


def _build_api_server():
    """Build in a module of its own: `go install …@version` refuses the replace directives of Kubernetes."""
    what = f"the Kubernetes API server {VERSION}"
    say(f"building {what} (4 to 6 minutes on two cores, 120 MB, once); its log is {CACHE / 'build.log'}")
    (CACHE / "build.log").unlink(missing_ok=True)
    folder = _empty("apiserver.src")
    (folder / "main.go").write_text(MAIN)
    (folder / "go.mod").write_text(MODULE)
    asked = ["go", "list", "-mod=mod", "-m", "-f", "{{.GoMod}}", f"k8s.io/kubernetes@v{VERSION}"]
    go_mod = Path(_run(asked, folder, what).strip())
    (folder / "go.mod").write_text(MODULE + _replacements(go_mod.read_text()))
    _run(["go", "get", f"{COMMAND}@v{VERSION}"], folder, what)
    _run(["go", "build", "-ldflags", f"-s -w {LINK}", "-o", "kube-apiserver", COMMAND], folder, what)
    (folder / "kube-apiserver").replace(API_SERVER)
    shutil.rmtree(folder)


def _replacements(go_mod):
    """The parts of Kubernetes that its module takes from its own tree, at the version they are released as."""
    staged = sorted(set(re.findall(r"^\s+(k8s\.io/[a-z0-9-]+) v0\.0\.0(?:\s|$)", go_mod, re.MULTILINE)))
    return "".join(f"replace {name} => {name} v0.{VERSION.removeprefix('1.')}\n" for name in staged)


def _empty(name):
    folder = CACHE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _run(command, folder, what):
    """Run to the end and return its output; one error with the last lines it said if it fails."""
    with (CACHE / "build.log").open("a+") as log:
        try:
            done = subprocess.run(
                command, cwd=folder, check=True, timeout=STEP_S, stdout=subprocess.PIPE, stderr=log, text=True
            )
        except subprocess.TimeoutExpired as error:
            raise SetupError(too_late(what, STEP_S)) from error
        except subprocess.CalledProcessError as error:
            log.seek(0)
            raise SetupError(
                f"{what} cannot be had: {last_said(log.read())} (all of it: {log.name})"
            ) from error
    return done.stdout


def main():
    return set_up(missing_tool, fetch, say=say, ready=lambda: f"{API_SERVER} {etcd()}")


if __name__ == "__main__":
    sys.exit(main())
