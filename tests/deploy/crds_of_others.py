"""Definitions of kinds that other projects own, out of what they publish, so that an API server judges what the chart makes.

The Prometheus operator's and cert-manager's are in their Go modules, the Flink operator's in its jar on Maven Central.
Kept under deploy/crds in the cache folder.

Run: python tests/deploy/crds_of_others.py
"""

import json
import shutil
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import yaml
from deploy.helm_setup import CACHE
from part_setup import one_at_a_time, run_step, set_up, speaker
from system import flink_setup

CRDS = CACHE / "crds"
MODULES = {
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
    "github.com/cert-manager/cert-manager@v1.18.2": ("deploy/crds/crd-certificates.yaml",),
}
FLINK = "org.apache.flink:flink-kubernetes-operator-api:1.10.0"
FLINK_JAR = flink_setup.CACHE / "maven" / "flink-kubernetes-operator-api-1.10.0.jar"
FLINK_SHA256 = "b1f44814e17514fa8395c61b329a3ee9087123a5bda5b21fe1a495d5182c30b6"
FLINK_CRD = "META-INF/fabric8/flinkdeployments.flink.apache.org-v1.yml"
NAMES = [*(Path(path).name for paths in MODULES.values() for path in paths), Path(FLINK_CRD).name]
STEP_S = 300

say = speaker("definitions")


def missing_tool():
    """Why they cannot be had here; None if they can."""
    missing = [tool for tool in ("go", "mvn") if shutil.which(tool) is None]
    if missing and not _are_there():
        return f"needs {' and '.join(missing)} to copy the definitions of the Prometheus, cert-manager and Flink operators"
    return None


def fetch():
    """Copy them unless they are there; SetupError names the reason if that fails."""
    with one_at_a_time(CRDS / "lock"):
        if not _are_there():
            say(
                "copying the definitions of the Prometheus, cert-manager and Flink operators (about a minute, once)"
            )
            for module, paths in MODULES.items():
                _from_module(module, paths)
            _from_jar()


def crds():
    """All of them.

    The newest jar of the Flink operator to be had at every mirror does not know the version of Flink that the chart
    asks for; a newer operator does, and nothing else of it is changed here.
    """
    found = [yaml.load((CRDS / name).read_text(), yaml.CSafeLoader) for name in NAMES]
    (flink,) = (crd for crd in found if crd["spec"]["names"]["kind"] == "FlinkDeployment")
    for crd in found:
        crd["metadata"].pop("labels", None)  # cert-manager's are of its own chart
    for version in flink["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["flinkVersion"][
            "enum"
        ].append("v2_2")
    return found


def _are_there():
    return all((CRDS / name).exists() for name in NAMES)


def _from_module(module, paths):
    """A module's folder, as Go keeps it."""
    told = run_step(
        ["go", "mod", "download", "-json", module],
        what=f"{module} (is the network up?)",
        limit_s=STEP_S,
        cwd=CRDS,
    )
    folder = Path(json.loads(told)["Dir"])
    for path in paths:
        shutil.copyfile(folder / path, CRDS / Path(path).name)


def _from_jar():
    flink_setup._fetch_jar(FLINK, FLINK_JAR, FLINK_SHA256)
    with zipfile.ZipFile(FLINK_JAR) as jar:
        (CRDS / Path(FLINK_CRD).name).write_bytes(jar.read(FLINK_CRD))


def main():
    return set_up(missing_tool, fetch, say=say, ready=lambda: CRDS)


if __name__ == "__main__":
    sys.exit(main())
