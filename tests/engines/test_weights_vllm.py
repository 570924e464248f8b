"""Real vLLM holds the same weights fused and in bfloat16: the digest is the trainer's, or `unknown`."""

import os
import subprocess
import sys

import pytest
import torch
from engines.engines_setup import why_not_here
from transformers import AutoModelForCausalLM

from paritas.collectors.torch.weights import weights_digest

pytestmark = pytest.mark.timeout(1800)

# Where a processor has kernels that want it, the CPU build repacks linear layers and drops the originals: told to
# keep them it holds what a GPU build holds.  What it does otherwise is asked first.
ENGINE = """
import sys
import vllm.model_executor.layers.utils as utils
from vllm import LLM
from paritas.collectors.torch.weights import named_blocks
from paritas.collectors.weights import EngineLayout, SamplePlan, Unknown, digest_of, engine_pieces, sample

packed = utils.dispatch_cpu_unquantized_gemm
if sys.argv[2] == "keep":
    utils.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: packed(layer, remove_weight=False)

def look(model):
    pieces = engine_pieces(named_blocks(model), EngineLayout(heads=9, kv_heads=3, head_dim=64, intermediate=1536))
    if isinstance(pieces, Unknown):
        return pieces.value
    return digest_of(sample(SamplePlan(), pieces), layers=30).text

if __name__ == "__main__":
    llm = LLM(sys.argv[1], dtype="bfloat16", max_model_len=256, enforce_eager=True)
    print("DIGEST", *llm.apply_model(look))
"""


def engines_word(small_model, folder, how):
    script = folder / "engine.py"
    script.write_text(ENGINE)
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
        "PARITAS_ENABLED": "0",
    }
    run = subprocess.run(
        [sys.executable, str(script), str(small_model), how],
        env={**os.environ, **settings},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line.split()[1] for line in run.stdout.splitlines() if line.startswith("DIGEST")]
    assert told, run.stderr[-2000:]
    return told[0]


@pytest.fixture
def trainers_digest(small_model):
    return weights_digest(AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32)).text


@pytest.mark.skipif(bool(why_not_here("vllm")), reason=why_not_here("vllm") or "")
def test_trainer_and_engine_agree_on_equal_weights(small_model, tmp_path, trainers_digest):
    assert engines_word(small_model, tmp_path, "keep") == trainers_digest != ""


@pytest.mark.thorough
@pytest.mark.skipif(bool(why_not_here("vllm")), reason=why_not_here("vllm") or "")
def test_weights_that_may_be_repacked_are_unknown_or_the_trainers(small_model, tmp_path, trainers_digest):
    """Whether they are is the processor's affair; another digest they never have."""
    assert engines_word(small_model, tmp_path, "pack") in ("layout", trainers_digest)
