"""Copies into the chart what it ships of other folders: Helm packs what is below the chart, and follows no link out of it.

Run: python tests/deploy/chart_files.py   (copies them anew)
"""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from deploy.helm_setup import CHART, ROOT

COPIES = {
    CHART / "files/crd": (ROOT / "deploy/crd", "kernelcontracts.yaml"),
    CHART / "files/rules": (ROOT / "deploy/prometheus/rules", "*.yaml"),
    CHART / "files/dashboards": (ROOT / "deploy/grafana/dashboards", "*.json"),
}


def held() -> dict[str, bytes]:
    """What the chart holds, by path in it."""
    return {str(f.relative_to(CHART)): f.read_bytes() for folder in COPIES for f in sorted(folder.glob("*"))}


def meant() -> dict[str, bytes]:
    """What it is meant to hold."""
    return {
        str((folder / file.name).relative_to(CHART)): file.read_bytes()
        for folder, (source, pattern) in COPIES.items()
        for file in sorted(source.glob(pattern))
    }


def main() -> int:
    """Make the chart's copies equal."""
    for folder in COPIES:
        shutil.rmtree(folder, ignore_errors=True)
    for name, content in meant().items():
        (CHART / name).parent.mkdir(parents=True, exist_ok=True)
        (CHART / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
