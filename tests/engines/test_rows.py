"""Chosen-token log-probabilities: both paths against float64, and what they hold meanwhile."""

import os
import subprocess
import sys

import pytest
import torch
from row_cases import assert_scores, rows

from paritas.collectors.torch import score_rows

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pieces_agree_with_float64(dtype, temperature):
    logits, tokens = rows(dtype)
    scores = score_rows(logits, tokens, temperature=temperature, with_rank=True)
    assert_scores(scores, logits, tokens, temperature)


def test_no_second_matrix_is_made():
    logits, tokens = torch.randn(2, 512, 8192), torch.randint(0, 8192, (2, 512))
    score_rows(logits, tokens)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        score_rows(logits, tokens)
    largest = max(event.cpu_memory_usage for event in seen.events())
    assert 0 < largest <= 4 << 20 < logits.nbytes


def test_no_graph_is_made():
    logits = torch.randn(1, 2, 10, requires_grad=True)
    assert not score_rows(logits, torch.zeros(1, 2, dtype=torch.long)).logprob.requires_grad


def test_nothing_to_score():
    assert score_rows(torch.zeros(2, 0, 10), torch.zeros(2, 0, dtype=torch.long)).logprob.shape == (2, 0)


KERNEL = """
import torch
from row_cases import assert_scores, rows
from paritas.collectors.torch import RowScores
from paritas.collectors.torch.triton_rows import score_on_gpu
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for temperature in (1.0, 0.6):
        logits, tokens = rows(dtype)
        told = score_on_gpu(logits, tokens, temperature=temperature, with_rank=True)
        assert_scores(RowScores(*told), logits, tokens, temperature)
        assert score_on_gpu(logits, tokens, temperature=temperature, with_rank=False)[1] is None
print("equal")
"""


def test_the_triton_kernel_agrees_with_float64_in_the_interpreter():
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": "tests"}
    run = subprocess.run(
        [sys.executable, "-c", KERNEL], env=environ, capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "equal", run.stderr


# Words of PTX by the type of the logits: 32 logits a thread, 16 bytes a load.
LOADS = {"fp32": 8, "bf16": 4, "fp16": 4}


@pytest.mark.parametrize("kind", LOADS)
def test_the_triton_kernel_compiles_for_a_gpu_and_loads_each_logit_once(kind, tmp_path, monkeypatch):
    """Triton's compiler needs no GPU to compile; running what it made is tested in tests/gpu."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from paritas.collectors.torch.triton_rows import BLOCK, WARPS, _compiled

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    pointers = {"logits": f"*{kind}", "tokens": "*i64", "logprob": "*fp32", "rank": "*i32"}
    numbers = {"stride_b": "i64", "stride_t": "i32", "length": "i32", "size": "i32"}
    signature = {**pointers, **numbers, "inverse_temperature": "fp32"}
    source = ASTSource(
        _compiled(),
        signature={**signature, "BLOCK": "constexpr", "WITH_RANK": "constexpr"},
        constexprs={"BLOCK": BLOCK, "WITH_RANK": True},
        # What Triton finds out at a launch: pointers, strides and a vocabulary that 16 divides.
        attrs={(place,): [["tt.divisibility", 16]] for place in (0, 1, 2, 3, 4, 5, 7)},
    )
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": WARPS})
    ptx = made.asm["ptx"]
    assert ptx.count("ld.global.v4") == LOADS[kind]
    assert ptx.count("ld.global") == LOADS[kind] + 2  # and the token's id, and the chosen logit
    assert ".local" not in ptx  # nothing is spilled
