"""Write the generated parts of the pages: tables from code, and what the shown commands print.

    python docs/generate.py            # write
    python docs/generate.py --check    # say which pages are out of date, exit 1 if any

A page holds generated text in two places:

- between ``<!-- generated: NAME -->`` and ``<!-- end -->``: the table `tables.TABLES[NAME]`;
- in a ``text`` block right after a ``sh run`` block: what these commands print, run with bash
  from a copy of the repository's root, so that nothing they write stays.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tables import TABLES

__all__ = ["main", "regenerated"]

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
SHOWN = re.compile(r"(```sh run\n(?P<commands>.*?)```\n\n```text\n).*?(```\n)", re.DOTALL)
WIDTH = "100"  # columns of the terminal that the shown output was made for
DEADLINE_S = 60


def regenerated(text: str) -> str:
    """Return a page with its generated parts made anew."""
    return SHOWN.sub(_with_output, MARKED.sub(_with_table, text))


def _with_table(found: re.Match[str]) -> str:
    table = TABLES[found["name"]]()
    return f"{found[1]}\n{table}\n\n{found[3]}" if table else found[0]


def _with_output(found: re.Match[str]) -> str:
    return found[1] + printed(found["commands"]) + found[3]


def printed(commands: str) -> str:
    """Return what a shell prints for `commands`, standard error included, without trailing blanks."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    with tempfile.TemporaryDirectory(prefix="paritas-docs-") as folder:
        for entry in ROOT.iterdir():
            if not entry.name.startswith("."):
                (Path(folder) / entry.name).symlink_to(entry)
        done = subprocess.run(  # noqa: S603  # the commands stand in our own pages
            ["bash", "-c", commands],  # noqa: S607
            cwd=folder,
            env={"PATH": path, "COLUMNS": WIDTH, "HOME": folder, "LC_ALL": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
            text=True,
            check=False,
        )
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def main(arguments: Sequence[str]) -> int:
    """Write or check the named pages, all of this folder if none is named."""
    parser = argparse.ArgumentParser(description="Write the generated parts of the pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    parser.add_argument("pages", nargs="*", type=Path, help="pages (default: all)")
    told = parser.parse_args(arguments)
    stale = [
        page
        for page in told.pages or sorted(Path(__file__).parent.glob("*.md"))
        if _is_stale(page, told.check)
    ]
    for page in stale:
        sys.stdout.write(
            f"{page.name}: {'out of date: python docs/generate.py' if told.check else 'written'}\n"
        )
    return int(told.check and bool(stale))


def _is_stale(page: Path, is_check: bool) -> bool:
    """Make one page anew; return whether it differed."""
    before = page.read_text("utf-8")
    after = regenerated(before)
    if after != before and not is_check:
        page.write_text(after, "utf-8")
    return after != before


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
