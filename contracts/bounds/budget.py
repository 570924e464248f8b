"""Inverting the chain: declare one level, derive every level below it (docs/mathematics.md F1 to F6).

A derived budget is sufficient, never necessary: exceeding it means "certificate lost", not
"violated".  Every budget is non-decreasing in the declared one and non-increasing in the
horizon (F7).  Errors are `ContractError` without a place: the caller knows the line.
"""

import math
from dataclasses import dataclass

from paritas.contracts.bounds.estimator import EstimatorKind, Weighting, weighting_of
from paritas.contracts.bounds.gradient import bias_per_tv
from paritas.contracts.bounds.inversion import (
    checked_amount,
    checked_horizon,
    checked_share,
    kl_of_tv,
    oscillation_of_sequence_tv,
    oscillation_of_tv,
    sequence_tv_of_reward_drift,
    token_tv_of_sequence_tv,
)
from paritas.contracts.bounds.masks import mask_factor, oscillation_of_masked_mass
from paritas.contracts.bounds.tails import (
    oscillation_of_clipped_amount,
    oscillation_of_upper_tail,
)
from paritas.contracts.model import Estimator
from paritas.errors import ContractError

__all__ = [
    "GradientBudgets",
    "LogitBudgets",
    "TokenBudgets",
    "derive_from_gradient_bias",
    "derive_from_reward_drift",
    "derive_from_sequence_tv",
    "derive_from_token_tv",
]


@dataclass(frozen=True, slots=True)
class LogitBudgets:
    """Largest drift of the logits, at every prefix; infinity means no constraint.

    Attributes
    ----------
    oscillation : float, dimensionless
        D, the logit oscillation divided by the temperature.
    logit_oscillation : float, logits
        omega = tau D.
    logit_sup : float, logits
        epsilon = omega / 2, sup norm of the drift.
    logit_l2 : float, logits
        omega / sqrt(2), L2 norm of the mean-centred drift.
    """

    oscillation: float
    logit_oscillation: float
    logit_sup: float
    logit_l2: float

    @property
    def bitwise(self) -> bool:
        """Whether only bit-identical log-probabilities comply."""
        return self.oscillation == 0.0

    @property
    def vacuous(self) -> bool:
        """Whether the declared budget asks for nothing."""
        return math.isinf(self.oscillation)


@dataclass(frozen=True, slots=True)
class TokenBudgets(LogitBudgets):
    """Everything below a sequence TV budget; each line alone suffices.

    Attributes
    ----------
    sequence_tv : float, probability
        theta (F1).
    sequence_kl : float, nats per response
        F5.
    token_tv_sup : float, probability
        At every reachable prefix (F2).
    token_tv_mean : float, probability
        Mean over tokens under the inference kernel (F2').
    kl_token : float, nats per token
        Mean over tokens under the inference kernel (F5).
    """

    sequence_tv: float
    sequence_kl: float
    token_tv_sup: float
    token_tv_mean: float
    kl_token: float


@dataclass(frozen=True, slots=True)
class GradientBudgets(LogitBudgets):
    """Everything below a gradient-bias budget for one estimator; each line alone suffices.

    Attributes
    ----------
    gradient_bias : float, units of A_max G
        beta; the limit on the mean of `gradient.bias_statistic`.
    token_tv_mean : float, probability
        Mean token TV; 0 where a mask threshold at 1 lets no TV suffice (D10).
    kl_token : float, nats
        Mean token KL that implies `token_tv_mean` (A10).
    ratio_mean_floor : float or None
        Least E_q min(w,C) for tis and is, least kept mass for mis and ppo_min; None for others.
    """

    gradient_bias: float
    token_tv_mean: float
    kl_token: float
    ratio_mean_floor: float | None


def derive_from_reward_drift(
    reward_drift: float,
    *,
    reward_range: tuple[float, float],
    horizon: float | None,
    mean_tokens: float | None = None,
    temperature: float = 1.0,
) -> TokenBudgets:
    """Derive every budget below a reward drift (F1, then as `derive_from_sequence_tv`).

    Parameters
    ----------
    reward_drift : float, reward units
        Largest change of the mean reward, at least 0.
    reward_range : (float, float), reward units
        Smallest and largest reward; equal ends ask for nothing.
    horizon, mean_tokens, temperature
        As in `derive_from_sequence_tv`.

    Raises
    ------
    ContractError
        A number is NaN, negative or out of range, or the horizon is unset or infinite.
    """
    theta = min(sequence_tv_of_reward_drift(reward_drift, reward_range), 1.0)
    return derive_from_sequence_tv(theta, horizon=horizon, mean_tokens=mean_tokens, temperature=temperature)


