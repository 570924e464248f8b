"""`paritas floor` as a user runs it, and `--floors` of the commands that judge."""

import gzip
import json
import shutil

import numpy as np
import pytest
from command_runs import recording, run, run_json
from replayed_vllm import replayed_vllm
from toy_kernels import ToyModel

from paritas.cli import parser
from paritas.clock import ManualClock
from paritas.collectors.kernels import Suite, parse_spec, read_prompts
from paritas.collectors.kernels.twice import Replayed, ScoredTwice
from paritas.commands.floor_limits import contract_watch
from paritas.commands.floor_measure import Asked, measure
from paritas.commands.floor_run import Run, record_with
from paritas.contracts.catalogue import CATALOGUE
from paritas.contracts.load import load_text
from paritas.detectors.repair_limits import upper_limit
from paritas.errors import UsageError
from paritas.records import Role, Sampling

CONTRACT = """apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: mine, version: 1.0.0}
spec:
  policy: small
  kernels: {inference: {engine: vllm, dtype: bfloat16}}
  clauses:
    numerical:
      - {id: token-tv, statistic: tv, at_most: {floor: engine, times: 1.5, ceiling: 0.9}}
    statistical:
      - {id: bias, statistic: gradient_bias, cap: 2.0, at_most: 0.5}
      - {id: tail, statistic: ratio_tail, above: 1.05, at_most: 0.5}
      - {id: k3, statistic: kl_k3, at_most: 0.5}
"""
HEALTHY = ("--serve", recording("healthy.serve"), "--train", recording("healthy.train"))


def lines():
    with gzip.open(recording("healthy.serve"), "rt") as file:
        return [json.loads(line) for line in file]


