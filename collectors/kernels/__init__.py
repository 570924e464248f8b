"""Kernels that can be asked on purpose: one draws tokens, one scores them; for `paritas certify`.

A kernel is opened from a text such as ``hf:DIR,dtype=bfloat16`` (`parse_spec`, `open_sampler`,
`open_scorer`).  `hf` and `llamacpp` run in this process and hold whole distributions; `vllm`
is asked over HTTP and tells what its interface tells.  PyTorch and the others are looked up
when a kernel of theirs is opened, not before.
"""

from paritas.collectors.kernels.kernel import Answer, Ask, Decoder, Forward, Sampler, Scored, Scorer
from paritas.collectors.kernels.local import LocalSampler, LocalScorer
from paritas.collectors.kernels.opening import open_sampler, open_scorer, open_twice
from paritas.collectors.kernels.prompts import Prompt, read_prompts
from paritas.collectors.kernels.spec import KernelSpec, parse_spec
from paritas.collectors.kernels.suite import Suite, asks_of, run_suite, scoring_law
from paritas.collectors.kernels.twice import Twice

__all__ = [
    "Answer",
    "Ask",
    "Decoder",
    "Forward",
    "KernelSpec",
    "LocalSampler",
    "LocalScorer",
    "Prompt",
    "Sampler",
    "Scored",
    "Scorer",
    "Suite",
    "Twice",
    "asks_of",
    "open_sampler",
    "open_scorer",
    "open_twice",
    "parse_spec",
    "read_prompts",
    "run_suite",
    "scoring_law",
]
