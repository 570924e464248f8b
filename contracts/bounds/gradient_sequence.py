"""Policy-gradient bias over whole responses (docs/mathematics.md D11, D12), in units of A_max G.

Token-level weights fix the action at each step, never the prefix it is taken in: they
remove a 1/H share of the worst case.
"""

import numpy as np
from numpy.typing import ArrayLike

from paritas.contracts.bounds.numerics import LARGEST, Array, checked
from paritas.contracts.bounds.sequence import sequence_chi2_from_oscillation

__all__ = [
    "outcome_bias_from_sup",
    "sequence_bias_from_chi2",
    "sequence_bias_from_oscillation",
    "sequence_bias_from_prefix_tv",
    "token_weighted_bias_from_sup",
    "truncated_sequence_bias",
    "uncorrected_bias_from_sup",
]


def sequence_bias_from_prefix_tv(prefix_tv: ArrayLike) -> Array:
    """Bound the summed bias over steps by prefix total variations: 2 sum TV (D11).

    With token-level weights pass TV of the prefixes *before* each step, uncorrected that of
    the prefixes *including* it.  Advantages may depend on prefix and token.  Sharp: drift in
    the first token only.

    Parameters
    ----------
    prefix_tv : shape (..., H), probability
    """
    total: Array = checked(prefix_tv, "prefix_tv", high=1.0).sum(axis=-1)
    return 2.0 * total


def token_weighted_bias_from_sup(token_tv_sup: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound the bias left by token-level weights: min(a H(H-1), 2(H-1)) (D11).

    Sharp to first order in a when supports differ.

    Parameters
    ----------
    token_tv_sup : probability, any shape
    horizon : tokens, at least 1
    """
    a, steps = checked(token_tv_sup, "token_tv_sup", high=1.0), _steps(horizon)
    return (steps - 1.0) * np.minimum(a * steps, 2.0)


def uncorrected_bias_from_sup(token_tv_sup: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound the bias without any weight: min(a H(H+1), 2H) (D11).  Arguments as above.

    Examples
    --------
    >>> round(float(uncorrected_bias_from_sup(1e-6, 1000)), 4)
    1.001
    """
    a, steps = checked(token_tv_sup, "token_tv_sup", high=1.0), _steps(horizon)
    return steps * np.minimum(a * (steps + 1.0), 2.0)


def outcome_bias_from_sup(token_tv_sup: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound the bias left by token-level weights under an outcome advantage: 2 a H(H-1) (D11).

    The suffix is mismatched too, hence twice the step-wise bound; at most 2H.  Arguments
    as above.
    """
    a, steps = checked(token_tv_sup, "token_tv_sup", high=1.0), _steps(horizon)
    return steps * np.minimum(2.0 * a * (steps - 1.0), 2.0)


def truncated_sequence_bias(capped_mean: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound the bias of truncated sequence weights min(W,C): H (1 - E_Q min(W,C)) (D11).

    Parameters
    ----------
    capped_mean : ratio, any shape
        E_Q min(W, C), at most 1 when the logs are true; sampling error above 1 counts as 1.
    horizon : tokens, at least 1
    """
    gap = 1.0 - checked(capped_mean, "capped_mean", high=LARGEST)
    return _steps(horizon) * np.maximum(gap, 0.0)


def sequence_bias_from_chi2(chi2: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound the uncorrected bias under any bounded advantage: sqrt(H chi-square(Q,P)) (D12).

    Sharper in H than D11.  Reached as the drift goes to 0 by independent fair coins with
    advantage 1.

    Parameters
    ----------
    chi2 : dimensionless, any shape
    horizon : tokens, at least 1
    """
    return np.sqrt(_steps(horizon)) * np.sqrt(checked(chi2, "chi2"))


def sequence_bias_from_oscillation(oscillation: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound the uncorrected bias by D: sqrt(H (cosh(D/2)^(2H) - 1)) ~ H D/2, at most 2H (D12).

    Parameters
    ----------
    oscillation : dimensionless, any shape
    horizon : tokens, at least 1

    Examples
    --------
    >>> round(float(sequence_bias_from_oscillation(1e-4, 1000)), 6)
    0.05
    """
    steps = _steps(horizon)
    chi2 = sequence_chi2_from_oscillation(oscillation, steps)
    return np.minimum(sequence_bias_from_chi2(chi2, steps), 2.0 * steps)


def _steps(horizon: ArrayLike) -> Array:
    return checked(horizon, "horizon", low=1.0, high=LARGEST)
