"""`paritas certify` without models: the run over toy kernels, its files, and every mistake's text.

The toy model stands in for real ones; tests/engines/test_certify.py runs those.
"""

import gzip
import importlib.util
import json
import xml.etree.ElementTree as ET

import pytest
from command_runs import run, run_json
from replayed_vllm import replayed_vllm
from toy_kernels import ToyModel

from paritas.collectors.kernels import LocalSampler, LocalScorer, Prompt, Suite, parse_spec
from paritas.commands.certify_run import Kernels, Plan, certify_pair
from paritas.contracts.load import load_named, load_text
from paritas.errors import UsageError
from paritas.records import Role, Sampling

CONTRACT = """
apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: toy, version: 1.0.0, owner: me}
spec:
  policy: p
  slices: [{name: all}, {name: kind, by: [slice], at_most: 4}]
  clauses:
    numerical:
      - {id: token-tv, statistic: tv, at_most: 0.2}
      - {id: osc, statistic: logit_oscillation, quantile: 0.9, at_most: 3.0}
      - {id: flips, statistic: argmax_flip_rate, at_most: 0.3}
    observability:
      - {id: finite, statistic: nonfinite_rate, at_most: 0}
  promotion: {offline_ci: {suite: prompts.jsonl, alpha: 0.05PROMISE}}
"""
needs_no_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="PyTorch is here, so it cannot be missing"
)


def contract(promise=""):
    return load_text(CONTRACT.replace("PROMISE", promise), "toy.yaml")


