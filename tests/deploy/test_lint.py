"""Linters over deploy/: yamllint, hadolint and checkov on the images' file, JSON that parses, shell that bash reads."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from deploy.parts import why_not
from deploy.tools_setup import tool

pytestmark = pytest.mark.skipif(bool(why_not("tools")), reason=str(why_not("tools")))

DEPLOY = Path(__file__).parents[2] / "deploy"
IMAGE = DEPLOY / "image" / "Containerfile"
STYLE = Path(__file__).with_name("yamllint.yaml")
# What checkov finds and we mean.
ARGUED = {"CKV_DOCKER_7": "it does not look through ARG: the base is pinned there, which the next test holds"}
# Templates of the chart are no YAML before they are rendered; tests of the chart look at what they render to.
YAML = [p for kind in ("*.yaml", "*.yml") for p in sorted(DEPLOY.rglob(kind)) if "templates" not in p.parts]


def run(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=300)


def test_yaml_is_in_style():
    done = run(tool("yamllint"), "--strict", "-c", STYLE, *YAML)
    assert (done.returncode, done.stdout) == (0, "")


def test_yamllint_sees_a_word_that_yaml_takes_for_a_truth_value(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("words: [no, red]\n")
    assert "truthy value should be one of [false, true]" in run(tool("yamllint"), "-c", STYLE, wrong).stdout


def test_json_parses():
    for path in sorted(DEPLOY.rglob("*.json")):
        json.loads(path.read_text())


def test_hadolint_has_nothing_to_say_of_the_images():
    done = run(tool("hadolint"), "--no-color", IMAGE)
    assert (done.returncode, done.stdout) == (0, "")


def test_checkov_has_nothing_to_say_of_the_images(tmp_path):
    shutil.copy(IMAGE, tmp_path / "Dockerfile")  # it knows files by this name
    words = ("--framework", "dockerfile", "--skip-download", "--output", "json", "--file")
    done = run(tool("checkov"), *words, tmp_path / "Dockerfile")
    told = json.loads(done.stdout)["results"]
    assert {check["check_id"] for check in told["failed_checks"]} == set(ARGUED)
    assert len(told["passed_checks"]) >= 5, "checkov looked at nothing"


def test_every_base_is_pinned():
    bases = re.findall(r"^ARG \w*BASE=(.+)$", IMAGE.read_text(), re.MULTILINE)
    assert bases
    assert all(re.fullmatch(r"[a-z.]+/[a-z/-]+:[\w.-]+@sha256:[0-9a-f]{64}", base) for base in bases)


def test_bash_reads_every_script():
    for path in sorted(DEPLOY.rglob("*.sh")):
        done = run("bash", "-n", path)
        assert (done.returncode, done.stderr) == (0, ""), path
