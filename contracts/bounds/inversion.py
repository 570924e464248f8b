"""One step down the chain at a time: the budget that suffices below a budget (docs/mathematics.md F1 to F5).

Scalars in, floats out, because a contract declares scalars.  Errors are `ContractError`
without a place: the caller knows the line.
"""

import math

from paritas.contracts.bounds.numerics import neg_log1m_square
from paritas.errors import ContractError

__all__ = [
    "checked_amount",
    "checked_horizon",
    "checked_share",
    "kl_of_tv",
    "oscillation_of_sequence_tv",
    "oscillation_of_tv",
    "sequence_tv_of_reward_drift",
    "token_tv_of_sequence_tv",
]


def sequence_tv_of_reward_drift(reward_drift: float, reward_range: tuple[float, float]) -> float:
    """Return theta = drift / range; infinity when the reward cannot drift (F1).

    At least 1 means that the clause asks for nothing.

    Raises
    ------
    ContractError
        A number is NaN or infinite, the drift is negative, or the range is reversed.
    """
    drift = checked_amount(reward_drift, "reward_drift")
    low, high = reward_range
    if not -math.inf < low <= high < math.inf:
        raise ContractError(f"reward_range must be [lowest, highest], got [{low:g}, {high:g}]")
    return drift / (high - low) if high > low else math.inf


def token_tv_of_sequence_tv(theta: float, horizon: float) -> float:
    """Return the token TV that suffices at every prefix: 1 - (1-theta)^(1/H) (F2).

    Examples
    --------
    >>> f"{token_tv_of_sequence_tv(0.01, 8192):.3e}"
    '1.227e-06'
    """
    tv, steps = checked_share(theta, "sequence_tv"), checked_horizon(horizon)
    return 1.0 if tv == 1.0 else -math.expm1(math.log1p(-tv) / steps)


def oscillation_of_tv(tv: float) -> float:
    """Return the D that suffices for a token TV: 4 artanh(TV), infinity at 1 (F3)."""
    share = checked_share(tv, "token_tv")
    return math.inf if share == 1.0 else 2.0 * (math.log1p(share) - math.log1p(-share))


def oscillation_of_sequence_tv(theta: float, horizon: float) -> float:
    """Return the D that suffices at every prefix: 4 arcosh((1-theta^2)^(-1/2H)) ~ 4 theta/sqrt(H) (F4).

    Never below F3 applied to F2; equal at H = 1.

    Examples
    --------
    >>> f"{oscillation_of_sequence_tv(0.01, 8192):.2e}"
    '4.42e-04'
    """
    x = float(neg_log1m_square(checked_share(theta, "sequence_tv"))) / (2.0 * checked_horizon(horizon))
    return 4.0 * (x + math.log1p(math.sqrt(-math.expm1(-2.0 * x))))


def kl_of_tv(tv: float) -> float:
    """Return the KL in nats that suffices for a TV: max(2 TV^2, -log(1-TV^2)) (F5).

    Examples
    --------
    >>> round(kl_of_tv(0.1), 6), kl_of_tv(1.0)
    (0.02, inf)
    """
    share = checked_share(tv, "tv")
    return max(2.0 * share * share, float(neg_log1m_square(share)))


def checked_share(value: float, name: str) -> float:
    """Return a probability; ContractError at NaN and outside [0, 1], such as a percent."""
    if not 0.0 <= value <= 1.0:
        raise ContractError(f"{name} must be between 0 and 1, got {value:g}", hint="write 5 % as 0.05")
    return float(value)


def checked_amount(value: float, name: str) -> float:
    """Return a finite number of 0 or more; ContractError otherwise."""
    if not 0.0 <= value < math.inf:
        raise ContractError(f"{name} must be a finite number, 0 or more, got {value:g}")
    return float(value)


def checked_horizon(value: float | None) -> float:
    """Return the largest number of tokens; ContractError when unset, infinite or below 1."""
    if value is None or math.isinf(value):
        raise ContractError("no budget can be derived without a horizon", hint="set max_tokens")
    if not value >= 1.0:
        raise ContractError(f"max_tokens must be 1 or more, got {value:g}")
    return float(value)
