"""The Triton kernel of `score_rows`: one program a row, one read of the row.

Nothing here is reached without CUDA, but for the test that runs it in Triton's interpreter.
The maximum and the sum are carried together over blocks of the row (the online softmax of
Milakov and Gimelshein, arXiv:1805.02867), so each logit is loaded once.
"""

from __future__ import annotations  # the kernel's annotations are for Triton, which reads them as text

import importlib
from functools import cache
from typing import Any

from paritas.collectors.torch.backend import Tensor, has_triton, pytorch

__all__ = ["score_on_gpu"]

# The kernel below finds this name in its module, so it must be here; absent Triton, nothing calls it.
tl: Any = importlib.import_module("triton.language") if has_triton() else None

BLOCK = 8192  # logits a step of the loop: 16 KiB of bfloat16, enough loads under way to fill the memory bus
WARPS = 8


def _score_row(  # noqa: PLR0913, PLR0917 -- a kernel takes pointers and strides one by one
    logits: tl.tensor,
    tokens: tl.tensor,
    logprob: tl.tensor,
    rank: tl.tensor,
    stride_b: tl.tensor,
    stride_t: tl.tensor,
    length: tl.tensor,
    size: tl.tensor,
    inverse_temperature: tl.tensor,
    BLOCK: tl.constexpr,  # noqa: N803 -- constants are written so in kernels
    WITH_RANK: tl.constexpr,  # noqa: N803 -- the same
) -> None:
    row = tl.program_id(0).to(tl.int64)
    token = tl.load(tokens + row)
    known = (token >= 0) & (token < size)
    start = logits + (row // length) * stride_b + (row % length) * stride_t
    chosen = tl.load(start + tl.where(known, token, 0)).to(tl.float32)
    highest = float("-inf")
    total = 0.0
    above = 0
    for first in range(0, tl.where(known, size, 0), BLOCK):  # nothing is read for a token outside
        place = first + tl.arange(0, BLOCK)
        x = tl.load(start + place, mask=place < size, other=float("-inf")).to(tl.float32)
        scaled = x * inverse_temperature
        now = tl.maximum(highest, tl.max(scaled, 0))
        # A block of -inf alone would give -inf - -inf; shifted by nothing it adds nothing.
        shift = tl.where(now == float("-inf"), 0.0, now)
        total = total * tl.exp(highest - shift) + tl.sum(tl.exp(scaled - shift), 0)
        highest = now
        if WITH_RANK:
            above += tl.sum(((x >= chosen) & (place < size)).to(tl.int32), 0)
    score = (chosen * inverse_temperature - highest) - tl.log(total)
    tl.store(logprob + row, tl.where(known, score, float("nan")))
    if WITH_RANK:
        tl.store(rank + row, above)


@cache
def _compiled() -> Any:
    return importlib.import_module("triton").jit(_score_row)


def score_on_gpu(
    logits: Tensor, tokens: Tensor, *, temperature: float, with_rank: bool
) -> tuple[Tensor, Tensor | None]:
    """Score all rows with one launch on the current stream; arguments and results as of `score_rows`."""
    torch = pytorch()
    if logits.stride(-1) != 1:
        logits = logits.contiguous()
    logprob = torch.empty(tokens.shape, dtype=torch.float32, device=logits.device)
    rank = torch.empty(tokens.shape if with_rank else 1, dtype=torch.int32, device=logits.device)
    if tokens.numel():
        with torch.cuda.device_of(logits):  # a launch goes to the device of now
            _compiled()[(tokens.numel(),)](
                logits,
                tokens.contiguous(),
                logprob,
                rank,
                logits.stride(0),
                logits.stride(1),
                tokens.shape[1],
                logits.shape[-1],
                1.0 / temperature,
                BLOCK=BLOCK,
                WITH_RANK=with_rank,
                num_warps=WARPS,
            )
    return logprob, rank if with_rank else None
