"""What rounding alone does: the least drift a limit can ask for, by number format (docs/mathematics.md G).

A model of planning numbers, not a bound: near-Gaussian log-ratios with standard deviation s.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

from paritas.contracts.model import Clause, Contract
from paritas.records import Role

__all__ = ["floor_of", "rounding_sd"]

# Half of what is usual (G4) for float formats; for quantised ones the smallest published drift
# (peers: fp8 k3 0.0014, int4 with fake quantisation mean |ell| 0.0126), so that no good kernel is accused.
ROUNDING_SD: Mapping[str, float] = MappingProxyType(
    {
        "float32": 1e-6,
        "float16": 2.5e-3,
        "bfloat16": 2e-2,
        "int8": 3e-2,
        "fp8": 5e-2,
        "int4": 2e-2,
    }
)
SPELLINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "float32": ("float32", "fp32"),
        "float16": ("float16", "fp16", "half"),
        "bfloat16": ("bfloat16", "bf16"),
        "int8": ("int8", "w8a8"),
        "fp8": ("fp8", "e4m3", "e5m2", "float8"),
        "int4": ("int4", "q4_", "awq", "gptq", "w4a16", "nf4"),
    }
)


def rounding_sd(contract: Contract) -> tuple[float, str] | None:
    """Return the sd of the log-ratio that the declared formats cause, in nats, and the coarsest format.

    None if no format is declared, or both kernels are batch-invariant, which can make them equal.
    """
    sides = [contract.kernels.get(role, {}) for role in (Role.TRAIN, Role.INFERENCE)]
    if all(side.get("batch_invariant") is True for side in sides):
        return None
    names = [
        str(side[key]).lower()
        for side in sides
        for key in ("dtype", "quantization", "kv_cache_dtype")
        if key in side
    ]
    formats = {
        fmt for fmt, words in SPELLINGS.items() for name in names if any(word in name for word in words)
    }
    if not formats:
        return None
    coarsest = max(formats, key=lambda fmt: ROUNDING_SD[fmt])
    return ROUNDING_SD[coarsest], coarsest


def floor_of(clause: Clause, sd: float, tokens: int | None) -> float | None:
    """Return what the clause's statistic shows at that sd when nothing is wrong; None if unknown.

    Parameters
    ----------
    sd : float, nats
    tokens : int or None
        Length of a response, for `sequence_tv`.

    Examples
    --------
    >>> from paritas.contracts.model import Family
    >>> clause = Clause("t", Family.NUMERICAL, "tv", at_most=0.001)
    >>> round(floor_of(clause, 0.02, None), 4)
    0.008
    """
    match clause.statistic:
        case "tv" | "tv_topk":
            return _tv(sd)
        case "sequence_tv":
            return None if tokens is None else _tv(sd * math.sqrt(tokens))
        case "ratio_tail":
            return _share_beyond(math.log(clause.above or 1.0), sd)
        case "phantom_clip_rate":
            return _share_beyond(math.log1p(clause.clip or 0.0), sd)
        case "logprob_abs_diff":
            return sd * math.sqrt(2 / math.pi)
        case "kl_k3":
            return sd * sd / 2
        case _:
            return None


def _tv(sd: float) -> float:
    """Total variation of a log-normal ratio with mean 1: 2 Phi(sd/2) - 1."""
    return math.erf(sd / (2 * math.sqrt(2)))


def _share_beyond(log_ratio: float, sd: float) -> float:
    return math.erfc(log_ratio / (sd * math.sqrt(2)))
