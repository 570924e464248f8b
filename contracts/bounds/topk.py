"""Total variation at one prefix from the top-K lists of both kernels (docs/mathematics.md A18)."""

import numpy as np
from numpy.typing import ArrayLike

from paritas.contracts.bounds.numerics import Array, Interval, checked

__all__ = ["tv_interval_from_top_k"]


def tv_interval_from_top_k(log_p: ArrayLike, log_q: ArrayLike) -> Interval:
    """Enclose the total variation of two kernels known on the same K tokens (A18).

    Half of ``sum |p-q| + |r_p - r_q|`` to half of ``sum |p-q| + r_p + r_q`` with the
    residual masses r.  Both ends are reached: the lower when the tails differ in one
    direction, the upper when they are disjoint.

    Parameters
    ----------
    log_p, log_q : shape (..., K), nats
        Log-probabilities of the same tokens in the same order; minus infinity is
        probability 0 and may pad a shorter list.

    Returns
    -------
    Interval of shape (...), probability

    Examples
    --------
    >>> [round(float(x), 3) for x in tv_interval_from_top_k(np.log([0.6, 0.3]), np.log([0.5, 0.3]))]
    [0.1, 0.2]
    """
    p = np.exp(checked(log_p, "log_p", low=-np.inf, high=1e-6))  # float32 lists may sum to 1 + rounding
    q = np.exp(checked(log_q, "log_q", low=-np.inf, high=1e-6))
    listed = np.abs(p - q).sum(axis=-1)
    rest_p, rest_q = _residual(p), _residual(q)
    upper = np.minimum((listed + rest_p + rest_q) / 2.0, 1.0)
    return Interval(np.minimum((listed + np.abs(rest_p - rest_q)) / 2.0, upper), upper)


def _residual(listed: Array) -> Array:
    mass: Array = listed.sum(axis=-1)
    return np.maximum(1.0 - mass, 0.0)