def plan(drawn=None, *options, responses=120):
    prompts = tuple(
        Prompt(f"p{n}", f"f:{n}", token_ids=(n % 40 + 1, 7), labels={"slice": "ab"[n % 2]})
        for n in range(responses // 2)
    )
    specs = parse_spec(",".join(["hf:a", *options]), Role.TRAIN), parse_spec("hf:b", Role.INFERENCE)
    return Plan(*specs, Suite(prompts, 2, 20), drawn or Sampling(1.0, 1.0, 0, 0.0), 5)


def kernels(noise):
    trained, served = ToyModel(Role.TRAIN), ToyModel(noise=noise)
    return Kernels(LocalSampler(served, top_k=5), LocalScorer(trained, top_k=5))


def states(found, part="verdicts"):
    return {(v["clause"], v["slice"]): v["state"] for v in found[part]}


def test_equal_kernels_conform():
    found = certify_pair(contract(), plan(), kernels(0.0), out=None)
    assert set(states(found.as_dict()).values()) == {"conforming"}
    assert found.judgement.exit_code == 0
    told = found.as_dict()["certify"]["divergence"]
    assert (told["sequences"], told["tv"], told["max_abs_nats"], told["argmax_flip_rate"]) == (120, 0, 0, 0)


def test_another_policy_is_violated_by_exact_numbers():
    found = certify_pair(contract(), plan(), kernels(2.0), out=None).as_dict()
    assert found["exit_code"] == 1
    judged = states(found)
    assert {judged[name, "all"] for name in ("token-tv", "osc", "flips")} == {"violated"}
    (tv,) = [v for v in found["verdicts"] if (v["clause"], v["slice"]) == ("token-tv", "all")]
    assert tv["estimate"] == pytest.approx(found["certify"]["divergence"]["tv"], abs=0.02)


def test_top_p_of_the_sampler_alone_is_named():
    found = certify_pair(contract(), plan(Sampling(1.0, 0.6, 0, 0.0)), kernels(0.0), out=None)
    assert found.judgement.exit_code == 1
    assert found.judgement.diagnosis[0].cause == "support_mismatch"
    (drawn, scored) = found.laws
    assert (drawn.top_p, scored.top_p) == (0.6, 1.0)


def test_the_temperature_is_on_both_sides_unless_it_is_said_otherwise():
    warm = Sampling(0.5, 1.0, 0, 0.0)
    assert certify_pair(contract(), plan(warm), kernels(0.0), out=None).judgement.exit_code == 0
    other = certify_pair(contract(), plan(warm, "temperature=1"), kernels(0.0), out=None)
    assert other.judgement.exit_code == 1
    assert other.judgement.diagnosis[0].cause == "temperature_mismatch"


def test_nothing_passes_before_the_sequences_the_gate_asks_for():
    asked = contract(", at_least: {sequences: 121}")
    found = certify_pair(asked, plan(), kernels(0.0), out=None)
    assert found.judgement.exit_code == 3
    assert {(v.state, v.reason, v.needed_units) for v in found.judgement.verdicts} == {
        ("undecided", "needs_more_units", 121)
    }


def test_what_is_kept_is_read_by_check_with_the_same_result(tmp_path):
    out = tmp_path / "new" / "out"
    (tmp_path / "toy.yaml").write_text(CONTRACT.replace("PROMISE", ""))
    found = certify_pair(load_named(str(tmp_path / "toy.yaml")), plan(), kernels(1.0), out=out)
    kept = sorted(path.name for path in out.iterdir())
    assert kept == ["junit.xml", "report.json", "serve.jsonl.gz", "train.jsonl.gz"]
    report = json.loads((out / "report.json").read_text())
    assert report == json.loads(json.dumps(found.as_dict()))
    code, judged = run_json(
        "check", tmp_path / "toy.yaml", "--serve", out / "serve.jsonl.gz", "--train", out / "train.jsonl.gz"
    )
    assert code == report["exit_code"]
    assert judged == {key: value for key, value in report.items() if key != "certify"}
    assert int(ET.parse(out / "junit.xml").getroot().get("tests")) == len(judged["verdicts"])
    with gzip.open(out / "train.jsonl.gz", "rt") as file:
        line = json.loads(file.readline())
    assert {"exact", "top_logprobs", "role", "slice"} <= line.keys()


def test_two_runs_are_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        certify_pair(contract(), plan(responses=8), kernels(1.0), out=tmp_path / name)
    for name in ("serve.jsonl.gz", "train.jsonl.gz"):
        one, two = (gzip.decompress((tmp_path / run / name).read_bytes()) for run in ("one", "two"))
        assert one == two


def test_an_interrupted_run_leaves_no_half_recording(tmp_path):
    class Failing(LocalScorer):
        def score(self, answer, law):
            raise UsageError("no")

    broken = Kernels(LocalSampler(ToyModel(), top_k=5), Failing(ToyModel(Role.TRAIN), top_k=5))
    with pytest.raises(UsageError):
        certify_pair(contract(), plan(), broken, out=tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    taken = tmp_path / "out"
    taken.write_text("")
    with pytest.raises(UsageError) as caught:
        certify_pair(contract(), plan(), kernels(0.0), out=taken)
    assert str(caught.value) == f"{taken}: cannot be made: File exists"
    assert caught.value.hint == ("the folder of a recording must be there or be made, with room for it")


def test_the_tables_end_with_the_divergence(capsys):
    certify_pair(contract(), plan(responses=10), kernels(0.5), out=None).show()
    shown = capsys.readouterr().out
    assert "token-tv" in shown
    assert "divergence  tv 0." in shown
    assert "argmax_flip_rate" in shown
    assert shown.rstrip().endswith("; exact, of whole distributions")


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt_token_ids": [1, 2]}\n')
    return path


HELP = "  hint: paritas certify --help shows what it takes\n"
PAIR = ("--train", "hf:a", "--inference", "hf:a")
WRONG = {
    (): "[usage] the following arguments are required: --train, --inference\n" + HELP,
    PAIR[:2]: "[usage] the following arguments are required: --inference\n" + HELP,
    (*PAIR, "--samples", "0"): ("[usage] argument --samples: '0' is not a whole number from 1\n" + HELP),
    (*PAIR, "--temperature", "0"): ("[usage] argument --temperature: '0' is not a number above 0\n" + HELP),
    (*PAIR, "--top-p", "1.5"): "[usage] argument --top-p: '1.5' is not above 0 and at most 1\n" + HELP,
    (*PAIR, "--min-p", "x"): "[usage] argument --min-p: 'x' is not from 0 to 1\n" + HELP,
    PAIR: "[usage] no prompts\n  hint: give --prompts FILE, or a suite in the contract's gate offline_ci\n",
    ("--train", "vllm:http://a", "--inference", "hf:a"): (
        "[usage] --train vllm:http://a: vllm is for --inference\n"
        "  hint: hf:DIR: only a kernel in this process scores tokens as a trainer does\n"
    ),
}


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_arguments(arguments):
    done = run("certify", "dense-bf16", *arguments)
    assert (done.returncode, done.stderr, done.stdout) == (64, WRONG[arguments], "")


@needs_no_torch
@pytest.mark.parametrize(
    ("inference", "text"),
    [
        ("hf:a", "--inference: hf needs torch and transformers\n  hint: pip install torch transformers"),
        (
            "hf:a,quantization=int4",
            (
                "--inference: hf needs torch and transformers and compressed_tensors\n"
                "  hint: pip install torch transformers compressed-tensors"
            ),
        ),
        (
            "llamacpp:a.gguf",
            "--inference: llamacpp needs llama_cpp\n  hint: pip install llama-cpp-python",
        ),
    ],
)
def test_a_part_that_is_not_installed(prompts, inference, text):
    done = run("certify", "dense-bf16", "--train", "hf:a", "--inference", inference, "--prompts", prompts)
    assert (done.returncode, done.stderr, done.stdout) == (64, f"[usage] {text}\n", "")


@needs_no_torch
def test_the_server_is_asked_before_a_model_is_loaded(prompts):
    with replayed_vllm() as (url, _):
        done = run(
            "certify", "dense-bf16", "--train", "hf:a", "--inference", f"vllm:{url}", "--prompts", prompts
        )
    text = "[usage] --train: hf needs torch and transformers\n  hint: pip install torch transformers\n"
    assert (done.returncode, done.stderr) == (64, text)


def refused(*arguments):
    done = run("certify", *arguments)
    assert (done.returncode, done.stdout) == (64, "")
    return done.stderr


def test_the_suite_of_the_contract_lies_beside_it(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(CONTRACT.replace("PROMISE", ""))
    assert refused(path, *PAIR) == (
        f"[usage] {tmp_path}/prompts.jsonl: no such file\n"
        "  hint: the contract's gate offline_ci names it, beside the contract; --prompts FILE gives another\n"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.jsonl", "no such file\n  hint: --prompts FILE takes a .jsonl or .txt file\n"),
        (".", "is a folder, expected a file\n  hint: --prompts FILE takes a .jsonl or .txt file\n"),
    ],
)
def test_prompts_that_are_not_there(tmp_path, name, message):
    path = tmp_path / name
    assert refused("dense-bf16", *PAIR, "--prompts", path) == f"[usage] {path}: {message}"


@pytest.mark.parametrize(
    ("name", "why"), [("no/x.xml", "No such file or directory"), (".", "Is a directory")]
)
def test_a_report_that_could_not_be_written_is_said_before_the_run(tmp_path, prompts, name, why):
    path = tmp_path / name
    assert refused("dense-bf16", *PAIR, "--prompts", prompts, "--junit", path) == (
        f"[usage] {path}: cannot be written: {why}\n  hint: is its folder there, writable and not full?\n"
    )


def test_a_folder_for_the_recording_is_made_before_a_kernel_is_opened(tmp_path, prompts):
    taken = tmp_path / "taken"
    taken.write_text("")
    assert refused("dense-bf16", *PAIR, "--prompts", prompts, "--out", taken) == (
        f"[usage] {taken}: cannot be made: File exists\n"
        "  hint: the folder of a recording must be there or be made, with room for it\n"
    )


def test_the_scoring_law_is_read_before_a_kernel_is_opened(prompts):
    pair = ("--train", "hf:a,top_p=2", "--inference", "vllm:http://127.0.0.1:1")
    assert refused("dense-bf16", *pair, "--prompts", prompts) == (
        "[usage] --train: top_p=2 is out of range\n  hint: top_p is a number above 0, at most 1\n"
    )


def test_no_such_contract(tmp_path):
    assert refused(tmp_path / "none.yaml", *PAIR) == (
        f"[usage] {tmp_path}/none.yaml: no such file\n  hint: paritas contract init -o FILE writes one\n"
    )
