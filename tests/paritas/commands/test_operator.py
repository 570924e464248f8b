"""`paritas operator` and the verbs for a cluster, as a user starts them; the rest is tests/deploy/test_operator_live.py."""

import pytest
from command_runs import run

from paritas.contracts.load import load_preset, load_text
from paritas.controller.kubernetes.access import ACCOUNT

HERE = {"KUBECONFIG": "/nowhere/config", "HOME": "/nowhere"}
NO_CLUSTER = (
    "[usage] no cluster: the service account or kubeconfig cannot be read: [Errno 2] No such file or directory: "
    "'/nowhere/config'\n  hint: check KUBECONFIG\n"
)
EXAMPLE = "  hint: such as http://detect-{name}.{namespace}.svc:4323\n"
CASES = {
    "no cluster": (["--namespace", "a"], NO_CLUSTER),
    "no namespace": ([], NO_CLUSTER),
    "both": (
        ["--namespace", "a", "--all-namespaces"],
        "[usage] --namespace and --all-namespaces exclude each other\n  hint: give one of them\n",
    ),
    "period": (
        ["--namespace", "a", "--refresh-s", "0"],
        "[usage] --refresh-s must be above 0\n  hint: such as --refresh-s 30\n",
    ),
    "template": (
        ["--namespace", "a", "--detectors", "http://{contract}"],
        f"[usage] --detectors 'http://{{contract}}' knows {{name}} and {{namespace}} only\n{EXAMPLE}",
    ),
    "brace": (
        ["--namespace", "a", "--detectors", "http://{"],
        f"[usage] --detectors 'http://{{' knows {{name}} and {{namespace}} only\n{EXAMPLE}",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_work_is_said_at_once(case):
    pytest.importorskip("kopf", reason="kopf is not installed (pip install 'paritas[operator]')")
    words, said = CASES[case]
    if said is NO_CLUSTER and ACCOUNT.exists():
        pytest.skip("this machine is a pod with a service account")
    done = run("operator", *words, env=HERE)
    assert (done.returncode, done.stdout, done.stderr) == (64, "", said)


def test_without_kopf_the_module_is_named(tmp_path):
    (tmp_path / "kopf.py").write_text("raise ModuleNotFoundError(\"No module named 'kopf'\", name='kopf')\n")
    done = run("operator", "--namespace", "a", env={**HERE, "PYTHONPATH": str(tmp_path)})
    said = "[usage] this command needs the module 'kopf'\n  hint: pip install 'paritas[all]'\n"
    assert (done.returncode, done.stderr) == (64, said)


def test_a_contract_goes_out_as_an_object_and_comes_back(tmp_path):
    out = run("contract", "export", "lora", "--namespace", "serving")
    assert (out.returncode, out.stderr) == (0, "")
    assert "  namespace: serving\n" in out.stdout
    file = tmp_path / "object.yaml"
    file.write_text(out.stdout)
    back = run("contract", "import", file)
    assert (back.returncode, back.stderr) == (0, "")
    assert load_text(back.stdout, "a").digest == load_preset("lora").digest


BAD = "apiVersion: paritas.dev/v1\nkind: KernelContract\nmetadata: {name: a}\nspec: {preset: none}\n"
ONE = f"- {{{', '.join(BAD.strip().splitlines())}}}\n"


def test_what_is_no_contract_is_not_printed(tmp_path):
    file = tmp_path / "object.yaml"
    file.write_text(BAD)
    done = run("contract", "import", file)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.splitlines()[0] == ("[contract] metadata.annotations[paritas.dev/version]: is missing")
    file.write_text(f"kind: List\nitems:\n{2 * ONE}")
    done = run("contract", "import", file)
    hint = "kubectl get kernelcontracts NAME -o yaml"
    assert done.stderr == f"[usage] {file}: holds 2 contracts\n  hint: {hint}\n"


def test_the_definition_takes_no_file():
    done = run("contract", "schema", "lora", "--crd")
    assert done.stderr == "[usage] --crd is about every contract\n  hint: leave FILE out, or --crd\n"
    assert done.returncode == 64
