"""Kernels in this process: one keeps the whole law of every token it draws, one compares its own with it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.kernels.kernel import Answer, Ask, Decoder, Forward, Ids, Rows, Scored
from paritas.collectors.kernels.law import draw, law_of, logprob_of, most_likely
from paritas.errors import UsageError
from paritas.exact import ExactDrift, exact_drift, join_drifts
from paritas.records import KernelIdentity, LogprobSemantics, Sampling

__all__ = ["LocalSampler", "LocalScorer"]

# Whole laws of one batch are kept until they are scored: in memory up to here, beyond it in a file.
LIMIT_BYTES = 256 << 20


class LocalSampler:
    """A `Sampler` over a model that decodes in this process.

    Parameters
    ----------
    decoder : Decoder
    top_k : int
        Length of the lists of most likely tokens.
    limit_bytes : int
        Whole laws of one batch that are kept in memory; more go to a temporary file.
    """

    def __init__(self, decoder: Decoder, *, top_k: int, limit_bytes: int = LIMIT_BYTES) -> None:
        self._decoder, self._top_k, self._limit_bytes = decoder, top_k, limit_bytes
        self.identity: KernelIdentity = decoder.identity
        self.vocabulary: int | None = decoder.vocabulary
        self.context: int | None = decoder.context

    def law(self, asked: Sampling) -> Sampling:
        """Tokens are drawn from the very law that is reported."""
        return replace(asked, semantics=LogprobSemantics.PROCESSED)

    def encode(self, text: str) -> Ids | None:
        """Return the tokens of the model's own tokenizer; None where it has none."""
        encode = getattr(self._decoder, "encode", None)
        try:
            return None if encode is None else encode(text, ())
        except UsageError:  # no tokenizer lies beside the model, which takes token ids as they come
            return None

    def batch(self, max_tokens: int) -> int:
        """Return how many responses fit the memory for whole laws."""
        fits = self._limit_bytes // (max_tokens * self._decoder.vocabulary * 4)
        return max(1, min(fits, self._decoder.many))

    def sample(self, asks: Sequence[Ask], law: Sampling) -> list[Answer]:
        """Draw one response for each ask; prompts of one length are decoded together, unpadded."""
        runs = (list(run) for _, run in groupby(asks, key=lambda ask: ask.prompt.size))
        return [answer for run in runs for answer in self._decode(run, law)]

    def _decode(self, asks: Sequence[Ask], law: Sampling) -> Iterator[Answer]:
        shape = len(asks), max(ask.max_tokens for ask in asks), self._decoder.vocabulary
        drawing = _Drawing.of(asks, _room(shape, self._limit_bytes))
        logits = self._decoder.start(np.stack([ask.prompt for ask in asks]))
        for position in range(shape[1]):
            tokens = drawing.draw(law_of(logits, law), position)
            if drawing.note_ends(tokens, position, self._decoder.stops):
                break
            logits = self._decoder.step(tokens)
        return (self._answer(ask, drawing, i) for i, ask in enumerate(asks))

    def _answer(self, ask: Ask, drawing: "_Drawing", i: int) -> Answer:
        n = int(drawing.length[i])
        token, rows = drawing.token[i, :n], drawing.rows[i, :n]
        finish = "stop" if int(token[-1]) in self._decoder.stops else "length"
        top = most_likely(rows, self._top_k)
        return Answer(ask, token, logprob_of(rows, token), top, rows, finish)


class LocalScorer:
    """A `Scorer` over a model in this process; parameters as of `LocalSampler`."""

    def __init__(self, forward: Forward, *, top_k: int) -> None:
        self._forward, self._top_k = forward, top_k
        self.identity: KernelIdentity = forward.identity
        self.vocabulary: int | None = forward.vocabulary
        self.context: int | None = forward.context

    def encode(self, text: str, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return the token ids of a text, or of a chat where `messages` is not empty."""
        return self._forward.encode(text, messages)

    def score(self, answer: Answer, law: Sampling) -> Scored:
        """Score one response chunk by chunk; only one chunk of whole laws of this kernel is held."""
        logprob: list[NDArray[np.float64]] = []
        top: list[Sequence[tuple[int, float]]] = []
        drifts: list[ExactDrift] = []
        start = 0
        for chunk in self._forward.response(answer.ask.prompt, answer.token):
            rows = law_of(chunk, law)
            stop = start + len(rows)
            logprob.append(logprob_of(rows, answer.token[start:stop]))
            top += most_likely(rows, self._top_k)
            if answer.rows is not None:
                drifts.append(exact_drift(answer.rows[start:stop], rows))
            start = stop
        exact = None if answer.rows is None else join_drifts(drifts)
        return Scored(np.concatenate(logprob), top, exact)


@dataclass(slots=True, eq=False)
class _Drawing:
    """Responses while they grow.

    Attributes
    ----------
    chances : shape (b, n), float64
        What decides each token: a stream a response, from its own seed.
    rows : shape (b, n, vocabulary), float32, nats
    token : shape (b, n), int64
    length : shape (b,), int64
        Tokens of a finished response; 0 while it grows.
    """

    chances: NDArray[np.float64]
    rows: Rows
    token: Ids
    length: NDArray[np.int64]
    limit: NDArray[np.int64]

    @classmethod
    def of(cls, asks: Sequence[Ask], rows: Rows) -> "_Drawing":
        n = rows.shape[1]
        chances = np.stack([np.random.default_rng(ask.seed).random(n) for ask in asks])
        limit = np.array([ask.max_tokens for ask in asks])
        return cls(chances, rows, np.zeros((len(asks), n), np.int64), np.zeros(len(asks), np.int64), limit)

    def draw(self, rows: Rows, position: int) -> Ids:
        """Draw a token each and keep its law."""
        tokens = draw(rows, self.chances[:, position])
        self.rows[:, position], self.token[:, position] = rows, tokens
        return tokens

    def note_ends(self, tokens: Ids, position: int, stops: frozenset[int]) -> bool:
        """Note which responses end here; return whether all have."""
        ends = np.isin(tokens, list(stops)) | (position + 1 >= self.limit)
        self.length[(self.length == 0) & ends] = position + 1
        return bool((self.length > 0).all())


def _room(shape: tuple[int, ...], limit_bytes: int) -> Rows:
    """Return an array in memory, or in a file that vanishes with it where it is large."""
    if int(np.prod(shape)) * 4 <= limit_bytes:
        return np.empty(shape, np.float32)
    with TemporaryFile() as file:  # the mapping outlives its file
        return np.memmap(file, np.float32, "w+", shape=shape)
