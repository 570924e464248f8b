"""`paritas certify` with llama.cpp and the Q4_1 file that the checkpoint was made from: equal weights, other kernels."""

import pytest
from engines.certify_scenes import Desk, causes, judged, learned, rolled, violated
from engines.engines_setup import why_not_here
from engines.real_model import gguf_file

from paritas.cli import main

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(why_not_here("llamacpp-python")), reason=why_not_here("llamacpp-python") or ""),
]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("desk"), "--samples", "4", "--max-tokens", "24", "--seed", "3")


@pytest.fixture(scope="module")
def inference():
    return f"llamacpp:{gguf_file()},threads=1"


@pytest.fixture(scope="module")
def healthy(desk, small_model, inference):
    return desk.certify(f"hf:{small_model},dtype=float32", inference)


def test_q4_1_is_near_its_own_weights(healthy):
    code, report, out = healthy
    assert (code, violated(report)) == (3, set())
    assert violated(judged(out, "int4")) == set()
    told = report["certify"]["divergence"]
    assert told["tv_is_exact"]
    assert 0.01 < told["tv"] < 0.06
    kernel = report["certify"]["kernels"]["inference"]
    assert (kernel["engine"], kernel["quantization"]) == ("llama.cpp", "gguf Q4_1")
    assert report["accounting"]["pairs"]["paired"] == 16


def test_four_bits_are_no_float32(healthy):
    found = judged(healthy[2], "fp32")
    assert "token-tv" in violated(found)
    assert causes(found) == ["precision_noise"]


@pytest.mark.parametrize(
    ("option", "value", "cause"),
    [("--temperature", "0.6", "temperature_mismatch"), ("--top-p", "0.9", "support_mismatch")],
)
def test_another_law_on_one_side_is_named(desk, small_model, inference, option, value, cause):
    train = f"hf:{small_model},dtype=float32,temperature=1"
    code, report, _ = desk.certify(train, inference, option, value)
    assert code == 1
    assert causes(report)[0] == cause


def test_a_file_that_was_not_refitted_is_stale(desk, small_model, inference, healthy, tmp_path):
    newer = learned(small_model, tmp_path / "newer", healthy[2] / "serve.jsonl.gz", steps=4)
    code, report, _ = desk.certify(f"hf:{newer},dtype=float32", inference)
    assert code == 1
    assert causes(report)[0] == "stale_weights"


def test_a_recording_that_is_off_by_one_is_named(desk, healthy, tmp_path):
    found = judged(rolled(healthy[2], tmp_path / "rolled"), desk.folder / "contract.yaml")
    assert found["exit_code"] == 1
    assert causes(found)[0] == "shift"


def test_files_that_hold_no_kernel(capsys, desk, small_model, tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"no")
    expected = {
        "none.gguf": ("no such file", "--inference llamacpp:FILE takes a GGUF file"),
        "a.gguf": ("is no GGUF file", "llama.cpp's convert_hf_to_gguf.py makes one"),
    }
    for name, (message, hint) in expected.items():
        kernel = f"llamacpp:{tmp_path}/{name}"
        words = ["certify", str(desk.folder / "contract.yaml"), "--train", f"hf:{small_model}"]
        assert main([*words, "--inference", kernel]) == 64
        assert capsys.readouterr().err == f"[usage] {tmp_path}/{name}: {message}\n  hint: {hint}\n"
