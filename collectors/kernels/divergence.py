"""How far two kernels are apart over a run, in the few numbers a person compares."""

from dataclasses import dataclass

import numpy as np

from paritas.collectors.kernels.kernel import Answer, Scored

__all__ = ["Divergence"]


@dataclass(slots=True)
class Divergence:
    """Sums and maxima over every token; whole laws count where they were held.

    Attributes
    ----------
    tokens, exact_tokens : int
        Tokens scored by both kernels, and those with whole laws.
    tv, flips : float
        Sums over tokens: total variation, or its estimate without whole laws; changed argmaxes.
    max_abs : float, nats
        Largest difference of the log-probability of a sampled token.
    max_oscillation : float, logits
    """

    sequences: int = 0
    tokens: int = 0
    exact_tokens: int = 0
    tv: float = 0.0
    flips: float = 0.0
    absolute: float = 0.0
    max_abs: float = 0.0
    max_oscillation: float = 0.0

    def add(self, answer: Answer, scored: Scored) -> None:
        """Add one response."""
        with np.errstate(invalid="ignore"):
            ell = scored.logprob - answer.logprob
        ell = ell[np.isfinite(ell)]
        self.sequences += 1
        self.tokens += ell.size
        self.absolute += float(np.abs(ell).sum())
        self.max_abs = max(self.max_abs, float(np.abs(ell).max(initial=0.0)))
        if scored.exact is None:
            self.tv += float(-np.expm1(np.minimum(ell, 0.0)).sum())
            return
        self.exact_tokens += len(scored.exact)
        self.tv += float(scored.exact.tv.sum(dtype=np.float64))
        self.flips += float(scored.exact.flip.sum(dtype=np.float64))
        self.max_oscillation = max(self.max_oscillation, float(scored.exact.oscillation.max(initial=0.0)))

    def as_dict(self) -> dict[str, object]:
        """Return means and maxima; None where no whole laws were held."""
        exact = self.exact_tokens > 0
        return {
            "sequences": self.sequences,
            "tokens": self.tokens,
            "tv": self.tv / max(self.exact_tokens or self.tokens, 1),
            "tv_is_exact": exact,
            "mean_abs_nats": self.absolute / max(self.tokens, 1),
            "max_abs_nats": self.max_abs,
            "max_oscillation_logits": self.max_oscillation if exact else None,
            "argmax_flip_rate": self.flips / self.exact_tokens if exact else None,
        }
