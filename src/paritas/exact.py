"""Two whole next-token distributions, compared position by position; where one process holds both.

Sampled log-probabilities estimate these numbers; whole distributions give them without
sampling noise.  Only an offline scorer has both, so they never travel on the wire.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ExactDrift", "exact_drift", "join_drifts"]

# Stands for -inf outside a support, as OpenAI-compatible servers write it: infinity fits no mean and no JSON.
OUTSIDE_NATS = -9999.0


@dataclass(frozen=True, slots=True, eq=False)
class ExactDrift:
    """What the training kernel's scorer saw of both laws, q of the inference kernel and p of its own.

    Attributes
    ----------
    tv : shape (n,), float32, probability
        Total variation, half the sum of abs(p - q) (A19 is its estimate).
    oscillation : shape (n,), float32, logits
        max - min of log p - log q over the whole vocabulary (A1).  Outside a law's support its
        log-probability counts as -9999, as servers write it, so different supports give about 1e4.
    flip : shape (n,), float32, 0 or 1
        Whether the most likely tokens differ (A17).
    gap : shape (n,), float32, probability
        q(a) - p(a) for the most likely token a of p (E1).
    """

    tv: NDArray[np.float32]
    oscillation: NDArray[np.float32]
    flip: NDArray[np.float32]
    gap: NDArray[np.float32]

    def __post_init__(self) -> None:
        """Check once, at the edge: columns are one-dimensional and aligned."""
        shapes = {getattr(self, name).shape for name in self.__slots__}
        if len(shapes) != 1 or self.tv.ndim != 1:
            raise ValueError(f"exact columns must be 1-d and aligned, got {sorted(map(str, shapes))}")

    def __len__(self) -> int:
        return int(self.tv.shape[0])


def exact_drift(log_q: NDArray[np.float32], log_p: NDArray[np.float32]) -> ExactDrift:
    """Compare two laws at each of n positions.

    Parameters
    ----------
    log_q, log_p : shape (n, vocabulary), float32, nats
        Normalised log-probabilities; -inf outside the support.

    Examples
    --------
    >>> q, p = np.log([[0.5, 0.25, 0.25]]), np.log([[0.25, 0.5, 0.25]])
    >>> found = exact_drift(q.astype(np.float32), p.astype(np.float32))
    >>> found.tv.tolist(), found.flip.tolist(), found.gap.tolist(), np.round(found.oscillation.astype(float), 4).tolist()
    ([0.25], [1.0], [-0.25], [1.3863])
    """
    q, p = np.exp(log_q, dtype=np.float64), np.exp(log_p, dtype=np.float64)
    drift = np.maximum(log_p, OUTSIDE_NATS) - np.maximum(log_q, OUTSIDE_NATS)
    best = log_p.argmax(axis=1)
    rows = np.arange(len(log_p))
    columns = (
        np.minimum(np.abs(p - q).sum(axis=1) / 2.0, 1.0),
        drift.max(axis=1) - drift.min(axis=1),
        log_q.argmax(axis=1) != best,
        q[rows, best] - p[rows, best],
    )
    return ExactDrift(*(column.astype(np.float32) for column in columns))


def join_drifts(parts: "list[ExactDrift]") -> ExactDrift:
    """Concatenate the chunks of one sequence; none gives empty columns."""
    nothing = np.zeros(0, np.float32)
    names = ExactDrift.__slots__
    return ExactDrift(
        *(np.concatenate([nothing, *(getattr(part, name) for part in parts)]) for name in names)
    )
