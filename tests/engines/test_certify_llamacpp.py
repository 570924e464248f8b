"""`paritas certify` with llama.cpp and the Q4_1 file that the checkpoint was made from: equal weights, other kernels."""

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not in this environment")

from engines.certify_scenes import Desk, violated
from engines.real_model import gguf_file

from paritas.cli import main

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("desk"), "--samples", "2", "--max-tokens", "24", "--seed", "3")


def test_q4_1_is_near_its_own_weights(desk, small_model):
    _, report, _ = desk.certify(f"hf:{small_model},dtype=float32", f"llamacpp:{gguf_file()}")
    assert violated(report) == set()
    told = report["certify"]["divergence"]
    assert told["tv_is_exact"]
    assert 0.01 < told["tv"] < 0.06
    assert report["certify"]["kernels"]["inference"]["engine"] == "llama.cpp"


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
