"""Reading the chain upward: what a lower budget guarantees above it (docs/mathematics.md F, from A, B, C, D).

A contract that declares several levels is checked with these: where the forecast exceeds the
declared upper budget, the lower clause alone is not sufficient.  Scalars in, floats out.
"""

from paritas.contracts.bounds.divergence import tv_from_oscillation
from paritas.contracts.bounds.gradient import bias_from_oscillation, bias_from_tv
from paritas.contracts.bounds.reward import reward_drift_from_tv
from paritas.contracts.bounds.sequence import (
    sequence_tv_from_kl,
    sequence_tv_from_mean,
    sequence_tv_from_oscillation,
    sequence_tv_from_sup,
)
from paritas.contracts.model import Estimator

__all__ = [
    "forecast_gradient_bias",
    "forecast_gradient_bias_from_oscillation",
    "forecast_reward",
    "forecast_sequence_tv",
    "forecast_sequence_tv_from_kl",
    "forecast_sequence_tv_from_sup",
    "forecast_sequence_tv_sqrt",
    "forecast_token_tv",
]


def forecast_token_tv(oscillation: float) -> float:
    """Forecast the token TV from D: tanh(D/4) (A2)."""
    return float(tv_from_oscillation(oscillation))


def forecast_sequence_tv(token_tv_mean: float, mean_tokens: float) -> float:
    """Forecast the sequence TV from a mean token TV: min(1, E|y| mean tv) (B1).

    Examples
    --------
    >>> forecast_sequence_tv(1e-4, 500)
    0.05
    """
    return float(sequence_tv_from_mean(token_tv_mean, mean_tokens))


def forecast_sequence_tv_from_sup(token_tv_sup: float, horizon: float) -> float:
    """Forecast the sequence TV from a token TV at every prefix: 1 - (1-a)^H (B2)."""
    return float(sequence_tv_from_sup(token_tv_sup, horizon))


def forecast_sequence_tv_sqrt(oscillation: float, horizon: float) -> float:
    """Forecast the sequence TV from D by the square-root law (B3)."""
    return float(sequence_tv_from_oscillation(oscillation, horizon))


def forecast_sequence_tv_from_kl(kl_token: float, mean_tokens: float) -> float:
    """Forecast the sequence TV from a mean token KL in nats (B4)."""
    return float(sequence_tv_from_kl(kl_token * mean_tokens))


def forecast_reward(theta: float, reward_range: tuple[float, float]) -> float:
    """Forecast the reward drift from the sequence TV: (R_max - R_min) theta (C1).

    Examples
    --------
    >>> forecast_reward(0.02, (-1.0, 1.0))
    0.04
    """
    low, high = reward_range
    return float(reward_drift_from_tv(theta, high - low))


def forecast_gradient_bias(token_tv: float, estimator: Estimator) -> float:
    """Forecast the gradient bias, units of A_max G, from a mean token TV (D3, D10).

    Examples
    --------
    >>> forecast_gradient_bias(0.02, Estimator(kind="none"))
    0.04
    """
    return float(bias_from_tv(token_tv, estimator))


def forecast_gradient_bias_from_oscillation(oscillation: float, estimator: Estimator) -> float:
    """Forecast the gradient bias, units of A_max G, from D (D2, D4 to D7)."""
    return float(bias_from_oscillation(oscillation, estimator))
