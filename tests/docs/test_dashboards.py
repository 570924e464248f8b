"""Dashboards and alerts ask for metrics that the code exports, and for all of them; nothing but Python is needed."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "grafana"
PAGES = "https://github.com/paritas-dev/paritas/blob/main/"


@pytest.fixture(scope="module")
def board_maker():
    """The script that writes the dashboards."""
    sys.path.insert(0, str(FOLDER))
    yield import_module("make_dashboards")
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def exported(board_maker):
    """Every metric the code exports, and how a query is read."""
    del board_maker
    return import_module("exported_metrics")


def panels(board_maker):
    boards = board_maker.boards()["boards"]
    return [panel for board in boards.values() for row in board["rows"] for panel in row["panels"]]


def rules():
    paths = sorted((ROOT / "deploy/prometheus/rules").glob("*.yaml"))
    groups = [group for path in paths for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def test_the_dashboards_are_up_to_date(board_maker):
    stale = [path.name for path, text in board_maker.dashboards() if path.read_text("utf-8") != text]
    assert stale == [], "python deploy/grafana/make_dashboards.py"
    made = {path for path, _ in board_maker.dashboards()}
    assert made == set((FOLDER / "dashboards").glob("*.json"))


def test_every_metric_of_a_panel_is_exported_and_every_exported_one_is_on_a_panel(board_maker, exported):
    asked = {
        name for p in panels(board_maker) for q in p["queries"] for name in exported.metrics_in(q["expr"])
    }
    known, left_off = set(exported.registry()), board_maker.boards()["left_off"]
    assert asked - known == exported.BASE
    assert known - asked == set(left_off)
    assert all(left_off.values()), "a metric is left off without a reason"


def test_every_metric_of_an_alert_is_exported(exported):
    known = set(exported.registry()) | exported.BASE
    for rule in rules():
        asked = set(exported.metrics_in(rule["expr"]))
        assert asked, rule["alert"]
        assert asked <= known, rule["alert"]


def test_every_panel_asks_a_question_and_says_what_its_numbers_mean(board_maker, exported):
    told = exported.registry()
    titles = [panel["title"] for panel in panels(board_maker)]
    assert len(set(titles)) == len(titles)
    for panel in panels(board_maker):
        assert panel["title"].endswith("?"), panel["title"]
        assert panel["unit"], panel["title"]
        assert board_maker.described(panel, told), panel["title"]


def test_every_page_that_is_linked_is_there(board_maker):
    boards = board_maker.boards()["boards"].values()
    pages = {board["page"] for board in boards} | {p["page"] for p in panels(board_maker) if "page" in p}
    urls = {PAGES + "docs/" + page for page in pages} | {
        rule["annotations"]["runbook_url"] for rule in rules()
    }
    for url in sorted(urls):
        page, _, anchor = url.removeprefix(PAGES).partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        assert not anchor or anchor in {anchor_of(heading) for heading in headings}, url


def anchor_of(heading):
    """As GitHub makes them of headings."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_a_query_is_read_for_its_metrics(exported):
    query = 'a_paritas_agent_no{x="paritas_agent_no"} + rate(paritas_agent_fsync_seconds_count[5m]) > up == 0'
    assert list(exported.metrics_in(query)) == ["paritas_agent_fsync_seconds", "up"]
