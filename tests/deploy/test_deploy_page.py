"""The first steps of docs/deploy.md, done as they stand: the contract is written, and the chart takes every flag."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from deploy.helm_setup import CHART, ROOT, helm
from deploy.parts import why_not

from paritas.contracts.load import load_text

PAGE = (ROOT / "docs" / "deploy.md").read_text()
STEP = next(block for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "helm install" in block)
COMMANDS = STEP.replace("\\\n", "").splitlines()


@pytest.fixture
def contract(tmp_path):
    """The file that the commands before the cluster's write."""
    ours = [line for line in COMMANDS if line.startswith(("paritas ", "printf "))]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", "\n".join(ours)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "dense.yaml"


def test_the_contract_is_valid_and_misses_an_agent_that_is_silent(contract):
    made = load_text(contract.read_text(), "dense.yaml")
    assert made.name == "dense"
    assert made.clause("agents").at_most == 120.0


def test_the_chart_takes_every_flag_and_makes_what_the_page_names(contract):
    if reason := why_not("helm"):
        pytest.skip(reason)
    (command,) = (shlex.split(line) for line in COMMANDS if line.startswith("helm install"))
    name, chart, *flags = command[2:]
    assert ROOT / chart == CHART
    flags = [flag.replace("dense.yaml", str(contract)) for flag in flags]
    told = helm("template", name, CHART, *flags, "--kube-version", "1.36")
    made = {(o["kind"], o["metadata"]["name"]) for o in yaml.safe_load_all(told) if o}
    pods = re.findall(r"kubectl -n paritas exec (\S+)-0 ", PAGE)
    jobs = re.findall(r"logs job/([\w-]+)", PAGE)
    assert {("StatefulSet", pod) for pod in pods} | {("Job", job) for job in jobs} <= made
    assert (pods, jobs) == (["paritas-controller"], ["paritas-topics"])
    assert {("Deployment", "paritas-roster"), ("MutatingAdmissionPolicy", "paritas-sidecar")} <= made


def test_the_sizes_are_those_that_the_chart_asks_for(contract):
    if reason := why_not("helm"):
        pytest.skip(reason)
    (command,) = (shlex.split(line) for line in COMMANDS if line.startswith("helm install"))
    flags = [flag.replace("dense.yaml", str(contract)) for flag in command[4:]]
    told = helm("template", "paritas", CHART, *flags, "--kube-version", "1.36")
    asked = {
        o["metadata"]["labels"]["app.kubernetes.io/component"]: o["spec"]["template"]["spec"]["containers"][0]
        for o in yaml.safe_load_all(told)
        if o and o["kind"] in {"StatefulSet", "Deployment"}
    }
    for row, component in (("controller", "controller"), ("detector", "detectors"), ("roster", "roster")):
        size = asked[component]["resources"]
        shown = f"| {row} | {size['requests']['cpu']}, {size['limits']['cpu']}, {size['limits']['memory']} |"
        assert shown in PAGE
