"""Links between the pages, and to files of the repository, lead somewhere."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages():
    """Every Markdown file that git knows."""
    command = ["git", "ls-files", "--cached", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if (ROOT / name).is_file()]


def anchors(page):
    """Anchors as the forges make them: lower case, punctuation out, spaces to dashes."""
    titles = HEADING.findall(FENCE.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", pages())
def test_links_lead_somewhere(name):
    page = ROOT / name
    text = FENCE.sub("", page.read_text("utf-8"))
    for link in LINK.findall(text):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name}: {link}"
        assert not anchor or anchor in anchors(target), f"{name}: {link}"


@pytest.mark.parametrize("name", pages())
def test_no_page_leaves_something_for_later(name):
    text = (ROOT / name).read_text("utf-8")
    assert not re.search(r"\b(TODO|TBD|FIXME|XXX)\b|lorem ipsum", text), name


@pytest.mark.parametrize("path", sorted((ROOT / "changelog.d").glob("*")), ids=lambda path: path.name)
def test_changelog_fragments_are_named_and_say_something(path):
    if path.name != "README.md":
        assert re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed|removed|security)\.md", path.name)
        assert path.read_text("utf-8").strip()


ROOMS = ("agent", "collectors", "contracts", "controller", "detectors", "proto")
NAMED = re.compile(r"`([\w./{}*-]+)`")


@pytest.mark.parametrize("room", ROOMS)
def test_room_pages_name_files_that_are_there(room):
    page = ROOT / room / "README.md"
    assert 10 <= len(page.read_text("utf-8").splitlines()) <= 30
    for name in NAMED.findall(page.read_text("utf-8")):
        if name.endswith((".py", ".proto", ".sh", ".txt", ".yaml", "/")) and name != "__init__.py":
            assert list((ROOT / room).glob(name)), f"{room}: {name}"
