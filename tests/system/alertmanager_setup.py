"""Builds Alertmanager and amtool from their Go module, once, and says what it does.

Both are kept in the cache folder (PARITAS_CACHE, else .cache) under alertmanager; a name holds the recipe, so that
another version is another program.

Run: python tests/system/alertmanager_setup.py
"""

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from part_setup import one_at_a_time, run_step, set_up, speaker

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute() / "alertmanager"
VERSION = "0.35.0"
MODULE = f"github.com/prometheus/alertmanager@v{VERSION}"
# The build takes in the pages of the web interface, which a module does not hold: npm would have to make them.
PAGES = ("ui/app/dist/elm/index.html", "ui/app/dist/mantine/index.html")
LINK = f"-s -w -X github.com/prometheus/common/version.Version={VERSION}"
RECIPE = hashlib.sha256(f"{MODULE}{PAGES}{LINK}".encode()).hexdigest()[:12]
ALERTMANAGER = CACHE / f"alertmanager-{VERSION}-{RECIPE}"
AMTOOL = CACHE / f"amtool-{VERSION}-{RECIPE}"
STEP_S = 1800

say = speaker("alertmanager")


def missing_tool():
    """Why they cannot be had here; None if they can."""
    if not _are_built() and shutil.which("go") is None:
        return f"needs Go 1.26 or newer to build Alertmanager {VERSION}"
    return None


def fetch():
    """Build both unless they are there; SetupError names the reason if that fails."""
    with one_at_a_time(CACHE / "lock"):
        if not _are_built():
            _build()


def _are_built():
    return AMTOOL.exists() and ALERTMANAGER.exists()


def _build():
    """Build in a copy of the module: in there its own list of exact versions holds, and the pages can be put."""
    say(f"building Alertmanager {VERSION} (2 minutes on two cores, 60 MB, once)")
    what, folder = f"Alertmanager {VERSION}", CACHE / "src"
    told = run_step(["go", "mod", "download", "-json", MODULE], what=what, limit_s=STEP_S, cwd=CACHE)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(json.loads(told)["Dir"], folder, copy_function=shutil.copyfile)
    for place in (folder, *folder.rglob("*/")):
        place.chmod(0o755)  # the folders of a module cannot be written to, and neither can their copies
    for page in PAGES:
        (folder / page).parent.mkdir(parents=True)
        (folder / page).write_text("Built for tests, without its pages.\n")
    for program in (ALERTMANAGER, AMTOOL):
        name = program.name.partition("-")[0]
        command = ["go", "build", "-buildvcs=false", "-ldflags", LINK, "-o", program.name, f"./cmd/{name}"]
        run_step(command, what=what, limit_s=STEP_S, cwd=folder)
        (folder / program.name).replace(program)
    shutil.rmtree(folder)


def main():
    return set_up(missing_tool, fetch, say=say, ready=lambda: f"{ALERTMANAGER} {AMTOOL}")


if __name__ == "__main__":
    sys.exit(main())