def batched(path, size, sd, **more):
    """Write the healthy recording as the engine at another batch size would have logged it."""
    rng = np.random.default_rng(size)
    with path.open("w") as file:
        for row in lines():
            log = np.minimum(np.array(row["logprobs"]) + rng.normal(0, sd, len(row["logprobs"])), 0.0)
            told = {"logprobs": log.tolist(), "extra": {"batch": str(size)}, "top_logprobs": None, **more}
            file.write(json.dumps({**row, **told}) + "\n")
    return path


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a contract, a key pair, two recordings and the floor they make."""
    folder = tmp_path_factory.mktemp("floor")
    (folder / "mine.yaml").write_text(CONTRACT)
    assert run("floor", "key", folder / "k.pem", folder / "p.pem").returncode == 0
    batched(folder / "one.jsonl", 1, 0.0)
    batched(folder / "other.jsonl", 8, 0.02)
    done = run(*measuring(folder, "engine"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"signed in {folder}/engine.json\n")
    return folder


def measuring(folder, name, role="inference", one="one.jsonl", other="other.jsonl"):
    sides = ("--one", folder / one, "--other", folder / other, "--key", folder / "k.pem")
    return (
        "floor",
        "measure",
        folder / "mine.yaml",
        name,
        "--role",
        role,
        *sides,
        "-o",
        folder / f"{name}.json",
    )


def test_verify_shows_what_was_signed(desk):
    done = run("floor", "verify", desk / "engine.json", "--key", desk / "p.pem")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "inference kernel: dtype bfloat16, engine vllm, engine_version 0.32.0; extra.batch 1 and 8\n"
        in done.stdout
    )
    assert "  ratio_tail (above 1.05): at most " in done.stdout
    assert done.stdout.endswith("signature: good\n")


def test_the_payload_says_where_it_comes_from(desk):
    code, told = run_json("floor", "verify", desk / "engine.json", "--key", desk / "p.pem")
    assert code == 0
    assert (told["name"], told["role"], told["model"], told["seed"], told["alpha"]) == (
        "engine",
        "inference",
        "small",
        0,
        0.05,
    )
    assert told["varied"] == {"extra.batch": ["1", "8"]}
    assert [v["statistic"] for v in told["values"]] == [
        "tv",
        "gradient_bias",
        "ratio_tail",
    ]  # k3 is unbounded
    assert {v["units"] for v in told["values"]} == {48}
    assert all(len(digest) == 32 for digest in (*told["recordings"], told["digest"]))


def test_its_numbers_are_those_of_the_definition(desk):
    contract, clock = load_text(CONTRACT, "mine.yaml"), ManualClock(1_700_000_000 * 10**9)
    asked = Asked("engine", Role.INFERENCE, desk / "one.jsonl", desk / "other.jsonl", seed=5, alpha=0.09)
    found = measure(contract, asked, clock=clock)
    assert (found.measured_at, found.seed) == ("2023-11-14T22:13:20+00:00", 5)
    one, other = (
        [json.loads(t) for t in (desk / n).read_text().splitlines()] for n in ("one.jsonl", "other.jsonl")
    )
    as_logged = [np.array([r["logprobs"] for r in rows], dtype=object) for rows in (one, other)]
    ells = [np.float64(np.float32(p)) - np.float64(np.float32(q)) for q, p in zip(*as_logged, strict=True)]
    tv = np.array([np.mean(-np.expm1(np.minimum(ell, 0))) for ell in ells])
    assert found.values[0].estimate == pytest.approx(tv.mean())
    assert found.values[0].upper == pytest.approx(upper_limit(tv, 0.03))
    assert found.values[0].tokens == sum(map(len, ells))
    assert all(CATALOGUE[v.statistic].certifiable for v in found.values)


@pytest.fixture
def floors(desk):
    return ("--floors", desk / "engine.json", "--floors-key", desk / "p.pem")


def test_check_binds_the_limit_to_the_floor_and_says_so(desk, floors):
    code, told = run_json("floor", "verify", desk / "engine.json", "--key", desk / "p.pem")
    upper = told["values"][0]["upper"]
    code, judged = run_json("check", desk / "mine.yaml", *HEALTHY, *floors)
    assert code in (0, 3)
    (tv,) = (v for v in judged["verdicts"] if v["clause"] == "token-tv")
    assert tv["limit"] == pytest.approx(1.5 * upper)
    assert judged["floors"] == [
        f"token-tv: 1.5 times the floor engine of {upper:.4g} binds: {1.5 * upper:.4g}"
    ]
    shown = run("check", desk / "mine.yaml", *HEALTHY, *floors)
    assert f"floor  {judged['floors'][0]}" in shown.stdout


def test_without_a_floor_the_ceiling_binds_and_check_says_so(desk):
    _, judged = run_json("check", desk / "mine.yaml", *HEALTHY)
    assert judged["floors"] == ["token-tv: no floor engine was given, so its ceiling 0.9 binds"]
    assert judged["verdicts"][0]["limit"] == 0.9


@pytest.mark.parametrize("command", ["certify", "detect", "up"])
def test_the_other_commands_take_floors_too(desk, command, tmp_path):
    wanted = {
        "certify": (desk / "mine.yaml", "--train", "hf:no", "--inference", "hf:no", "--prompts", "no.txt"),
        "detect": ("--log", tmp_path, "--contract", desk / "mine.yaml", "--controller", "127.0.0.1:1"),
        "up": ("--contract", desk / "mine.yaml", "--data", tmp_path / "d"),
    }
    done = run(command, *wanted[command], "--floors", desk / "engine.json")
    assert (done.returncode, done.stderr) == (
        64,
        (
            "[usage] --floors needs --floors-key FILE\n"
            "  hint: the public key they were signed by: an unverified floor loosens limits for anybody\n"
        ),
    )


def test_a_floor_that_changes_under_a_running_detector_is_another_contract(desk, tmp_path):
    """Contract, floor and key are watched; a floor that was tampered with is refused and the old limits stay."""
    for name in ("mine.yaml", "engine.json", "p.pem"):
        shutil.copy(desk / name, tmp_path / name)
    floor, good = tmp_path / "engine.json", (desk / "engine.json").read_bytes()
    words = ["detect", "--log", "x", "--contract", tmp_path / "mine.yaml", "--floors", floor]
    arguments = parser().parse_args([*map(str, words), "--floors-key", str(tmp_path / "p.pem")])
    watch = contract_watch(arguments)
    first = watch.contract
    assert watch.look() is None

    floor.write_bytes(good.replace(b"A", b"B", 1))
    told = watch.look()
    assert isinstance(told, UsageError)
    assert str(told).startswith(f"{floor}: ")
    assert watch.contract is first

    floor.write_bytes(good)
    again = watch.look()
    assert (again.digest, again == first) == (first.digest, True)

    text = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("times: 1.5", "times: 2.0"))
    wider = watch.look()
    assert wider.clause("token-tv").at_most == pytest.approx(first.clause("token-tv").at_most / 1.5 * 2.0)
    assert wider.digest != first.digest


def test_a_key_without_a_floor_is_a_mistake(desk):
    done = run("check", desk / "mine.yaml", *HEALTHY, "--floors-key", desk / "p.pem")
    assert (done.returncode, done.stderr) == (
        64,
        "[usage] --floors-key verifies floors: give it with --floors FILE\n",
    )


def test_a_floor_by_another_key_is_refused(desk, tmp_path):
    run("floor", "key", tmp_path / "k.pem", tmp_path / "p.pem")
    done = run(
        "check",
        desk / "mine.yaml",
        *HEALTHY,
        "--floors",
        desk / "engine.json",
        "--floors-key",
        tmp_path / "p.pem",
    )
    assert (done.returncode, done.stderr) == (
        64,
        (
            f"[usage] {desk}/engine.json: is not signed by this key, or was changed since\n"
            "  hint: paritas floor measure writes one\n"
        ),
    )


def test_a_floor_of_another_kernel_is_refused(desk, floors, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(CONTRACT.replace("dtype: bfloat16", "dtype: float16"))
    done = run("check", path, *HEALTHY, *floors)
    assert (done.returncode, done.stderr) == (
        64,
        (
            f"[usage] {desk}/engine.json: the floor engine is of another kernel: dtype was bfloat16, "
            "the contract declares float16\n  hint: measure it again: paritas floor measure\n"
        ),
    )


SAME = "  hint: a floor is one kernel against itself: the same tokens, only batched otherwise\n"


def test_two_kernels_make_no_floor(desk):
    batched(desk / "fp16.jsonl", 8, 0.02, dtype="float16")
    done = run(*measuring(desk, "wrong", other="fp16.jsonl"))
    assert (done.returncode, done.stderr) == (
        64,
        f"[usage] {desk}/one.jsonl and {desk}/fp16.jsonl are of two kernels: dtype bfloat16 and float16\n{SAME}",
    )
    assert not (desk / "wrong.json").exists()


def test_a_recording_that_names_two_kernels_makes_no_floor(desk):
    mixed = (desk / "other.jsonl").read_text() + (desk / "one.jsonl").read_text().replace(
        '"batch": "1"', '"batch": "2"'
    )
    (desk / "mixed.jsonl").write_text(mixed)
    done = run(*measuring(desk, "wrong", other="mixed.jsonl"))
    assert (done.returncode, done.stderr) == (64, f"[usage] {desk}/mixed.jsonl: names 2 kernels\n{SAME}")


def test_other_tokens_make_no_floor(desk):
    rows = [json.loads(line) for line in (desk / "other.jsonl").read_text().splitlines()]
    for row in rows:
        row["token_ids"] = [t + 1 for t in row["token_ids"]]
    (desk / "tokens.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run(*measuring(desk, "wrong", other="tokens.jsonl"))
    assert done.returncode == 64
    assert done.stderr == (
        f"[usage] {desk}/one.jsonl and {desk}/tokens.jsonl: nothing pairs (48 token_mismatch)\n{SAME}"
    )


def test_a_contract_whose_clauses_cannot_have_a_floor(desk, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        CONTRACT[: CONTRACT.index("    numerical")]
        + "    observability: [{id: f, statistic: nonfinite_rate, at_most: 0}]\n"
    )
    done = run("floor", "measure", path, *measuring(desk, "wrong")[3:])
    assert (done.returncode, done.stderr) == (
        64,
        (
            "[usage] mine: no clause can have a floor\n"
            "  hint: a floor needs a numerical or statistical clause with a bounded mean, such as tv\n"
        ),
    )


def test_an_alpha_that_is_no_probability(desk):
    done = run(*measuring(desk, "wrong"), "--alpha", "2")
    assert done.returncode == 64
    assert done.stderr.startswith("[usage] argument --alpha: '2' is not between 0 and 1\n")


# A run of the kernel itself at two batch sizes.


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


@pytest.mark.parametrize("options", MISTAKES)
def test_a_run_that_cannot_be_is_one_error(desk, prompts, options, capsys):
    from paritas.cli import main

    given = [str(prompts) if word == "PROMPTS" else word for word in options]
    code = main([str(word) for word in running(desk, *given)])
    said = capsys.readouterr()
    if "hf:none" in options and "needs torch" in said.err:
        pytest.skip("PyTorch is not installed here: test_floor of tests/engines has it")
    assert (code, said.out, said.err) == (64, "", f"[usage] {MISTAKES[options]}")


def test_a_trainer_is_no_server(desk, prompts, capsys):
    from paritas.cli import main

    words = running(desk, "--kernel", "vllm:http://x", "--prompts", prompts, role="train")
    assert main([str(word) for word in words]) == 64
    assert capsys.readouterr().err == (
        "[usage] --kernel vllm:http://x: vllm is for --role inference\n"
        "  hint: hf:DIR: only a kernel in this process scores tokens as a trainer does\n"
    )


@pytest.mark.parametrize("sizes", ["8", "1,1", "1,2,3", "0,8", "1,1025", "a,b", "1,99999999"])
def test_batch_sizes_that_are_none(desk, sizes, capsys):
    from paritas.cli import main

    code = main([str(word) for word in running(desk, "--kernel", "hf:x", "--batch-sizes", sizes)])
    message = f"argument --batch-sizes: {sizes!r} is not two unequal numbers from 1 to 1024, such as 1,8"
    assert code == 64
    assert capsys.readouterr().err.startswith(f"[usage] {message}\n")
