"""What the falsification experiment tries to break: objectives in one context at a time.

Each statement computes a true quantity by enumeration, from its definition, and the bound from
`contracts.bounds`, for many cases at once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.laws import BANDIT, Laws, Size, decode, log_softmax, norm
from paritas.commands.experiments.result import Floats
from paritas.contracts.bounds import (
    bias_from_oscillation,
    bias_statistic,
    confidence_drift_from_tv,
    excess,
    gradient_bias,
    k3,
    tv_from_oscillation,
)
from paritas.contracts.model import Estimator

__all__ = ["CLIP", "ESTIMATORS", "TOKEN_STATEMENTS", "Judged", "Statement", "update_bias", "weights_of"]

CLIP, CAP, LOW = 0.2, 2.0, 0.5
KL_PRICE = 0.3
ESTIMATORS = {
    "none": Estimator("none"),
    "tis": Estimator("tis", cap=CAP),
    "clip": Estimator("clip", clip=CLIP),
    "mis": Estimator("mis", cap=CAP, low=LOW),
    "ppo_min": Estimator("ppo_min", clip=CLIP),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """Truth and bound of n cases, and which of them stand on what the certificate assumes."""

    truth: Floats
    bound: Floats
    stands: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Statement:
    """One certificate under test.

    Attributes
    ----------
    objective : str
        What is trained, or what quantity is certified.
    certificate : str
        The bound, with its number in docs/mathematics.md.
    assumes : str
        What it rests on.
    judge : callable
        Cases of shape (n, size.width) in, `Judged` out.
    """

    name: str
    objective: str
    certificate: str
    assumes: str
    size: Size
    judge: Callable[[Floats], Judged]


def weights_of(kind: str, laws: Laws, advantage: Floats) -> Floats:
    """Weight each estimator gives an action, from its definition, shape (n, s, v)."""
    w = laws.ratio
    match kind:
        case "none":
            return np.ones_like(w)
        case "tis":
            return np.minimum(w, CAP)
        case "clip":
            return np.clip(w, 1.0 - CLIP, 1.0 + CLIP)
        case "mis":
            return np.where((w >= LOW) & (w <= CAP), w, 0.0)
        case _:
            # derivative of min(r A, clip(r) A) in r, times r, at r = w (PPO before any update)
            flat = ((advantage > 0.0) & (w > 1.0 + CLIP)) | ((advantage < 0.0) & (w < 1.0 - CLIP))
            return np.where(flat, 0.0, w)


def update_bias(laws: Laws, weights: Floats, advantage: Floats) -> Floats:
    """Norm of the expected update from q's samples minus the gradient under p, shape (n,)."""
    pull = (laws.q * weights - laws.p) * advantage
    return norm(np.einsum("ns,nsv,nsvd->nd", laws.weight, pull, laws.score))


def _token_bias(kind: str) -> Callable[[Floats], Judged]:
    def judge(case: Floats) -> Judged:
        laws = decode(case, BANDIT)
        return _judged_bias(laws, kind, laws.advantage)

    return judge


def _judged_bias(laws: Laws, kind: str, advantage: Floats) -> Judged:
    beta = laws.mean(bias_statistic(laws.log_ratio, ESTIMATORS[kind], advantage=advantage))
    largest = np.abs(advantage).max(axis=(1, 2))
    bound = gradient_bias(np.maximum(beta, 0.0), advantage=largest, score_norm=laws.score_norm)
    return Judged(update_bias(laws, weights_of(kind, laws, advantage), advantage), bound, _all(laws))


def _all(laws: Laws) -> NDArray[np.bool_]:
    return np.ones(len(laws.p), dtype=np.bool_)


def _penalised(case: Floats) -> Judged:
    """RLHF: reward minus a price on KL(p, reference); its gradient has the advantage A - price log(p/ref)."""
    laws = decode(case, BANDIT)
    reference = log_softmax(laws.other)
    advantage = laws.advantage - KL_PRICE * (np.log(laws.p) - reference)
    return _judged_bias(laws, "tis", advantage)


def _from_oscillation(kind: str) -> Callable[[Floats], Judged]:
    def judge(case: Floats) -> Judged:
        laws = decode(case, BANDIT)
        beta = np.einsum(
            "ns,ns->n", laws.weight, bias_from_oscillation(np.ptp(laws.drift, axis=-1), ESTIMATORS[kind])
        )
        bound = gradient_bias(beta, advantage=laws.largest_advantage, score_norm=laws.score_norm)
        truth = update_bias(laws, weights_of(kind, laws, laws.advantage), laws.advantage)
        return Judged(truth, bound, ~laws.missing)

    return judge


