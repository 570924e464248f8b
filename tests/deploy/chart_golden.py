"""The committed renders of the chart: objects in order of kind and name, secrets struck out.

Run: python tests/deploy/chart_golden.py   (writes them anew)
"""

import base64
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import yaml
from deploy.chart_cases import CASES, Object, rendered

GOLDEN = Path(__file__).parent / "golden"
BASE = "minimal"
ENDS = "paritas.dev/not-after"  # of the certificate that was made in this render
SHIPPED = ("PrometheusRule", "CustomResourceDefinition")  # held equal to their sources by another test


def golden_text(case: str) -> str:
    """What the golden file of a case holds: all of `minimal`, and what another case has that `minimal` has not."""
    objects = _ordered(case)
    known = [] if case == BASE else _ordered(BASE)
    same = [f"# as in {BASE}: {o['kind']} {o['metadata']['name']}\n" for o in objects if o in known]
    changed = [o for o in objects if o not in known]
    return "".join(same) + yaml.safe_dump_all(changed, sort_keys=False, width=110, explicit_start=True)


def golden_file(case: str) -> Path:
    """Where it is."""
    return GOLDEN / f"{case}.yaml"


def _ordered(case: str) -> list[Object]:
    objects = map(_without_chance, rendered(case))
    return sorted(
        objects, key=lambda o: [o["kind"], o["metadata"]["name"], o["metadata"].get("namespace", "")]
    )


def _without_chance(thing: Object) -> Object:
    if thing["kind"] == "Secret":
        data = {key: _struck(value) for key, value in thing["data"].items()}
        return thing | {"data": data, "metadata": _without_time(thing["metadata"])}
    if thing["kind"] in SHIPPED:
        return thing | {"spec": "as in files/"}
    if "-dashboard-" in thing["metadata"]["name"]:
        return thing | {"data": dict.fromkeys(thing["data"], "as in files/")}
    return thing


def _without_time(metadata: Object) -> Object:
    marks = metadata.get("annotations", {})
    return metadata | {"annotations": marks | {ENDS: "a Unix time"}} if ENDS in marks else metadata


def _struck(value: str) -> str:
    return f"{len(base64.b64decode(value)) // 100}00 bytes or more"


def main() -> int:
    """Write all of them, and take away what no case makes."""
    GOLDEN.mkdir(exist_ok=True)
    for file in set(GOLDEN.glob("*.yaml")) - {golden_file(case) for case in CASES}:
        file.unlink()
    for case in CASES:
        golden_file(case).write_text(golden_text(case))
    return 0


if __name__ == "__main__":
    sys.exit(main())
