"""Where the oscillation D comes from (docs/mathematics.md A1, A8, A20).

``D = (max - min of z_train - z_inference) / temperature``, dimensionless: the one input of
every a-priori bound.  It does not see a constant shift of all logits, which is harmless,
and it is observable from log-probabilities alone.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from paritas.contracts.bounds.numerics import SMALLEST, Array, checked

__all__ = [
    "oscillation_from_l2_drift",
    "oscillation_from_logprobs",
    "oscillation_from_temperatures",
]


def oscillation_from_logprobs(log_p: ArrayLike, log_q: ArrayLike) -> Array:
    """Measure D from two log-probability vectors: the oscillation of log p - log q (A1).

    Exact on full vectors at the sampling temperature; a lower bound on a top-K list.

    Parameters
    ----------
    log_p, log_q : shape (..., n), nats
        Training and inference kernel on the same tokens; minus infinity is probability 0.

    Returns
    -------
    shape (...), dimensionless
        Infinity where one kernel excludes a token that the other allows.

    Examples
    --------
    >>> round(float(oscillation_from_logprobs(np.log([0.5, 0.5]), np.log([0.25, 0.75]))), 6)
    1.098612
    """
    p = checked(log_p, "log_p", low=-np.inf, high=np.inf)
    q = checked(log_q, "log_q", low=-np.inf, high=np.inf)
    with np.errstate(invalid="ignore"):
        ell = np.where(p == q, 0.0, p - q)
    seen = ~(np.isneginf(p) & np.isneginf(q))  # tokens that neither kernel allows say nothing
    highest: Array = np.where(seen, ell, -np.inf).max(axis=-1)
    lowest: Array = np.where(seen, ell, np.inf).min(axis=-1)
    return highest - lowest


def oscillation_from_temperatures(logit_range: ArrayLike, temperature: ArrayLike, other: ArrayLike) -> Array:
    """Return the D that a temperature mismatch alone makes: osc(z) |1/tau - 1/tau'| (A20).

    An equality, usually far above any rounding.

    Parameters
    ----------
    logit_range : logits
        Largest minus smallest logit.
    temperature, other : logits per nat
        The two temperatures, both above 0.
    """
    first, second = (checked(t, "temperature", low=SMALLEST) for t in (temperature, other))
    span = checked(logit_range, "logit_range")
    with np.errstate(over="ignore"):
        return span * np.abs(1.0 / first - 1.0 / second)


def oscillation_from_l2_drift(l2_drift: ArrayLike, *, temperature: ArrayLike = 1.0) -> Array:
    """Bound D by the L2 norm of the mean-centred logit drift: sqrt(2) |delta| / tau (A8).

    Sharp for two tokens; with it every bound of this module takes an L2 drift.

    Parameters
    ----------
    l2_drift : logits
    temperature : logits per nat, above 0
    """
    tau = checked(temperature, "temperature", low=SMALLEST)
    drift = checked(l2_drift, "l2_drift")
    with np.errstate(over="ignore"):
        return math.sqrt(2.0) * drift / tau
