"""A digest of weights that each kernel makes alone: the same for equal weights, or `unknown`.

Some thousand elements are looked at, chosen by the names and shapes the weights have in a
checkpoint; so the same elements are chosen whichever way a program stores them: sharded by rows or
columns, `q`, `k` and `v` in one tensor, `gate` and `up` in one tensor, in float32 or in bfloat16.

What the digest can tell, and what not:

- Equal digests: the sampled elements are equal after rounding to bfloat16.  An update that changes a
  share f of the elements so rounded is missed with probability (1 - f)^n, n the elements sampled.
  With n = 3,000, f = 0.8 % (one Adam step of 1e-6 on weights near 0.02) is missed once in 10^10.
- Different digests: some element differs.  Both kernels should then be looked at, not trusted.
- No digest (`unknown`, an empty text on the wire): a part of the sample is not in this process, the
  dtype cannot be compared (float16, float8, int4), or the layout is not known.  Shards of one
  model can be put together with `merge`; nothing is exchanged here.
- It is no signature: who knows the plan can change what is not sampled.  Experts of a mixture,
  adapters that are not merged and encoders of pictures or sound are not looked at.
"""

from paritas.collectors.weights.digest import Digest, Unknown, digest_of, merge
from paritas.collectors.weights.engine import EngineLayout, engine_pieces
from paritas.collectors.weights.fused import Block, gate_up_pieces, qkv_pieces
from paritas.collectors.weights.sampling import Piece, Sample, Sampled, SamplePlan, sample

__all__ = [
    "Block",
    "Digest",
    "EngineLayout",
    "Piece",
    "Sample",
    "SamplePlan",
    "Sampled",
    "Unknown",
    "digest_of",
    "engine_pieces",
    "gate_up_pieces",
    "merge",
    "qkv_pieces",
    "sample",
]
