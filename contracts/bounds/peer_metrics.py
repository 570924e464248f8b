"""What a limit on a number that others print means for a clause of ours.

Means over tokens drawn from q. Every function gives the largest value our statistic can have while
theirs keeps its limit, so a violation of ours refutes theirs; a pass of ours says nothing of theirs.
Full support is assumed: mass of p that q never samples adds itself to a total variation (half of it
where the function says so), and to a KL before it is compared with a k3.
"""

import numpy as np
from numpy.typing import ArrayLike

from paritas.contracts.bounds.numerics import LARGEST, Array, checked

__all__ = [
    "tail_from_k3",
    "tail_from_log_difference",
    "tail_from_multiplicative_error",
    "tv_from_log_difference",
    "tv_from_multiplicative_error",
]


def tv_from_multiplicative_error(error: ArrayLike) -> Array:
    """Bound total variation by NeMo-RL's token_mult_prob_error E exp|ell|: (error - 1)/2.

    ``exp|ell| - 1`` is w-1 above 1 and 1/w-1 >= 1-w below it, so its mean is at least
    E(w-1)+ + E(1-w)+ = 2 TV (A19).  Sharp as the drift goes to 0; half the missing mass is added
    where q lacks support.

    Parameters
    ----------
    error : dimensionless, at least 1, any shape

    Returns
    -------
    probability, at most 1

    Examples
    --------
    >>> round(float(tv_from_multiplicative_error(1.05)), 6)
    0.025
    """
    return np.minimum((checked(error, "error", low=1.0, high=LARGEST) - 1.0) / 2.0, 1.0)


def tv_from_log_difference(difference: ArrayLike) -> Array:
    """Bound total variation by the mean absolute log-difference E|ell| of TRL, slime and SkyRL: itself.

    ``1 - exp(ell) <= -ell`` for ell <= 0, so TV = E(1-w)+ is at most the mean of the negative part.
    Sharp to first order for a pair whose ell is negative wherever it is not rare.

    Parameters
    ----------
    difference : nats, any shape
    """
    return np.minimum(checked(difference, "difference", high=LARGEST), 1.0)


def tail_from_multiplicative_error(error: ArrayLike, above: ArrayLike) -> Array:
    """Bound the share of ratios outside [1/above, above] by E exp|ell|: (error - 1)/(above - 1).

    Markov's inequality for exp|ell| - 1.  Sharp: ell is 0 or ln(above).

    Parameters
    ----------
    error : dimensionless, at least 1, any shape
    above : ratio, above 1

    Examples
    --------
    >>> round(float(tail_from_multiplicative_error(1.1, 2.0)), 6)
    0.1
    """
    excess = checked(error, "error", low=1.0, high=LARGEST) - 1.0
    return np.minimum(excess / (_beyond(above) - 1.0), 1.0)


def tail_from_k3(k3: ArrayLike, above: ArrayLike) -> Array:
    """Bound the share of ratios outside [1/above, above] by the mean of w - 1 - ell: Markov.

    k3 at 1/above is the smaller one of the two ends; sharp there.

    Parameters
    ----------
    k3 : nats, any shape
    above : ratio, above 1

    Examples
    --------
    >>> round(float(tail_from_k3(0.015, 2.0)), 4)
    0.0777
    """
    a = _beyond(above)
    return np.minimum(checked(k3, "k3", high=LARGEST) / (1.0 / a - 1.0 + np.log(a)), 1.0)


def tail_from_log_difference(difference: ArrayLike, above: ArrayLike) -> Array:
    """Bound the share of ratios outside [1/above, above] by E|ell|: E|ell|/ln(above), Markov.

    Parameters
    ----------
    difference : nats, any shape
    above : ratio, above 1
    """
    return np.minimum(checked(difference, "difference", high=LARGEST) / np.log(_beyond(above)), 1.0)


def _beyond(above: ArrayLike) -> Array:
    return checked(above, "above", low=float(np.nextafter(1.0, 2.0)), high=LARGEST)
