"""`paritas certify` against a real vLLM server: the healthy pair is quiet, and faults are named."""

import pytest
from engines.certify_scenes import Desk, causes, changed_rope, judged, learned, rolled, violated
from engines.engines_setup import why_not_here
from engines.vllm_scenes import environment, serving

DRAWING = ("--samples", "8", "--max-tokens", "24", "--seed", "3")
pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(bool(why_not_here("vllm")), reason=why_not_here("vllm") or ""),
]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("desk"), *DRAWING)


@pytest.fixture(scope="module")
def inference(small_model, tmp_path_factory):
    """A server that reports the law tokens are drawn from, in bfloat16."""
    folder = tmp_path_factory.mktemp("vllm")
    options = ("--logprobs-mode", "processed_logprobs")
    with serving(small_model, folder, environment(folder), *options) as served:
        yield f"vllm:{served.url}"


@pytest.fixture(scope="module")
def healthy(desk, small_model, inference):
    return desk.certify(f"hf:{small_model},dtype=float32", inference)


def test_a_real_vllm_is_healthy(healthy):
    code, report, _ = healthy
    assert (code, violated(report)) == (3, set())
    told = report["certify"]["divergence"]
    assert not told["tv_is_exact"]
    assert 0.005 < told["tv"] < 0.04
    kernel = report["certify"]["kernels"]["inference"]
    assert (kernel["engine"], kernel["dtype"]) == ("vllm", "bfloat16")
    assert report["accounting"]["pairs"]["paired"] == 32


@pytest.mark.thorough
def test_a_temperature_on_one_side_is_named(desk, small_model, inference):
    train = f"hf:{small_model},dtype=float32,temperature=1"
    code, report, _ = desk.certify(train, inference, "--temperature", "0.6")
    assert report["certify"]["laws"]["drawn"]["semantics"] == "processed"
    assert code == 1
    assert causes(report)[0] == "temperature_mismatch"


@pytest.mark.thorough
def test_the_same_temperature_on_both_sides_is_healthy(desk, small_model, inference):
    _, report, _ = desk.certify(f"hf:{small_model},dtype=float32", inference, "--temperature", "0.6")
    assert report["certify"]["laws"]["scored"]["temperature"] == 0.6
    assert violated(report) == set()


def test_top_p_on_one_side_is_named(desk, small_model, inference):
    code, report, _ = desk.certify(f"hf:{small_model},dtype=float32", inference, "--top-p", "0.9")
    assert code == 1
    assert causes(report)[0] == "support_mismatch"


@pytest.mark.thorough
def test_a_server_that_was_not_refitted_is_stale(desk, small_model, inference, healthy, tmp_path):
    newer = learned(small_model, tmp_path / "newer", healthy[2] / "serve.jsonl.gz", steps=4)
    code, report, _ = desk.certify(f"hf:{newer},dtype=float32", inference)
    assert code == 1
    assert causes(report)[0] == "stale_weights"


@pytest.mark.thorough
def test_positions_turned_differently_drift(desk, small_model, inference, tmp_path):
    turned = changed_rope(small_model, tmp_path / "turned", 10_000.0)
    code, report, _ = desk.certify(f"hf:{turned},dtype=float32", inference, "--max-tokens", "64")
    assert code == 1
    assert causes(report)[0] == "position_drift"


def test_a_recording_that_is_off_by_one_is_named(desk, healthy, tmp_path):
    found = judged(rolled(healthy[2], tmp_path / "rolled"), desk.folder / "contract.yaml")
    assert found["exit_code"] == 1
    assert causes(found)[0] == "shift"
