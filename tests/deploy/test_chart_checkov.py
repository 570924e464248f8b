"""Checkov over renders with everything on: every finding is in a table that says why it is meant."""

import json
import subprocess

import pytest
from deploy.chart_cases import rendered_text
from deploy.parts import why_not
from deploy.tools_setup import tool

for part in ("helm", "tools"):
    if reason := why_not(part):
        pytest.skip(reason, allow_module_level=True)

SEEN = ("flink", "guaranteed", "operator", "own-secrets", "roster", "routing")
ANY = "any"
ARGUED = {
    "CKV_K8S_43": (
        "image.digest pins it; a chart cannot know the digest of an image that is built after it",
        {ANY},
    ),
    "CKV_K8S_15": (
        "a tag is one version for ever; IfNotPresent starts pods while the registry is away",
        {ANY},
    ),
    "CKV_K8S_9": (
        "only the controller has clients that must not be sent to it early; readiness of the others would only hide them",
        {"detect-dense", "detect-moe", "health", "operator", "roster", "topics"},
    ),
    "CKV_K8S_8": (
        "a Job and a test end by themselves; on Flink the job is watched by Flink",
        {"health", "topics"},
    ),
    "CKV_K8S_38": ("these ask the API server, with a role of one rule or three", {"operator", "roster"}),
    "CKV2_K8S_6": ("networkPolicy.enabled is off by default, and the test pod asks and is not asked", {ANY}),
}
IN_ONE_CASE = {
    ("flink", "CKV_K8S_8"): {"detect-dense"},
    ("routing", "CKV_K8S_38"): {"controller"},
}


def test_every_finding_is_meant(tmp_path):
    for case in SEEN:
        (tmp_path / f"{case}.yaml").write_text(rendered_text(case))
    words = (
        "--framework",
        "kubernetes",
        "--skip-download",
        "--compact",
        "--quiet",
        "--output",
        "json",
        "--directory",
        tmp_path,
    )
    done = subprocess.run([tool("checkov"), *words], capture_output=True, text=True, timeout=300, check=False)
    told = json.loads(done.stdout)
    found = {
        (check["file_path"].strip("/").removesuffix(".yaml"), check["check_id"], component(check["resource"]))
        for check in told["results"]["failed_checks"]
    }
    assert told["summary"]["passed"] > 1500, "a run that looks at nothing finds nothing"
    assert {f for f in found if not is_argued(*f)} == set()
    assert {check for _, check, _ in found} == set(ARGUED), "what is no longer found needs no reason"


def component(resource):
    return resource.rsplit(".", 1)[1].removeprefix("demo-paritas-")


def is_argued(case, check, name):
    _, allowed = ARGUED.get(check, ("", set()))
    return bool({ANY, name} & (allowed | IN_ONE_CASE.get((case, check), set())))