def _trust_region(case: Floats) -> Judged:
    """TRPO: TV is at most the root of twice the cut KL statistic, supports arbitrary."""
    laws = decode(case, BANDIT)
    cut = laws.mean(np.minimum(k3(laws.log_ratio), 1.0))
    return Judged(np.einsum("ns,ns->n", laws.weight, laws.tv), np.sqrt(2.0 * cut), _all(laws))


def _cut_kl(case: Floats) -> Judged:
    """TRPO: the cut statistic never exceeds the KL(q, p) it stands for."""
    laws = decode(case, BANDIT)
    kl = -laws.mean(laws.log_ratio)
    return Judged(laws.mean(np.minimum(k3(laws.log_ratio), 1.0)), kl, _all(laws))


def _token_tv(case: Floats) -> Judged:
    laws = decode(case, BANDIT)
    bound = np.einsum("ns,ns->n", laws.weight, tv_from_oscillation(np.ptp(laws.drift, axis=-1)))
    return Judged(np.einsum("ns,ns->n", laws.weight, laws.tv), bound, ~laws.missing)


def _confidence(case: Floats) -> Judged:
    """Calibration: drift of the mean top-1 confidence."""
    laws = decode(case, BANDIT)
    drift = np.einsum("ns,ns->n", laws.weight, laws.p.max(axis=-1) - laws.q.max(axis=-1))
    tv = np.einsum("ns,ns->n", laws.weight, laws.tv)
    return Judged(np.abs(drift), confidence_drift_from_tv(tv), _all(laws))


def _lost_support(case: Floats) -> Judged:
    """The excess statistic misses the missing mass (A19): a bound on TV only where none is."""
    laws = decode(case, BANDIT)
    return Judged(
        np.einsum("ns,ns->n", laws.weight, laws.tv), laws.mean(excess(laws.log_ratio)), ~laws.missing
    )


_ANY, _FULL = "score norm G", "score norm G, full support"
TOKEN_STATEMENTS = (
    Statement(
        "pg-uncorrected", "policy gradient, no weights", "2 A G TV (D2)", _ANY, BANDIT, _token_bias("none")
    ),
    Statement(
        "pg-tis", "policy gradient, min(w, 2)", "A G (1 - E min(w, 2)) (D3)", _ANY, BANDIT, _token_bias("tis")
    ),
    Statement(
        "pg-clip",
        "policy gradient, clip(w, 0.8, 1.2)",
        "D3 statistic of clip",
        _ANY,
        BANDIT,
        _token_bias("clip"),
    ),
    Statement(
        "pg-mis",
        "policy gradient, w if in [0.5, 2]",
        "A G (1 - E w 1{kept}) (D3)",
        _ANY,
        BANDIT,
        _token_bias("mis"),
    ),
    Statement(
        "ppo-clip", "PPO clip 0.2", "A G (1 - E w 1{kept}) (D3, D10)", _ANY, BANDIT, _token_bias("ppo_min")
    ),
    Statement(
        "rlhf-kl",
        "reward - 0.3 KL(p, ref), min(w, 2)",
        "A' G (1 - E min(w, 2)) (D3)",
        _ANY,
        BANDIT,
        _penalised,
    ),
    Statement(
        "pg-prior",
        "policy gradient, no weights",
        "2 A G tanh(D/4) (A2, D2)",
        _FULL,
        BANDIT,
        _from_oscillation("none"),
    ),
    Statement(
        "tis-prior",
        "policy gradient, min(w, 2)",
        "A G times D4 of D",
        _FULL,
        BANDIT,
        _from_oscillation("tis"),
    ),
    Statement(
        "trpo-tv",
        "TRPO trust region: TV",
        "sqrt(2 E min(k3, 1)) (A10, A19)",
        "nothing",
        BANDIT,
        _trust_region,
    ),
    Statement("trpo-kl", "TRPO: E min(k3, 1)", "KL(q, p) (A4)", "nothing", BANDIT, _cut_kl),
    Statement("token-tv", "total variation", "tanh(D/4) (A2)", "full support", BANDIT, _token_tv),
    Statement("tv-excess", "total variation", "E (w - 1)+ (A19)", "full support", BANDIT, _lost_support),
    Statement("confidence", "drift of top-1 confidence", "TV (E1)", "nothing", BANDIT, _confidence),
)
