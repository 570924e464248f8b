"""The law a token is drawn from: logits through temperature and truncation, in float32.

In the order vLLM applies them: temperature, min-p, top-k, top-p; ties at a border stay in.
"""

import numpy as np
from numpy.typing import NDArray

from paritas.records import LogprobSemantics, Sampling

__all__ = ["draw", "is_neutral", "law_of", "log_softmax", "logprob_of", "most_likely", "neutral"]

Rows = NDArray[np.float32]


def neutral() -> Sampling:
    """Return the law without any processing, said in numbers."""
    return Sampling(1.0, 1.0, 0, 0.0, semantics=LogprobSemantics.RAW)


def is_neutral(law: Sampling) -> bool:
    """Whether the law is the softmax of the untouched logits."""
    told = (law.temperature, law.top_p, law.top_k, law.min_p)
    return all(value in (None, n) for value, n in zip(told, (1.0, 1.0, 0, 0.0), strict=True))


def law_of(logits: Rows, law: Sampling) -> Rows:
    """Return log-probabilities under a law.

    Parameters
    ----------
    logits : shape (n, vocabulary), float32

    Returns
    -------
    shape (n, vocabulary), float32, nats
        Normalised; -inf outside the support.

    Examples
    --------
    >>> np.exp(law_of(np.log([[0.5, 0.3, 0.2]]).astype(np.float32), Sampling(top_k=2))).round(3).tolist()
    [[0.625, 0.375, 0.0]]
    """
    scaled = logits if law.temperature in (None, 1.0) else logits / np.float32(law.temperature)
    rows = log_softmax(scaled)
    if law.min_p:
        rows = _keep(rows, rows >= rows.max(axis=1, keepdims=True) + np.log(law.min_p))
    if law.top_k and 0 < law.top_k < rows.shape[1]:
        border = np.partition(rows, -law.top_k, axis=1)[:, -law.top_k, None]
        rows = _keep(rows, rows >= border)
    if law.top_p is not None and law.top_p < 1.0:
        rows = _keep(rows, rows >= _nucleus_border(rows, law.top_p))
    return rows


def log_softmax(logits: Rows) -> Rows:
    """Normalise; the sum of exponentials in float64, so that whole laws can be subtracted."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(shifted - np.log(total), np.float32)


def _keep(rows: Rows, kept: NDArray[np.bool_]) -> Rows:
    return log_softmax(np.where(kept, rows, np.float32(-np.inf)))


def _nucleus_border(rows: Rows, top_p: float) -> Rows:
    """Log-probability of the last token that is needed to reach `top_p`, shape (n, 1)."""
    ordered = -np.sort(-rows, axis=1)
    before = np.cumsum(np.exp(ordered, dtype=np.float64), axis=1) - np.exp(ordered, dtype=np.float64)
    last = np.maximum((before < top_p).sum(axis=1) - 1, 0)
    return np.asarray(ordered[np.arange(len(rows)), last][:, None])


def draw(rows: Rows, chances: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw one token a row by inverting its cumulative distribution in float64.

    Parameters
    ----------
    rows : shape (n, vocabulary), float32, nats
    chances : shape (n,), float64, uniform on [0, 1)

    Examples
    --------
    >>> draw(np.log([[0.5, 0.25, 0.25]]).astype(np.float32), np.array([0.6])).tolist()
    [1]
    """
    cumulative = np.cumsum(np.exp(rows, dtype=np.float64), axis=1)
    aims = chances * cumulative[:, -1]
    return np.array([np.searchsorted(row, aim, "right") for row, aim in zip(cumulative, aims, strict=True)])


def logprob_of(rows: Rows, token: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the log-probability of one token a row, in nats.

    Examples
    --------
    >>> logprob_of(np.log([[0.5, 0.25, 0.25]]), np.array([0])).round(4).tolist()
    [-0.6931]
    """
    return rows[np.arange(len(token)), token].astype(np.float64)


def most_likely(rows: Rows, k: int) -> list[list[tuple[int, float]]]:
    """Return the k best tokens of each row with their log-probabilities, best first, ties by id."""
    k = min(k, rows.shape[1])
    if k <= 0:
        return [[] for _ in rows]
    found = np.sort(np.argpartition(-rows, k - 1, axis=1)[:, :k], axis=1)
    values = np.take_along_axis(rows, found, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    ids, logs = (np.take_along_axis(part, order, axis=1).tolist() for part in (found, values))
    return [
        [(token, log) for token, log in zip(*row, strict=True) if log > -np.inf]
        for row in zip(ids, logs, strict=True)
    ]
