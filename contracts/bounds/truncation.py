"""Truncated sampling and greedy decoding: what top-k, top-p and min-p do to a bound (A11 to A17).

The rule behind all of it: compute both log-probabilities on one support, or measure the
missing mass.  Logits are those of the inference kernel, in the last axis; the logit
oscillation omega is (max - min) of z_train - z_inference in logits, before temperature.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paritas.contracts.bounds.numerics import LARGEST, SMALLEST, Array, Interval, checked, log_softmax, logit

__all__ = [
    "argmax_is_stable",
    "kept_oscillation",
    "kl_from_kept_mass",
    "min_p_is_stable",
    "top_k_is_stable",
    "top_p_is_stable",
    "tv_from_margin",
    "tv_interval_one_side_truncated",
    "tv_interval_sets_differ",
]

Flags = NDArray[np.bool_]


def kept_oscillation(drift: ArrayLike, kept: ArrayLike) -> Array:
    """Return the oscillation of the drift on the tokens both kernels keep (A11).

    At most the oscillation on the whole vocabulary: truncation on a common set never hurts.
    Divided by the temperature it goes into every bound of `divergence`.

    Parameters
    ----------
    drift : shape (..., n), logits
    kept : shape (..., n), bool
        At least one token must be kept.

    Examples
    --------
    >>> float(kept_oscillation([0.1, -0.1, 9.0], [True, True, False]))
    0.2
    """
    delta = checked(drift, "drift", low=-LARGEST, high=LARGEST)
    mask = np.asarray(kept, dtype=np.bool_)
    if not mask.any(axis=-1).all():
        raise ValueError("kept must hold at least one token")
    highest: Array = np.where(mask, delta, -np.inf).max(axis=-1)
    lowest: Array = np.where(mask, delta, np.inf).min(axis=-1)
    return highest - lowest


def tv_interval_one_side_truncated(kept_mass: ArrayLike, tv_kept: ArrayLike = 0.0) -> Interval:
    """Enclose the total variation when only the sampler truncates (A12).

    ``1 - m <= TV <= 1 - m (1 - TV on the kept set)``.  Sharp: without numerical drift both
    ends are 1 - m, and every sampled token has w = m.

    Parameters
    ----------
    kept_mass : probability, any shape
        m, the training kernel's mass on the sampler's kept set.
    tv_kept : probability, broadcast against it
        Total variation of the two kernels renormalised on the kept set.

    Examples
    --------
    >>> [round(float(x), 3) for x in tv_interval_one_side_truncated(0.895)]
    [0.105, 0.105]
    """
    m, inner = checked(kept_mass, "kept_mass", high=1.0), checked(tv_kept, "tv_kept", high=1.0)
    upper = (1.0 - m) + m * inner
    return Interval(np.broadcast_to(1.0 - m, upper.shape)[()], upper)


def kl_from_kept_mass(kept_mass: ArrayLike) -> Array:
    """Return KL of the truncated law from the untruncated one: -log m, an equality (A12).

    The other direction is infinite.  Probability in, nats out, any shape.
    """
    with np.errstate(divide="ignore"):
        return -np.log(checked(kept_mass, "kept_mass", high=1.0)) + 0.0


def tv_interval_sets_differ(shared_p: ArrayLike, shared_q: ArrayLike, oscillation: ArrayLike) -> Interval:
    """Enclose the total variation when the kernels keep different sets (A13).

    ``max(1-a, 1-b) <= TV <= 1 - min(a,b) (1 - tanh(D/4))``.  Sharp: equal shared masses and
    disjoint remainders.  What only the trainer keeps cannot be repaired by any weight.

    Parameters
    ----------
    shared_p, shared_q : probability, any shape
        a, b: mass of the intersection under each kernel, after its own renormalisation.
    oscillation : dimensionless, broadcast against them
        D on the intersection.
    """
    a, b = checked(shared_p, "shared_p", high=1.0), checked(shared_q, "shared_q", high=1.0)
    least = np.minimum(a, b)
    upper = (1.0 - least) + least * np.tanh(checked(oscillation, "oscillation") / 4.0)
    return Interval(np.broadcast_to(1.0 - least, upper.shape)[()], upper)


def top_k_is_stable(logits: ArrayLike, k: int, *, logit_oscillation: ArrayLike) -> Flags:
    """Say where both kernels must keep the same top-k set: gap after the k-th > omega (A14).

    Sharp: at a gap of omega some drift ties the two tokens.

    Parameters
    ----------
    logits : shape (..., n), logits
    k : int
        Size of the kept set, at least 1; k >= n keeps everything.
    logit_oscillation : shape (...), logits

    Examples
    --------
    >>> bool(top_k_is_stable([3.0, 2.0, 0.0], 2, logit_oscillation=1.9))
    True
    """
    ordered = _descending(logits)
    omega = checked(logit_oscillation, "logit_oscillation")
    if k < 1:
        raise ValueError(f"k must be 1 or more, got {k}")
    if k >= ordered.shape[-1]:
        return np.broadcast_to(np.True_, np.broadcast_shapes(ordered.shape[:-1], omega.shape))
    return (ordered[..., k - 1] - ordered[..., k]) > omega


def top_p_is_stable(
    logits: ArrayLike, top_p: float, *, logit_oscillation: ArrayLike, temperature: float = 1.0
) -> Flags:
    """Say where both kernels must keep the same nucleus: three margins (A15).

    The gap after the nucleus exceeds omega, the logit of its mass is at least D above the
    logit of `top_p`, and without its last token more than D below.

    Parameters
    ----------
    logits : shape (..., n), logits
    top_p : float
        Nucleus mass in (0, 1]; 1 keeps everything.
    logit_oscillation : shape (...), logits
    temperature : float, logits per nat, above 0
    """
    ordered = _descending(logits)
    omega = checked(logit_oscillation, "logit_oscillation")
    mass = float(checked(top_p, "top_p", low=SMALLEST, high=1.0))
    if mass == 1.0:
        return np.broadcast_to(np.True_, np.broadcast_shapes(ordered.shape[:-1], omega.shape))
    tau = float(checked(temperature, "temperature", low=SMALLEST))
    return _nucleus_margins_hold(ordered, ordered / tau, mass, omega, omega / tau)


def _nucleus_margins_hold(ordered: Array, scaled: Array, mass: float, omega: Array, d: Array) -> Flags:
    log_odds = _cumulative_log_odds(scaled)
    size = (log_odds[..., :-1] < logit(mass)).sum(axis=-1)[..., np.newaxis]  # index of the last kept token
    padded = np.concatenate([ordered, np.full_like(ordered[..., :1], -np.inf)], axis=-1)
    before = np.concatenate([np.full_like(log_odds[..., :1], -np.inf), log_odds[..., :-1]], axis=-1)
    gap = _take(padded, size) - _take(padded, size + 1)
    enough = _take(log_odds, size) - logit(mass) >= d
    return (gap > omega) & enough & (logit(mass) - _take(before, size) > d)


def _cumulative_log_odds(scaled: Array) -> Array:
    """Log-odds of the mass of the j+1 largest tokens; each side summed from its own end."""
    q = np.exp(log_softmax(scaled))
    inside = np.cumsum(q, axis=-1)
    outside = np.cumsum(q[..., ::-1], axis=-1)[..., ::-1]
    with np.errstate(divide="ignore"):
        rest: Array = np.log(np.concatenate([outside[..., 1:], np.zeros_like(q[..., :1])], axis=-1))
        held: Array = np.log(inside)
    return held - rest


def _take(values: Array, index: NDArray[np.intp]) -> Array:
    return np.take_along_axis(values, index, axis=-1)[..., 0]


def min_p_is_stable(
    logits: ArrayLike, min_p: float, *, logit_oscillation: ArrayLike, temperature: float = 1.0
) -> Flags:
    """Say where both kernels must keep the same min-p set (A16).

    Every token's distance from the edge ``max z + tau log(min_p)`` exceeds omega.  Sharp:
    at a distance of omega some drift puts a token on the edge.

    Parameters
    ----------
    logits : shape (..., n), logits
    min_p : float
        Share of the top probability below which tokens are dropped, in (0, 1].
    logit_oscillation : shape (...), logits
    temperature : float, logits per nat, above 0
    """
    share = checked(min_p, "min_p", low=SMALLEST, high=1.0)
    tau = checked(temperature, "temperature", low=SMALLEST)
    ordered = _descending(logits)
    distance = np.abs(ordered - ordered[..., :1] - tau * np.log(share))
    nearest: Array = distance.min(axis=-1)
    return nearest > checked(logit_oscillation, "logit_oscillation")


def argmax_is_stable(margin: ArrayLike, logit_oscillation: ArrayLike) -> Flags:
    """Say where both kernels must pick the same greedy token: margin > omega (A17).

    Sharp: at any smaller margin some drift of that oscillation ties or flips it.  At
    temperature 0 the mean total variation is the flip rate, at most the share of tokens
    where this is False.

    Parameters
    ----------
    margin : logits, any shape
        Largest minus second largest inference logit.
    logit_oscillation : logits, broadcast against it
    """
    return checked(margin, "margin") > checked(logit_oscillation, "logit_oscillation")


def tv_from_margin(
    margin: ArrayLike, logit_oscillation: ArrayLike, *, temperature: ArrayLike, vocabulary: int
) -> Array:
    """Bound the total variation near greedy: (n-1) exp(-(margin - omega)/tau) (A17).

    Reached, to a factor that goes to 1, by equal runners-up with 1 << D << margin/tau; 1
    where the margin does not exceed omega.

    Parameters
    ----------
    margin, logit_oscillation : logits, any shape
    temperature : logits per nat, 0 or more
    vocabulary : int
        n, number of tokens, at least 2.

    Examples
    --------
    >>> float(tv_from_margin(2.0, 1.0, temperature=0.0, vocabulary=150_000))
    0.0
    """
    m, omega = checked(margin, "margin"), checked(logit_oscillation, "logit_oscillation")
    tau = checked(temperature, "temperature")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bound = np.minimum((vocabulary - 1) * np.exp(-(m - omega) / tau), 1.0)
    return np.where(m > omega, bound, 1.0)[()]


def _descending(logits: ArrayLike) -> Array:
    z = checked(logits, "logits", low=-LARGEST, high=LARGEST)
    return -np.sort(-z, axis=-1)
