"""Builds a checker of dashboards, once: Grafana's own model of a dashboard, strict about every field.

Grafana itself cannot be had as a package; its foundation SDK is a Go module.

Run: python tests/deploy/grafana_setup.py
"""

import hashlib
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from part_setup import one_at_a_time, run_step, set_up, speaker

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "grafana_schema"
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute() / "deploy"
FILES = tuple(SOURCE / name for name in ("go.mod", "go.sum", "main.go"))
RECIPE = hashlib.sha256(b"".join(path.read_bytes() for path in FILES)).hexdigest()[:12]
CHECKER = CACHE / f"grafana-schema-{RECIPE}"
STEP_S = 600

say = speaker("grafana")


def missing_tool():
    """Why it cannot be had here; None if it can."""
    if CHECKER.exists() or shutil.which("go"):
        return None
    return "needs Go 1.24 or newer to build the checker of dashboards"


def fetch():
    """Build it unless it is there; SetupError names the reason if that fails."""
    with one_at_a_time(CACHE / "grafana.lock"):
        if CHECKER.exists():
            return
        say("building the checker of dashboards (a minute on two cores, once)")
        part = CHECKER.with_suffix(".part")
        build = ["go", "build", "-trimpath", "-o", part, "."]
        run_step(build, what="the checker of dashboards", limit_s=STEP_S, cwd=SOURCE)
        part.replace(CHECKER)


def main():
    return set_up(missing_tool, fetch, say=say, ready=lambda: CHECKER)


if __name__ == "__main__":
    sys.exit(main())
