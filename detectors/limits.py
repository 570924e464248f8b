"""Always-valid limits of a mean from mergeable sums (bounds.md D16)."""

import numpy as np

__all__ = ["radius"]

TERMS = 12  # lambda_j = 2^(-1-j): the last is so small that it only serves windows beyond 1e6 units


def radius(spread: float, units: int, alpha: float) -> float:
    """Half-width that holds at every moment with probability 1 - alpha, one side (D16).

    Parameters
    ----------
    spread : float
        Sum of squared distances of values in [0, 1] from their running predictable mean.
    units : int
        Number of values.
    alpha : float
        Error probability of one side.

    Returns
    -------
    float
        In the values' unit; infinite without values.
    """
    if units == 0:
        return float("inf")
    j = np.arange(TERMS)
    bet = 2.0 ** (-1.0 - j)
    share = alpha * (TERMS + 1) / TERMS / ((j + 1) * (j + 2))  # sums to alpha over the terms
    psi = -np.log1p(-bet) - bet
    return float(np.min((np.log(1.0 / share) + psi * spread) / (bet * units)))
