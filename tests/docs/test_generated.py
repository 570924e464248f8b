"""Generated tables and shown output are what the code and the commands give today."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dump_lines import shared_data

from paritas.commands.agent_config import load_agent_config
from paritas.commands.notify_file import read_plan
from paritas.contracts.lint import Lint
from paritas.contracts.load import load_text
from paritas.detectors.diagnosis import Cause
from paritas.records import PairReason, Phase, Reason, State, TokenStatus

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def check(*arguments, **environment):
    """Run the generator; returns (exit code, what it said)."""
    command = [sys.executable, str(DOCS / "generate.py"), *map(str, arguments)]
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout


def generates(page):
    text = page.read_text("utf-8")
    return "<!-- generated:" in text or "```sh run" in text


@pytest.mark.parametrize("page", [page for page in PAGES if generates(page)], ids=lambda page: page.stem)
def test_generated_parts_are_up_to_date(page):
    assert check("--check", page) == (0, "")


def test_the_table_of_the_full_recordings_is_up_to_date():
    assert check("--check", DOCS / "diagnosis.md", PARITAS_SHARED_DATA=str(shared_data())) == (0, "")


def test_a_stale_page_is_named_and_mended(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- generated: headers -->\nold\n<!-- end -->\n\n```sh run\necho new | head -1\n```\n\n```text\nold\n```\n"
    )
    assert check("--check", page) == (1, "page.md: out of date: python docs/generate.py\n")
    assert check(page) == (0, "page.md: written\n")
    assert "old" not in page.read_text()
    assert "```text\nnew\n```" in page.read_text()
    assert check("--check", page) == (0, "")


# Their blocks are files of another kind: read below, or in the tests of that file.
OTHER_FILES = {"agent", "deploy", "notifications", "operator", "routing"}


def test_the_receivers_shown_load(tmp_path):
    (shown,) = YAML.findall((DOCS / "notifications.md").read_text("utf-8"))
    (tmp_path / "slack-url").write_text("https://hooks.example/T0")
    plan = read_plan(shown.replace("/run/secrets", str(tmp_path)).encode(), "notify.yaml")
    assert [receiver.name for receiver in plan.receivers] == ["team", "pager", "alertmanager"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_contract_and_every_fragment_loads(page):
    for number, text in enumerate(YAML.findall(page.read_text("utf-8"))):
        if page.stem not in OTHER_FILES:
            load_text(text if "apiVersion" in text else wrapped(text), f"{page.name} block {number + 1}")


def test_the_configurations_shown_of_the_agent_load(tmp_path):
    smallest, kafka = YAML.findall((ROOT / "docs/agent.md").read_text("utf-8"))
    path, password = tmp_path / "agent.yaml", tmp_path / "password"
    path.write_text(smallest)
    assert load_agent_config(path).name == "pod-7"
    password.write_text("secret")
    before, _, _ = smallest.partition("destination:")
    path.write_text(before + kafka.replace("/run/secrets/kafka-password", str(password)))
    assert load_agent_config(path).target.sasl.username == "pod"


def wrapped(fragment):
    """A whole contract around a fragment of its spec."""
    spec = "".join(f"  {line}\n" for line in fragment.splitlines())
    assert isinstance(yaml.safe_load(fragment), dict)
    return f"apiVersion: paritas.dev/v1\nkind: KernelContract\nmetadata: {{name: a, version: 1.0.0}}\nspec:\n{spec}"


NAMES = [
    *((lint.value, "contract.md") for lint in Lint),
    *((f"### {cause.value}", "diagnosis.md") for cause in Cause),
    *((status.name.lower(), "guarantees.md") for status in TokenStatus),
    *((reason.value, "guarantees.md") for reason in PairReason),
    *((state.value, "first-steps.md") for state in State),
    *((reason.value, "first-steps.md") for reason in Reason if reason is not Reason.NOT_APPLICABLE),
    *((phase.value, "escalations.md") for phase in Phase),
]


@pytest.mark.parametrize(("name", "page"), NAMES, ids=str)
def test_every_name_a_user_meets_is_explained(name, page):
    assert name in (DOCS / page).read_text("utf-8")


def test_the_rosetta_table_has_an_entry_for_each_metric_and_no_other(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    told = runpy.run_path(str(DOCS / "tables_rosetta.py"))
    values = told["_values"]("healthy", "healthy")
    assert set(told["ENTRIES"]) == set(values)
