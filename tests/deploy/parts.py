"""Fetches and builds what the tests of deploy/ need, once, and says what it does.

A part that cannot be had here is named with the reason, and its tests are skipped with the same reason.

Run: python tests/deploy/parts.py [tools] [grafana] [helm] [definitions] [argo] [containers]
"""

import importlib
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import part_setup
from part_setup import SetupError

__all__ = ["main", "why_not"]

# Each module has missing_tool() -> reason or None, and fetch(), which may raise SetupError.
PARTS: Mapping[str, str] = {
    "tools": "deploy.tools_setup",
    "grafana": "deploy.grafana_setup",
    "helm": "deploy.helm_setup",
    "definitions": "deploy.crds_of_others",
    "argo": "deploy.argo_setup",
    "containers": "deploy.containers_setup",
}


@cache
def why_not(name: str) -> str | None:
    """Get a part; return why it cannot be had here, or None."""
    part = importlib.import_module(PARTS[name])
    errors = (SetupError, subprocess.CalledProcessError, OSError)  # a cache that cannot be written, too
    return part_setup.why_not(part.missing_tool, part.fetch, errors=errors)


def main(names: list[str]) -> int:
    """Get every named part that can be had; return 0, or 2 for a name that is none."""
    return part_setup.set_up_all(names, why_not, known=PARTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
