"""`paritas certify` with real kernels of one real policy: healthy pairs are never violated, faults are named."""

import json

import pytest
import torch
from engines.certify_scenes import Desk, causes, changed_rope, learned, violated
from engines.vllm_scenes import START_S, environment, serving

from paritas.cli import main
from paritas.commands.offline import judge_recording
from paritas.contracts.load import load_named

DRAWING = ("--samples", "8", "--max-tokens", "40", "--seed", "3")
SHORT = ("--samples", "4", "--max-tokens", "24")
pytestmark = pytest.mark.timeout(START_S)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Several threads wait for each other on a busy machine far longer than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("desk"), *DRAWING)


@pytest.fixture(scope="module")
def bf16(desk, small_model):
    """bfloat16 as trainers and engines run it: the healthy pair that the faults are compared with."""
    return desk.certify(f"hf:{small_model},dtype=float32", f"hf:{small_model},dtype=bfloat16")


def divergence(report):
    return report["certify"]["divergence"]


def test_bfloat16_is_healthy_and_measured_exactly(bf16):
    code, report, _ = bf16
    assert violated(report) == set()
    assert code == 3  # so few responses certify nothing of this contract
    told = divergence(report)
    assert told["tv_is_exact"]
    assert 0.005 < told["tv"] < 0.04
    assert 0.0 < told["argmax_flip_rate"] < 0.1
    assert report["certify"]["kernels"]["inference"]["dtype"] == "bfloat16"
    assert report["accounting"]["pairs"]["paired"] == 32


def test_eager_and_sdpa_are_one_kernel_up_to_rounding(desk, small_model):
    _, report, _ = desk.certify(
        f"hf:{small_model},dtype=float32,attention=sdpa", f"hf:{small_model},dtype=float32,attention=eager"
    )
    assert violated(report) == set()
    told = divergence(report)
    assert told["tv"] < 1e-4
    assert told["max_abs_nats"] < 1e-2
    kernels = report["certify"]["kernels"]
    assert [kernels[role]["attention_backend"] for role in ("inference", "train")] == ["eager", "sdpa"]


def test_check_reads_what_was_kept(desk, bf16):
    code, report, out = bf16
    judgement = judge_recording(
        load_named(str(desk.folder / "contract.yaml")), out / "serve.jsonl.gz", out / "train.jsonl.gz"
    )
    assert judgement.exit_code == code
    assert json.loads(json.dumps(judgement.as_dict()["verdicts"])) == report["verdicts"]


def test_a_real_vllm_is_healthy(desk, small_model, tmp_path):
    with serving(small_model, tmp_path, environment(tmp_path)) as served:
        _, report, _ = desk.certify(f"hf:{small_model},dtype=float32", f"vllm:{served.url}")
    assert violated(report) == set()
    told = divergence(report)
    assert not told["tv_is_exact"]
    assert 0.005 < told["tv"] < 0.04
    kernel = report["certify"]["kernels"]["inference"]
    assert (kernel["engine"], kernel["dtype"]) == ("vllm", "bfloat16")


def test_float8_in_the_cache_is_a_kernel_of_its_own(desk, small_model):
    kernel = f"hf:{small_model},dtype=bfloat16,kv_cache=fp8_e4m3"
    _, report, _ = desk.certify(f"hf:{small_model},dtype=float32", kernel, *SHORT)
    assert report["certify"]["kernels"]["inference"]["kv_cache_dtype"] == "fp8_e4m3"
    assert 0.02 < divergence(report)["tv"] < 0.15


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # as compressed-tensors is imported
@pytest.mark.parametrize(("quantization", "least", "most"), [("fp8_e4m3", 0.05, 0.15), ("int4", 0.2, 0.6)])
def test_quantised_kernels_are_outside_a_bfloat16_contract(desk, small_model, quantization, least, most):
    kernel = f"hf:{small_model},dtype=bfloat16,quantization={quantization}"
    code, report, _ = desk.certify(f"hf:{small_model},dtype=float32", kernel, *SHORT)
    assert code == 1
    assert least < divergence(report)["tv"] < most
    assert causes(report) == ["precision_noise"]
    assert report["certify"]["kernels"]["inference"]["quantization"] == quantization


def test_a_sampler_that_was_not_refitted_is_stale(desk, small_model, bf16, tmp_path):
    newer = learned(small_model, tmp_path / "newer", bf16[2] / "serve.jsonl.gz", steps=4)
    code, report, _ = desk.certify(f"hf:{newer},dtype=float32", f"hf:{small_model},dtype=bfloat16")
    assert code == 1
    assert causes(report)[0] == "stale_weights"


def test_positions_turned_differently_drift(desk, small_model, tmp_path):
    turned = changed_rope(small_model, tmp_path / "turned", 10_000.0)
    pair = f"hf:{small_model},dtype=float32", f"hf:{turned},dtype=bfloat16"
    code, report, _ = desk.certify(*pair, "--max-tokens", "64")  # the drift grows along the response
    assert code == 1
    assert causes(report)[0] == "position_drift"


def test_a_temperature_on_one_side_is_named(desk, small_model):
    code, report, _ = desk.certify(
        f"hf:{small_model},dtype=float32,temperature=1",
        f"hf:{small_model},dtype=bfloat16",
        "--temperature",
        "0.6",
        *SHORT,
    )
    assert code == 1
    assert causes(report)[0] == "temperature_mismatch"


def test_top_p_on_one_side_is_named(desk, small_model):
    code, report, _ = desk.certify(
        f"hf:{small_model},dtype=float32", f"hf:{small_model},dtype=bfloat16", "--top-p", "0.9"
    )
    assert code == 1
    assert causes(report)[0] == "support_mismatch"


def failing(capsys, desk, train, inference, *options):
    words = ["certify", desk.folder / "contract.yaml", "--train", train, "--inference", inference, *options]
    code = main([str(word) for word in words])
    return code, capsys.readouterr().err


def test_folders_that_hold_no_kernel(capsys, desk, small_model, tmp_path):
    code, told = failing(capsys, desk, f"hf:{small_model}", f"hf:{tmp_path}/none")
    hint = "  hint: --inference hf:DIR takes a folder on this machine\n"
    assert (code, told) == (64, f"[usage] {tmp_path}/none: no such folder\n{hint}")
    code, told = failing(capsys, desk, f"hf:{small_model}", f"hf:{tmp_path}")
    hint = "  hint: config.json is missing: is it what save_pretrained wrote?\n"
    assert (code, told) == (64, f"[usage] {tmp_path}: holds no model\n{hint}")
    (tmp_path / "config.json").write_text("{}")
    code, told = failing(capsys, desk, f"hf:{small_model}", f"hf:{tmp_path}")
    assert code == 64
    assert told.startswith(f"[usage] --inference {tmp_path}: cannot be loaded as asked\n  hint: ValueError: ")


def test_a_model_without_tokenizer(capsys, desk, small_model, tmp_path):
    for name in ("config.json", "model.safetensors", "generation_config.json"):
        (tmp_path / name).symlink_to(small_model / name)
    code, told = failing(capsys, desk, f"hf:{tmp_path}", f"hf:{tmp_path}")
    hint = "  hint: save it beside the model, or give prompt_token_ids instead of texts\n"
    assert (code, told) == (64, f"[usage] {tmp_path}: holds no tokenizer\n{hint}")


def test_an_attention_that_is_none(capsys, desk, small_model):
    code, told = failing(capsys, desk, f"hf:{small_model}", f"hf:{small_model},attention=magic")
    assert code == 64
    assert told.startswith(
        f"[usage] --inference {small_model}: cannot be loaded as asked\n  hint: ValueError: "
    )
