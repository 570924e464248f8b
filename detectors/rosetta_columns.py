"""What peers average: columns over tokens and over sequences, as their sources compute them.

`ell` is log p - log q of a token in nats, `w = exp(ell)`, W the product of w over a sequence.
Where a peer clamps before it averages, its column does so too; nothing else is repaired.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.evidence import PairBatch, segment_sum
from paritas.detectors.pairs import Floats

__all__ = ["SEQUENCE", "SPREAD", "TIS_CAP", "TOKEN", "columns_of"]

CLAMP_NATS = 20.0  # verl, SkyRL, ms-swift and slime's helper clamp ell before they square or exponentiate
CLAMPED_RATIO = (math.exp(-CLAMP_NATS), math.exp(CLAMP_NATS))
CLAMPED_K3 = (math.expm1(CLAMP_NATS) - CLAMP_NATS, math.expm1(-CLAMP_NATS) + CLAMP_NATS)
LN2 = math.log(2.0)
KL_CEILING = 10.0  # ms-swift cuts a token's k3 there
TIS_CAP = 2.0  # default of verl, slime, SkyRL and ms-swift
TRL_CAP = 3.0  # TRL masks a sequence beyond it
SKYRL_SEQUENCE_CAP = 5.0
SKYRL_GEOMETRIC = (0.99, 1.01)
SKYRL_PRODUCT = (0.5, 2.0)

# The first columns over tokens, of which some peer prints a spread or a correlation.
SPREAD = 8

TOKEN: Mapping[str, int] = MappingProxyType(
    {
        name: place
        for place, name in enumerate(
            (
                *("gap", "size", "k3", "truncated", "banded", "p", "q", "p_plus_q"),
                *("ell", "k1", "k2", "k3_safe", "k3_cut", "k3_reverse", "mult", "js"),
                *("w", "w_finite", "w_safe", "w_safe2", "above", "below"),
            )
        )
    }
)

SEQUENCE: Mapping[str, int] = MappingProxyType(
    {
        name: place
        for place, name in enumerate(
            (
                *("truncated", "size", "mult", "w", "w_gap", "above", "k1", "k3", "w_safe2"),
                *("log_ppl_p", "log_ppl_q", "ppl_p", "ppl_q", "ppl_gap", "ppl_size", "ppl_ratio"),
                *("product2", "geometric2", "masked", "deviation", "raw_high", "raw_low"),
                *("product_capped", "geometric_high", "geometric_low", "product_high", "product_low"),
                *("sum_k1", "sum_k2", "sum_k3", "mean_k1", "mean_k2", "mean_k3", "max_k2", "max_k3"),
                *("weighted_sum_k1", "weighted_sum_k2", "weighted_sum_k3"),
                *("weighted_max_k2", "weighted_max_k3"),
            )
        )
    }
)


def columns_of(batch: PairBatch) -> tuple[Floats, Floats]:
    """Return the columns over tokens, shape (len(TOKEN), m), and over sequences, (len(SEQUENCE), n).

    Sequences without tokens must have been left out.
    """
    with np.errstate(all="ignore"):  # peers print inf and nan for a lost token
        tokens = _tokens(batch.log_ratio, batch.logprob_q)
        by_name = _sequences(batch, {name: tokens[place] for name, place in TOKEN.items()})
    return tokens, np.stack([by_name[name] for name in SEQUENCE])


def _tokens(ell: Floats, log_q: Floats) -> Floats:
    """One exp, one expm1 and one log1p of the ratio make every column; no other passes over tokens."""
    rise, w = np.expm1(ell), np.exp(ell)
    size, k3, w_safe = np.abs(ell), rise - ell, np.clip(w, *CLAMPED_RATIO)
    p, q = np.exp(log_q + ell), np.exp(log_q)
    k3_safe = np.where(size > CLAMP_NATS, np.where(ell > 0, *CLAMPED_K3), k3)
    safe = np.clip(ell, -CLAMP_NATS, CLAMP_NATS)
    told = {
        "gap": np.abs(p - q),
        "size": size,
        "k3": k3,
        "truncated": np.minimum(w_safe, TIS_CAP),
        "banded": np.clip(w_safe, 1.0 / TIS_CAP, TIS_CAP),
        "p": p,
        "q": q,
        "p_plus_q": p + q,
        "ell": ell,
        "k1": -safe,
        "k2": safe**2 / 2.0,
        "k3_safe": k3_safe,
        "k3_cut": np.minimum(k3_safe, KL_CEILING),
        "k3_reverse": ell - np.where(np.isinf(w), 1.0, rise / w),
        "mult": np.maximum(w, 1.0 / w),
        "js": _log_cosh_half(size, rise, w),
        "w": w,
        "w_finite": np.where(np.isfinite(w), w, 0.0),
        "w_safe": w_safe,
        "w_safe2": w_safe**2,
        "above": w_safe > TIS_CAP,
        "below": w_safe < 1.0 / TIS_CAP,
    }
    out = np.empty((len(TOKEN), len(ell)))
    for name, place in TOKEN.items():
        out[place] = told[name]
    return out


def _log_cosh_half(size: Floats, rise: Floats, w: Floats) -> Floats:
    """log cosh(ell/2): half the k3 of p and of q against their mixture m, for p/m + q/m = 2."""
    near = 0.5 * np.log1p(rise * rise / (4.0 * w))
    return np.where(size > CLAMP_NATS, size / 2.0 - LN2, near)


def _sequences(batch: PairBatch, token: Mapping[str, Floats]) -> dict[str, Floats]:
    offsets, length = batch.offsets, np.diff(batch.offsets).astype(np.float64)
    sums = {name: segment_sum(column, offsets) for name, column in token.items()}
    means = {name: total / length for name, total in sums.items()}
    geometric = np.clip(means["ell"], -CLAMP_NATS, CLAMP_NATS)
    product = np.clip(sums["ell"], -CLAMP_NATS, CLAMP_NATS)
    log_q = segment_sum(batch.logprob_q, offsets) / length
    told = {name: means[name] for name in ("truncated", "size", "mult", "w", "above", "k3", "w_safe2")}
    told |= {"k1": -means["ell"], "w_gap": segment_sum(np.abs(token["w"] - 1.0), offsets) / length}
    told |= _perplexities(log_q + means["ell"], log_q)
    told |= _weights(np.exp(sums["ell"]), np.exp(product), np.exp(geometric))
    told |= {
        "deviation": np.abs(means["truncated"] - 1.0),
        "raw_high": (means["w_safe"] > TIS_CAP).astype(np.float64),
        "raw_low": (means["w_safe"] < 1.0 / TIS_CAP).astype(np.float64),
    }
    return told | _rejections(token, offsets, (sums, means), length)


def _perplexities(log_p: Floats, log_q: Floats) -> dict[str, Floats]:
    gap = log_q - log_p
    return {
        "log_ppl_p": -log_p,
        "log_ppl_q": -log_q,
        "ppl_p": np.exp(-log_p),
        "ppl_q": np.exp(-log_q),
        "ppl_gap": gap,
        "ppl_size": np.abs(gap),
        "ppl_ratio": np.exp(gap),
    }


def _weights(raw: Floats, product: Floats, geometric: Floats) -> dict[str, Floats]:
    """Weights of whole sequences: `raw` W, and product and geometric mean of clamped ratios."""
    told = {
        "product_capped": product > SKYRL_SEQUENCE_CAP,
        "geometric_high": geometric > SKYRL_GEOMETRIC[1],
        "geometric_low": geometric < SKYRL_GEOMETRIC[0],
        "product_high": product > SKYRL_PRODUCT[1],
        "product_low": product < SKYRL_PRODUCT[0],
    }
    shares = {name: flag.astype(np.float64) for name, flag in told.items()}
    masked = np.where(raw > TRL_CAP, 0.0, raw)
    return shares | {"product2": product**2, "geometric2": geometric**2, "masked": masked}


def _rejections(
    token: Mapping[str, Floats],
    offsets: NDArray[np.int64],
    parts: tuple[Mapping[str, Floats], Mapping[str, Floats]],
    length: Floats,
) -> dict[str, Floats]:
    """verl's rejection statistics: k1 to k3 summed, averaged, and at their largest, over a sequence."""
    sums, means = parts
    kinds = {"k1": "k1", "k2": "k2", "k3": "k3_safe"}
    told = {f"sum_{kind}": sums[name] for kind, name in kinds.items()}
    told |= {f"mean_{kind}": means[name] for kind, name in kinds.items()}
    largest = {kind: np.maximum.reduceat(token[kinds[kind]], offsets[:-1]) for kind in ("k2", "k3")}
    told |= {f"max_{kind}": value for kind, value in largest.items()}
    # verl spreads a sequence's number over its tokens before it averages, so long ones count more
    weighted = {name: told[name] * length for name in ("sum_k1", "sum_k2", "sum_k3", "max_k2", "max_k3")}
    return told | {f"weighted_{name}": value for name, value in weighted.items()}
