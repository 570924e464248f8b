"""Builds a checker of dashboards, once: Grafana's own model of a dashboard, strict about every field.

Grafana itself cannot be had as a package; its foundation SDK is a Go module.

Run: python tests/deploy/grafana_setup.py
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from system.flink_setup import SetupError

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "grafana_schema"
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute() / "deploy"
FILES = tuple(SOURCE / name for name in ("go.mod", "go.sum", "main.go"))
RECIPE = hashlib.sha256(b"".join(path.read_bytes() for path in FILES)).hexdigest()[:12]
CHECKER = CACHE / f"grafana-schema-{RECIPE}"
STEP_S = 600


def missing_tool():
    """Why it cannot be had here; None if it can."""
    if CHECKER.exists() or shutil.which("go"):
        return None
    return "needs Go 1.24 or newer to build the checker of dashboards"


def fetch():
    """Build it unless it is there; SetupError names the reason if that fails."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "grafana.lock").open("w") as lock:  # several test workers may come here together
        fcntl.flock(lock, fcntl.LOCK_EX)
        if CHECKER.exists():
            return
        sys.stderr.write("deploy: building the checker of dashboards (a minute on two cores, once)\n")
        part = CHECKER.with_suffix(".part")
        try:
            subprocess.run(
                ["go", "build", "-trimpath", "-o", part, "."],
                cwd=SOURCE,
                check=True,
                capture_output=True,
                text=True,
                timeout=STEP_S,
            )
        except subprocess.TimeoutExpired as error:
            raise SetupError(f"the checker of dashboards was not built within {STEP_S} s") from error
        except subprocess.CalledProcessError as error:
            last = " ".join(error.stderr.split()[-40:]) or "it said nothing"
            raise SetupError(f"the checker of dashboards cannot be built: {last}") from error
        part.replace(CHECKER)


def main():
    reason = missing_tool()
    try:
        if reason is None:
            fetch()
    except SetupError as error:
        reason = str(error)
    sys.stderr.write(f"grafana: {reason or f'ready: {CHECKER}'}\n")
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
