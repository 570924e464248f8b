"""From total variation to reward and metrics (docs/mathematics.md C1 to C7).

``tv`` is the total variation of the two response laws for one prompt; averaged over prompts
every bound here keeps its form with the mean TV.  A slice with a share s of the traffic may
drift by mean TV / s: certify slices separately.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paritas.contracts.bounds.numerics import (
    LARGEST,
    Array,
    Interval,
    binary_kl,
    checked,
    union_of_independent,
)
from paritas.contracts.bounds.ratio import capped_ratio

__all__ = [
    "accuracy_interval_from_kl",
    "best_of_n_drift",
    "choice_is_stable",
    "k_sample_drift",
    "nll_drift_from_oscillation",
    "reward_drift_from_chi2",
    "reward_drift_from_tv",
    "reward_drift_statistics",
]

BISECTIONS = 1100  # halvings until neighbouring floats, from 1 down to the smallest


def reward_drift_from_tv(tv: ArrayLike, reward_range: ArrayLike = 1.0) -> Array:
    """Bound the drift of a mean reward: (R_max - R_min) TV (C1).

    Sharp: R = 1 where p > q.  Also accuracy, pass@1, avg@k and win rate against a fixed
    opponent; for two drifting systems add their TVs.

    Parameters
    ----------
    tv : probability, any shape
    reward_range : reward units
        R_max - R_min.

    Examples
    --------
    >>> float(reward_drift_from_tv(0.02, 2.0))
    0.04
    """
    return checked(tv, "tv", high=1.0) * checked(reward_range, "reward_range", high=LARGEST)


def reward_drift_from_chi2(reward_variance: ArrayLike, chi2: ArrayLike) -> Array:
    """Bound the drift of a mean reward: sqrt(Var_q(R) chi-square(p,q)) (C2).

    Sharp: R = p/q.  Holds for unbounded rewards; p must have no mass that q lacks.

    Parameters
    ----------
    reward_variance : reward units squared, any shape
    chi2 : dimensionless
    """
    variance, divergence = checked(reward_variance, "reward_variance"), checked(chi2, "chi2")
    with np.errstate(invalid="ignore"):
        product = np.sqrt(variance) * np.sqrt(divergence)
    return np.where((variance == 0.0) | (divergence == 0.0), 0.0, product)[()]


def k_sample_drift(tv: ArrayLike, k: ArrayLike) -> Array:
    """Bound the drift of pass@k, majority vote, or any [0,1] function of k samples: 1-(1-TV)^k (C3).

    Sharp for pass@k.

    Parameters
    ----------
    tv : probability, any shape
    k : samples

    Examples
    --------
    >>> round(float(k_sample_drift(0.01, 8)), 6)
    0.077255
    """
    return union_of_independent(checked(tv, "tv", high=1.0), checked(k, "k"))


def best_of_n_drift(tv: ArrayLike, n: ArrayLike, reward_range: ArrayLike = 1.0) -> Array:
    """Bound the drift of the best-of-n reward under any verifier: range (1-(1-TV)^n) (C4).

    Sharp.  Arguments and units as in `k_sample_drift` and `reward_drift_from_tv`.
    """
    return k_sample_drift(tv, n) * checked(reward_range, "reward_range", high=LARGEST)


def accuracy_interval_from_kl(accuracy: ArrayLike, kl: ArrayLike) -> Interval:
    """Enclose the other kernel's accuracy: every a with kl(accuracy, a) <= KL(q,p) (C5).

    Sharp for a coin.  Far inside C1 for accuracies near 0 or 1.

    Parameters
    ----------
    accuracy : probability, any shape
        Of the inference kernel.
    kl : nats, broadcast against it
        KL(q,p) of the response laws.

    Examples
    --------
    >>> [round(float(x), 4) for x in accuracy_interval_from_kl(0.99, 1e-3)]
    [0.9849, 0.9938]
    """
    a, k = np.broadcast_arrays(checked(accuracy, "accuracy", high=1.0), checked(kl, "kl"))
    lower = _farthest_within(a, np.zeros_like(a), k)
    return Interval(lower, _farthest_within(a, np.ones_like(a), k))


def _farthest_within(start: Array, end: Array, kl: Array) -> Array:
    """Bisect from `start` towards `end` for the first point with kl(start, x) above `kl`."""
    near, far = np.where(binary_kl(start, end) <= kl, end, start), end
    for _ in range(BISECTIONS):
        middle = near + (far - near) / 2.0
        if ((middle == near) | (middle == far)).all():
            break
        held = binary_kl(start, middle) <= kl
        near, far = np.where(held, middle, near), np.where(held, far, middle)
    return far[()]


def reward_drift_statistics(log_ratio: ArrayLike, reward: ArrayLike, cap: ArrayLike) -> Interval:
    """Return per-response statistics whose means enclose the reward drift itself (C6).

    ``E[-(1 - min(W,C)) R] <= E_P R - E_Q R <= E[(1 - min(W,C)) (1-R)]``, supports arbitrary,
    no chain needed.  Equality when no W exceeds C and no mass is missing; the width is
    1 - E min(W,C).

    Parameters
    ----------
    log_ratio : shape (n,), nats
        Summed over each response.
    reward : shape (n,), in [0, 1]
        Rescale other ranges, and the result by the range.
    cap : ratio
        C, at least 1.

    Returns
    -------
    Interval of shape (n,)
        Lower statistic in [-1, C-1], upper in [1-C, 1].
    """
    gap = 1.0 - capped_ratio(log_ratio, cap)
    r = checked(reward, "reward", high=1.0)
    return Interval(-gap * r + 0.0, gap * (1.0 - r) + 0.0)


def nll_drift_from_oscillation(oscillation: ArrayLike) -> Array:
    """Bound the drift of the mean log-loss on fixed text, per token: D (C7).

    Sharp as a supremum, at the pair of A1.  Nats per token.
    """
    return checked(oscillation, "oscillation") + 0.0


def choice_is_stable(score_margin: ArrayLike, log_ratio_gap: ArrayLike) -> NDArray[np.bool_]:
    """Say where a multiple-choice answer cannot flip: margin > difference of summed ell (C7).

    Sharp: at equality the two options tie.

    Parameters
    ----------
    score_margin : nats, any shape
        Score of the chosen option minus that of the other, inference kernel.
    log_ratio_gap : nats
        Absolute difference of the two options' summed log-ratios.
    """
    return checked(score_margin, "score_margin") > checked(log_ratio_gap, "log_ratio_gap")
