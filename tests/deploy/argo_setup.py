"""Builds what of Argo Rollouts makes an analysis run of a template and measures its web metric, once.

That is Argo's own code (`argo_metric/main.go` only calls it) and needs no cluster; kept under deploy in the cache folder.

Run: python tests/deploy/argo_setup.py
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from part_setup import one_at_a_time, run_step, set_up, speaker

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute() / "deploy"
SOURCE = Path(__file__).with_name("argo_metric") / "main.go"
# The newest that Go 1.26.1 builds; the next ones ask for a patch of Go that is not everywhere yet.
MODULE, VERSION = "github.com/argoproj/argo-rollouts", "1.10.1"
RECIPE = hashlib.sha256(f"{MODULE}{VERSION}".encode() + SOURCE.read_bytes()).hexdigest()[:12]
PROGRAM = CACHE / f"argo-metric-{VERSION}-{RECIPE}"
BUILD_S, MEASURE_S = 900, 60

say = speaker("argo")


def missing_tool():
    """Why it cannot be had here; None if it can."""
    if not PROGRAM.exists() and shutil.which("go") is None:
        return f"needs Go 1.26.1 or newer to build the metrics of Argo Rollouts {VERSION}"
    return None


def fetch():
    """Build it unless it is there; SetupError names the reason if that fails."""
    with one_at_a_time(CACHE / "argo.lock"):
        if not PROGRAM.exists():
            _build()


def measured(template, runs):
    """Measure once for each run, by name, of a template with these arguments; return phase, value and message of each."""
    arguments = {name: [_argument(*item) for item in given.items()] for name, given in runs.items()}
    question = json.dumps({"template": template, "runs": arguments})
    done = subprocess.run(
        [PROGRAM], input=question, capture_output=True, text=True, check=False, timeout=MEASURE_S
    )
    assert done.returncode == 0, done.stderr
    return {name: tuple(told.values()) for name, told in json.loads(done.stdout).items()}


def _argument(name, value):
    return {"name": name, "value": value}


def _build():
    """Build with the replacements of Argo's module, which only a main module can make."""
    say(f"building the metrics of Argo Rollouts {VERSION} (1 to 2 minutes on two cores, 35 MB, once)")
    what, folder = f"Argo Rollouts {VERSION}", CACHE / "argo.src"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    asked = ["go", "mod", "download", "-json", f"{MODULE}@v{VERSION}"]
    module = Path(json.loads(run_step(asked, what=what, limit_s=BUILD_S, cwd=folder))["Dir"])
    shutil.copyfile(module / "go.sum", folder / "go.sum")
    shutil.copyfile(SOURCE, folder / "main.go")
    (folder / "go.mod").write_text(_go_mod((module / "go.mod").read_text()))
    command = ["go", "build", "-mod=mod", "-ldflags", "-s -w", "-o", PROGRAM.name, "."]
    run_step(command, what=what, limit_s=BUILD_S, cwd=folder)
    (folder / PROGRAM.name).replace(PROGRAM)
    shutil.rmtree(folder)


def _go_mod(text):
    """Argo's own list of exact versions, for a module that takes Argo in."""
    name, _, rest = text.partition("\n")
    assert name.startswith("module "), name
    return f"module paritas.dev/argo\n{rest}\nrequire {MODULE} v{VERSION}\n"


def main():
    return set_up(missing_tool, fetch, say=say, ready=lambda: PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
