"""Builds Helm from its Go module, once, and renders the chart with it; kept under deploy in the cache folder.

Run: python tests/deploy/helm_setup.py
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from part_setup import one_at_a_time, run_step, set_up, speaker

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute() / "deploy"
VERSION = "3.22.0"
MODULE = f"helm.sh/helm/v3/cmd/helm@v{VERSION}"
LINK = f"-s -w -X helm.sh/helm/v3/internal/version.version=v{VERSION}"  # else it says v3.22 and no more
RECIPE = hashlib.sha256(f"{MODULE}{LINK}".encode()).hexdigest()[:12]
HELM = CACHE / f"helm-{VERSION}-{RECIPE}"
CHART = ROOT / "deploy/helm/paritas"
BUILD_S, RENDER_S = 900, 180  # Helm's own waits are shorter, and say for what

say = speaker("helm")


class HelmError(Exception):
    """Helm said no; the text is what it said."""


def missing_tool() -> str | None:
    """Why Helm cannot be had here; None if it can."""
    if not HELM.exists() and shutil.which("go") is None:
        return f"needs Go 1.25 or newer to build Helm {VERSION}"
    return None


def fetch() -> None:
    """Build Helm unless it is there; SetupError names the reason if that fails."""
    with one_at_a_time(CACHE / "helm.lock"):
        if not HELM.exists():
            _build()


def helm(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """Run Helm without any plugin, cache or cluster of the user's; return what it said, or raise `HelmError`."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home}
        environment |= {f"HELM_{kind}_HOME": f"{home}/{kind}" for kind in ("CACHE", "CONFIG", "DATA")}
        environment |= {"KUBECONFIG": str(kubeconfig or f"{home}/none")}
        done = subprocess.run(
            [HELM, *arguments], capture_output=True, text=True, timeout=RENDER_S, env=environment, check=False
        )
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise HelmError(said.removesuffix("Use --debug flag to render out invalid YAML").strip())
    return done.stdout


def render_text(
    values: Iterable[Path | Mapping[str, Any]] = (), kube: str = "1.33", *, namespace: str = "paritas"
) -> str:
    """Return the manifests of a release `demo`: each of `values` is a file or a mapping, and a later one wins."""
    with tempfile.TemporaryDirectory() as folder:
        options = [o for file in _files(values, Path(folder)) for o in ("--values", file)]
        where = ("--namespace", namespace, "--kube-version", kube)
        return helm("template", "demo", CHART, *options, *where)


def render(
    values: Iterable[Path | Mapping[str, Any]] = (), kube: str = "1.33", *, namespace: str = "paritas"
) -> list[dict[str, Any]]:
    """Return the objects that `render_text` writes, in its order."""
    return [thing for thing in yaml.safe_load_all(render_text(values, kube, namespace=namespace)) if thing]


def _files(values: Iterable[Path | Mapping[str, Any]], folder: Path) -> Iterable[Path]:
    for number, given in enumerate(values):
        if isinstance(given, Path):
            yield given
        else:
            file = folder / f"{number}.yaml"
            file.write_text(yaml.safe_dump(dict(given)))
            yield file


def _build() -> None:
    say(f"building Helm {VERSION} (about a minute on two cores, 75 MB, once)")
    folder = CACHE / "helm.src"
    shutil.rmtree(folder, ignore_errors=True)
    command = ["go", "install", "-ldflags", LINK, MODULE]
    environment = {**os.environ, "GOBIN": str(folder)}
    run_step(command, what=f"Helm {VERSION}", limit_s=BUILD_S, env=environment)
    (folder / "helm").replace(HELM)
    shutil.rmtree(folder)


def main() -> int:
    return set_up(missing_tool, fetch, say=say, ready=lambda: HELM)


if __name__ == "__main__":
    sys.exit(main())
