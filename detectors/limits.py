"""Always-valid limits of a mean from mergeable sums (docs/mathematics.md D16)."""

from paritas.contracts.bounds.certificate import mean_radius

__all__ = ["radius"]


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

    Examples
    --------
    >>> round(radius(0.3, 1000, 0.05), 4)
    0.0073
    """
    return float(mean_radius(spread, units, alpha=alpha))
