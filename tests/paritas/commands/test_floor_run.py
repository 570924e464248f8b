"""`paritas floor measure --kernel`: the kernel itself is run at two batch sizes."""

import gzip
import json

import numpy as np
import pytest
from command_runs import run, run_json
from floor_desk import CONTRACT, laid_desk
from replayed_vllm import replayed_vllm
from toy_kernels import ToyModel

from paritas.cli import main
from paritas.clock import ManualClock
from paritas.collectors.kernels import Suite, parse_spec, read_prompts
from paritas.collectors.kernels.twice import Replayed, ScoredTwice
from paritas.commands.floor_measure import Asked, measure
from paritas.commands.floor_run import Run, record_with
from paritas.contracts.load import load_text
from paritas.errors import UsageError
from paritas.records import Role, Sampling

MISTAKES = {
    ("--kernel", "hf:x", "--one", "a"): "--kernel makes both recordings: give it without --one and --other\n",
    ("--kernel", "hf:x"): "no prompts\n  hint: give --prompts FILE: what the kernel answers\n",
    (): "nothing to measure\n  hint: give --kernel KERNEL --prompts FILE, or --one FILE --other FILE\n",
    (
        "--one",
        "a",
    ): "nothing to measure\n  hint: give --kernel KERNEL --prompts FILE, or --one FILE --other FILE\n",
    ("--batch-sizes", "1,8"): "--batch-sizes is for a kernel that is run: give it with --kernel\n",
    ("--prompts", "p.txt"): "--prompts is for a kernel that is run: give it with --kernel\n",
    ("--keep", "dir"): "--keep is for a kernel that is run: give it with --kernel\n",
    (
        "--kernel",
        "hf:none",
        "--prompts",
        "PROMPTS",
    ): "none: no such folder\n  hint: --kernel hf:DIR takes a folder on this machine\n",
    ("--kernel", "tgi:x", "--prompts", "PROMPTS"): (
        "--kernel tgi:x: no such kind of kernel\n"
        "  hint: hf:DIR, vllm:URL or llamacpp:FILE, each with ,NAME=VALUE options\n"
    ),
    (
        "--kernel",
        "vllm:x",
        "--prompts",
        "PROMPTS",
    ): "--kernel: 'x' is no address\n  hint: such as http://127.0.0.1:8000\n",
    ("--kernel", "llamacpp:x.gguf", "--prompts", "PROMPTS"): (
        "--kernel llamacpp:x.gguf: decodes one sequence at a time in this process and has no other batch size\n"
        "  hint: record llama-server at two values of --parallel, and give the recordings with --one and --other\n"
    ),
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a contract, a key pair, two recordings and the floor they make."""
    return laid_desk(tmp_path_factory.mktemp("floor"))


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        "".join(json.dumps({"id": f"p{i}", "prompt_token_ids": [1, 2 + i]}) + "\n" for i in range(4))
    )
    return path


def running(folder, *options, role="inference"):
    out = ("--key", folder / "k.pem", "-o", folder / "run.json")
    return ("floor", "measure", folder / "mine.yaml", "run", "--role", role, *out, *options)


def plan(role, prompts, sizes=(1, 4), **more):
    kernel = parse_spec("hf:toy", role, flag="--kernel")
    return Run(
        kernel,
        sizes,
        Suite(read_prompts(prompts), **{"samples": 8, "max_tokens": 8, **more}),
        Sampling(1.0, 1.0, 0, 0.0),
    )


@pytest.mark.parametrize("role", [Role.INFERENCE, Role.TRAIN])
def test_a_kernel_is_run_at_both_batch_sizes_and_its_floor_measured(prompts, tmp_path, role):
    model = ToyModel(role, batched=0.2)
    kernel = Replayed(model, top_k=5) if role is Role.INFERENCE else ScoredTwice(model, Sampling(), top_k=5)
    assert record_with(kernel, plan(role, prompts), tmp_path) == ""
    contract = load_text(CONTRACT, "mine.yaml")
    files = tmp_path / "one.jsonl.gz", tmp_path / "other.jsonl.gz"
    found = measure(contract, Asked("run", role, *files), clock=ManualClock(0))
    name = "extra.batch_size" if role is Role.INFERENCE else "extra.micro_batch"
    assert (found.role, dict(found.varied)) == (role, {name: ("1", "4")})
    assert (found.kernel["engine"], found.kernel["extra.kernel"]) == ("toy", "bigram")
    tv = found.values[0]
    with gzip.open(files[1], "rt") as file:
        exact = [np.mean(json.loads(line)["exact"]["tv"]) for line in file]
    assert (tv.statistic, tv.units) == ("tv", 32)
    assert 0.0 < tv.estimate < tv.upper
    assert tv.estimate == pytest.approx(
        np.mean(exact), rel=0.5
    )  # of sampled tokens, or exact where a clause uses it


def test_a_response_longer_than_the_context_is_refused(prompts, tmp_path):
    with pytest.raises(UsageError) as caught:
        record_with(Replayed(ToyModel(), top_k=5), plan(Role.INFERENCE, prompts, max_tokens=63), tmp_path)
    message = "prompt 'p0' has 2 tokens and its response up to 63: --kernel takes 64 together"
    assert (str(caught.value), caught.value.hint) == (message, "give --max-tokens 62 or less")


def test_a_server_is_asked_at_two_concurrencies_and_its_recordings_kept(desk, prompts, tmp_path):
    keep = tmp_path / "kept"
    with replayed_vllm() as (url, asked):
        options = ("--kernel", f"vllm:{url}", "--batch-sizes", "1,3", "--prompts", prompts, "--keep", keep)
        done = run(*running(desk, *options, "--seed", "4"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "; extra.concurrency 1 and 3\n" in done.stdout
    assert done.stdout.endswith(f"signed in {desk}/run.json\n")
    assert len(asked) == 4 + 6  # four alone, then two full batches of three
    assert sorted(path.name for path in keep.iterdir()) == ["one.jsonl.gz", "other.jsonl.gz"]
    _, told = run_json("floor", "verify", desk / "run.json", "--key", desk / "p.pem")
    assert (told["seed"], told["values"][0]["units"], told["values"][0]["estimate"]) == (4, 4, 0.0)


@pytest.mark.parametrize("options", MISTAKES)
def test_a_run_that_cannot_be_is_one_error(desk, prompts, options, capsys):
    given = [str(prompts) if word == "PROMPTS" else word for word in options]
    code = main([str(word) for word in running(desk, *given)])
    said = capsys.readouterr()
    if "hf:none" in options and "needs torch" in said.err:
        pytest.skip("PyTorch is not installed here: test_floor of tests/engines has it")
    assert (code, said.out, said.err) == (64, "", f"[usage] {MISTAKES[options]}")


def test_a_trainer_is_no_server(desk, prompts, capsys):
    words = running(desk, "--kernel", "vllm:http://x", "--prompts", prompts, role="train")
    assert main([str(word) for word in words]) == 64
    assert capsys.readouterr().err == (
        "[usage] --kernel vllm:http://x: vllm is for --role inference\n"
        "  hint: hf:DIR: only a kernel in this process scores tokens as a trainer does\n"
    )


@pytest.mark.parametrize("sizes", ["8", "1,1", "1,2,3", "0,8", "1,1025", "a,b", "1,99999999"])
def test_batch_sizes_that_are_none(desk, sizes, capsys):
    code = main([str(word) for word in running(desk, "--kernel", "hf:x", "--batch-sizes", sizes)])
    message = f"argument --batch-sizes: {sizes!r} is not two unequal numbers from 1 to 1024, such as 1,8"
    assert code == 64
    assert capsys.readouterr().err.startswith(f"[usage] {message}\n")
