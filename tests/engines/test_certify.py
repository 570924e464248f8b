"""`paritas certify` with real kernels of one real policy: the ladder of precisions, and faults that are named."""

import json

import pytest
import torch
from engines.certify_scenes import (
    Desk,
    causes,
    changed_rope,
    judged,
    late_by_one,
    learned,
    violated,
)
from engines.quantized_model import quantized_dir, why_not_made

from paritas.collectors.kernels import parse_spec
from paritas.collectors.kernels.hf import open_model
from paritas.records import Role

DRAWING = ("--samples", "4", "--max-tokens", "24", "--seed", "3")
FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("one_thread")]

# Every kernel against the same weights in float32: least and most of the exact total variation.
LADDER = {
    "eager": (0.0, 1e-4),
    "bfloat16": (0.005, 0.04),
    "float8 cache": (0.02, 0.1),
    "float8": (0.05, 0.15),
    "gptq": (0.1, 0.45),  # few calibrating tokens leave it about where rounding to nearest is
    "awq": (0.1, 0.3),
    "int4": (0.2, 0.6),
}
VARIANTS = {
    "eager": "dtype=float32,attention=eager",
    "bfloat16": "dtype=bfloat16",
    "float8 cache": "dtype=bfloat16,kv_cache=fp8_e4m3",
    "float8": "dtype=bfloat16,quantization=fp8_e4m3",
    "int4": "dtype=bfloat16,quantization=int4",
}
# Presets from narrow to wide, and the first kernel on the ladder that each does not allow.
PRESETS = {"fp32": "bfloat16", "dense-bf16": "float8", "fp8-rollout": "int4"}


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("desk"), *DRAWING)


@pytest.fixture(scope="module")
def rung(desk, small_model):
    """Certify a kernel of the ladder, once; a checkpoint that cannot be made here is skipped."""
    found = {}

    def certified(name):
        if name not in found:
            found[name] = desk.certify(f"hf:{small_model},dtype=float32", kernel(name, small_model))
        return found[name]

    return certified


def kernel(name, model):
    if name in VARIANTS:
        return f"hf:{model},{VARIANTS[name]}"
    if reason := why_not_made(name):
        pytest.skip(reason)
    return f"hf:{quantized_dir(name)},dtype=bfloat16"


@pytest.fixture(scope="module")
def newer(small_model, rung, tmp_path_factory):
    """The policy four optimiser steps later."""
    recording = rung("bfloat16")[2] / "serve.jsonl.gz"
    return learned(small_model, tmp_path_factory.mktemp("newer") / "policy", recording, steps=4)


def divergence(report):
    return report["certify"]["divergence"]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # as compressed-tensors is imported
@pytest.mark.parametrize("name", LADDER)
def test_a_kernel_is_measured_exactly(rung, name):
    _, report, _ = rung(name)
    told = divergence(report)
    least, most = LADDER[name]
    assert told["tv_is_exact"]
    assert least < told["tv"] < most
    assert report["accounting"]["pairs"]["paired"] == 16
    assert report["certify"]["kernels"]["train"]["dtype"] == "float32"


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_fewer_bits_are_farther_away(rung):
    """A ladder: float32, bfloat16, a float8 cache, float8 throughout, four bits; AWQ's scales help those."""
    made = [name for name in LADDER if name in VARIANTS or not why_not_made(name)]
    tv = {name: divergence(rung(name)[1])["tv"] for name in made}
    firsts = [tv[name] for name in ("eager", "bfloat16", "float8 cache", "float8")]
    assert firsts == sorted(firsts)
    assert tv["float8"] < min(tv[name] for name in ("gptq", "awq", "int4") if name in tv)
    assert tv.get("awq", 0.0) < tv["int4"]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_allows_its_precision_and_no_less(rung, preset):
    names = [name for name in VARIANTS if name != "float8 cache"]  # no preset of its own
    first = names.index(PRESETS[preset])
    said = {name: violated(judged(rung(name)[2], preset)) for name in names}
    assert {name for name in names if "token-tv" in said[name]} == set(names[first:])
    assert [said[name] for name in names[:first]] == [set()] * first


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["float8", "gptq", "awq", "int4"])
def test_few_bits_are_outside_a_bfloat16_contract(rung, name):
    code, report, _ = rung(name)
    assert code == 1
    assert causes(report) == ["precision_noise"]