def derive_from_sequence_tv(
    theta: float, *, horizon: float | None, mean_tokens: float | None = None, temperature: float = 1.0
) -> TokenBudgets:
    """Derive every budget below a sequence TV (F2 to F5).

    theta = 0 gives zeros (`bitwise`), theta = 1 gives no constraint (`vacuous`); a contract
    should ask before either.  At temperature 0 the logit budgets are 0: use the margin
    clause A17 instead.

    Parameters
    ----------
    theta : float, probability
    horizon : float, tokens
        H, the most tokens a response can have.
    mean_tokens : float, tokens
        E_Q|y|; the horizon by default.
    temperature : float, logits per nat

    Raises
    ------
    ContractError
        A number is NaN, negative or out of range, or the horizon is unset or infinite.

    Examples
    --------
    >>> b = derive_from_sequence_tv(0.1, horizon=1024)
    >>> [f"{x:.2e}" for x in (b.token_tv_sup, b.oscillation, b.kl_token)]
    ['1.03e-04', '1.25e-02', '1.95e-05']
    """
    tv = checked_share(theta, "sequence_tv")
    steps = checked_horizon(horizon)
    mean = steps if mean_tokens is None else _mean_tokens(mean_tokens, steps)
    logits = _logit_budgets(oscillation_of_sequence_tv(tv, steps), temperature)
    kl = kl_of_tv(tv)
    return TokenBudgets(
        *logits,
        sequence_tv=tv,
        sequence_kl=kl,
        token_tv_sup=token_tv_of_sequence_tv(tv, steps),
        token_tv_mean=1.0 if tv == 1.0 else tv / mean,
        kl_token=kl / mean,
    )


def derive_from_token_tv(token_tv_sup: float, *, temperature: float = 1.0) -> LogitBudgets:
    """Derive the logit budgets below a token TV that binds at every prefix (F3).

    Raises
    ------
    ContractError
        A number is NaN, negative or out of range.

    Examples
    --------
    >>> round(derive_from_token_tv(0.02).oscillation, 6)
    0.080011
    """
    return LogitBudgets(*_logit_budgets(oscillation_of_tv(token_tv_sup), temperature))


def derive_from_gradient_bias(
    beta: float, estimator: Estimator, *, temperature: float = 1.0
) -> GradientBudgets:
    """Derive every budget below a gradient bias for one estimator (F6, D3).

    Parameters
    ----------
    beta : float
        Tolerated bias in units of A_max G, at least 0; from the estimator's worst case on
        (2 uncorrected, else mostly 1) there is no constraint.
    estimator : Estimator
    temperature : float, logits per nat

    Raises
    ------
    ContractError
        A number is NaN, negative or out of range, or the estimator is incomplete.

    Examples
    --------
    >>> b = derive_from_gradient_bias(0.05, Estimator(kind="tis", cap=2.0))
    >>> b.token_tv_mean, b.ratio_mean_floor, round(b.oscillation, 4)
    (0.05, 0.95, 1.0961)
    """
    limit, weighting = checked_amount(beta, "gradient_bias"), weighting_of(estimator)
    tv = _token_tv_of_bias(limit, weighting)
    return GradientBudgets(
        *_logit_budgets(_oscillation_of_bias(limit, weighting), temperature),
        gradient_bias=limit,
        token_tv_mean=tv,
        kl_token=kl_of_tv(tv),
        ratio_mean_floor=_ratio_floor(limit, weighting.kind),
    )


def _token_tv_of_bias(beta: float, weighting: Weighting) -> float:
    if weighting.kind in (EstimatorKind.MIS, EstimatorKind.PPO_MIN):
        worst, per_tv = 1.0, float(mask_factor(weighting.low, weighting.high))
    else:
        worst = per_tv = bias_per_tv(weighting)
    return 1.0 if beta >= worst else min(beta / per_tv, 1.0)


def _oscillation_of_bias(beta: float, weighting: Weighting) -> float:
    match weighting.kind:
        case EstimatorKind.NONE:
            return oscillation_of_tv(min(beta / 2.0, 1.0))
        case EstimatorKind.TIS:
            return float(oscillation_of_upper_tail(beta, weighting.cap))
        case EstimatorKind.CLIP:
            return float(oscillation_of_clipped_amount(beta, weighting.clip))
        case EstimatorKind.MIS | EstimatorKind.PPO_MIN:
            return float(oscillation_of_masked_mass(beta, weighting.low, weighting.high))
        case EstimatorKind.IS:
            return math.inf


def _ratio_floor(beta: float, kind: EstimatorKind) -> float | None:
    if kind in (EstimatorKind.NONE, EstimatorKind.CLIP):
        return None
    return max(1.0 - beta, 0.0)


def _logit_budgets(oscillation: float, temperature: float) -> tuple[float, float, float, float]:
    tau = checked_amount(temperature, "temperature")
    omega = oscillation if math.isinf(oscillation) else tau * oscillation  # no constraint stays none at tau 0
    return oscillation, omega, omega / 2.0, omega / math.sqrt(2.0)


def _mean_tokens(value: float, horizon: float) -> float:
    if not 0.0 < value <= horizon:
        raise ContractError(
            f"mean_tokens must be above 0 and at most max_tokens ({horizon:g}), got {value:g}"
        )
    return float(value)
