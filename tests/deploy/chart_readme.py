"""The table of values in the chart's README, from the comments of values.yaml that start with ``# --``.

Run: python tests/deploy/chart_readme.py   (writes it anew)
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import yaml
from deploy.helm_setup import CHART

README = CHART / "README.md"
BEGIN, END = "<!-- generated: values -->", "<!-- end -->"
LINE = re.compile(r"^( *)([A-Za-z0-9_]+):")


def described() -> Iterator[tuple[str, str]]:
    """Each documented value with its description."""
    path: list[tuple[int, str]] = []
    said = ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        if line.lstrip().startswith("# -- "):
            said = line.lstrip().removeprefix("# -- ")
        elif found := LINE.match(line):
            depth = len(found[1])
            path = [*(p for p in path if p[0] < depth), (depth, found[2])]
            if said:
                yield ".".join(key for _, key in path), said
            said = ""


def table() -> str:
    """The table in Markdown."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for name, meaning in described():
        default = values
        for key in name.split("."):
            default = default[key]
        cells = (f"`{name}`", f"`{json.dumps(default)}`", meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def readme() -> str:
    """The README with the table as it is now."""
    head, rest = README.read_text().split(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END, 1)[1]}"


def main() -> int:
    """Write the README."""
    README.write_text(readme())
    return 0


if __name__ == "__main__":
    sys.exit(main())