def test_what_is_reported_of_the_kernels(rung):
    told = {name: rung(name)[1]["certify"]["kernels"] for name in ("eager", "bfloat16", "float8 cache")}
    assert [told["eager"][role]["attention_backend"] for role in ("inference", "train")] == ["eager", "sdpa"]
    assert told["bfloat16"]["inference"]["dtype"] == "bfloat16"
    assert told["float8 cache"]["inference"]["kv_cache_dtype"] == "fp8_e4m3"


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "quantization"),
    [("float8", "fp8_e4m3"), ("int4", "int4"), ("gptq", "compressed-tensors"), ("awq", "compressed-tensors")],
)
def test_how_a_kernel_is_quantised_is_reported(rung, name, quantization):
    assert rung(name)[1]["certify"]["kernels"]["inference"]["quantization"] == quantization


def test_sdpa_is_flash_attention_here(small_model):
    model = open_model(parse_spec(f"hf:{small_model},dtype=float32,attention=sdpa", Role.TRAIN))
    ids = model.encode("Once upon a time in a small village", ())
    with torch.profiler.profile() as seen:
        list(model.response(ids[:4], ids[4:]))
    assert FLASH in {event.name for event in seen.events()}


def test_a_healthy_pair_passes_what_the_suite_can_certify(desk, small_model):
    pair = f"hf:{small_model},dtype=float32", f"hf:{small_model},dtype=bfloat16"
    many = ("--samples", "24", "--max-tokens", "8")
    code, report, out = desk.certify(*pair, *many, contract="budget")
    assert code == 0
    assert {v["state"] for v in report["verdicts"]} == {"conforming"}
    assert report["certify"]["suite"]["samples"] == 24
    assert violated(judged(out, desk.folder / "contract.yaml")) == set()


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_the_same_contract_refuses_four_bits(desk, rung):
    found = judged(rung("int4")[2], desk.folder / "budget.yaml")
    assert found["exit_code"] == 1
    assert "token-tv" in violated(found)


def test_check_reads_what_was_kept(desk, rung):
    code, report, out = rung("bfloat16")
    assert code == 3  # so few responses certify nothing of this contract
    assert violated(report) == set()
    found = judged(out, desk.folder / "contract.yaml")
    assert found["exit_code"] == code
    assert json.loads(json.dumps(found["verdicts"])) == report["verdicts"]


def test_a_sampler_that_was_not_refitted_is_stale(desk, small_model, newer):
    code, report, _ = desk.certify(f"hf:{newer},dtype=float32", f"hf:{small_model},dtype=bfloat16")
    assert code == 1
    assert causes(report)[0] == "stale_weights"


@pytest.mark.thorough
def test_positions_turned_differently_drift(desk, small_model, tmp_path):
    turned = changed_rope(small_model, tmp_path / "turned", 10_000.0)
    pair = f"hf:{small_model},dtype=float32", f"hf:{turned},dtype=bfloat16"
    # the drift grows along the response
    code, report, _ = desk.certify(*pair, "--samples", "8", "--max-tokens", "64")
    assert code == 1
    assert causes(report)[0] == "position_drift"


def test_a_temperature_on_one_side_is_named(desk, small_model):
    pair = f"hf:{small_model},dtype=float32,temperature=1", f"hf:{small_model},dtype=bfloat16"
    code, report, _ = desk.certify(*pair, "--temperature", "0.6")
    assert code == 1
    assert causes(report)[0] == "temperature_mismatch"


def test_top_p_on_one_side_is_named(desk, small_model):
    pair = f"hf:{small_model},dtype=float32", f"hf:{small_model},dtype=bfloat16"
    code, report, _ = desk.certify(*pair, "--top-p", "0.9")
    assert code == 1
    assert causes(report)[0] == "support_mismatch"


def test_a_trainer_that_is_off_by_one_is_named(desk, small_model):
    report = late_by_one(desk, small_model)
    assert report["exit_code"] == 1
    assert causes(report)[0] == "shift"
