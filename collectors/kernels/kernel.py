"""What a kernel is asked, what it answers, and what it must be able to do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from paritas.exact import ExactDrift
from paritas.records import KernelIdentity, Sampling

__all__ = [
    "Answer",
    "Ask",
    "Decoder",
    "Encoder",
    "Forward",
    "LocalModel",
    "Sampler",
    "Scored",
    "Scorer",
    "TopRows",
]

Ids = NDArray[np.int64]
Rows = NDArray[np.float32]
# Most likely tokens of each position with their log-probabilities, as an engine writes them.
TopRows = Sequence[Sequence[tuple[int, float]]]


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One response to draw.

    Attributes
    ----------
    sample_id, group_id : str
        Name of the response, and of its prompt.
    prompt : shape (m,), int64
    seed : int
        Of this response alone, below 2^31: the same whatever it is batched with.
    labels : mapping of str to str
        Of the prompt.
    """

    sample_id: str
    group_id: str
    prompt: Ids
    seed: int
    max_tokens: int
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One drawn response as the inference kernel reports it.

    Attributes
    ----------
    token : shape (n,), int64
    logprob : shape (n,), float64, nats
        NaN where none was reported.
    top : TopRows
    rows : shape (n, vocabulary), float32, nats, or None
        The whole law of each position, where the kernel holds it.
    finish : str
        ``stop`` or ``length``.
    """

    ask: Ask
    token: Ids
    logprob: NDArray[np.float64]
    top: TopRows
    rows: Rows | None = None
    finish: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """The same response under the training kernel."""

    logprob: NDArray[np.float64]
    top: TopRows
    exact: ExactDrift | None = None


class Sampler(Protocol):
    """Draws responses.

    Attributes
    ----------
    identity : KernelIdentity
    vocabulary, context : int or None
        Tokens it knows, and tokens it takes at most; None where it does not say.
    """

    identity: KernelIdentity
    vocabulary: int | None
    context: int | None

    def law(self, asked: Sampling) -> Sampling:
        """Return the sampling with the semantics of what is reported under it."""
        ...

    def encode(self, text: str) -> Ids | None:
        """Return the token ids its own tokenizer makes of a text; None where it does not tell."""
        ...

    def batch(self, max_tokens: int) -> int:
        """Return how many responses fit one call."""
        ...

    def sample(self, asks: Sequence[Ask], law: Sampling) -> list[Answer]:
        """Draw one response for each."""
        ...


class Encoder(Protocol):
    """Knows how prompts become tokens."""

    vocabulary: int | None

    def encode(self, text: str, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return the token ids of a text, or of a chat where `messages` is not empty."""
        ...


class Scorer(Protocol):
    """Scores given responses, and knows how prompts become tokens."""

    identity: KernelIdentity
    vocabulary: int | None
    context: int | None

    def encode(self, text: str, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return the token ids of a text, or of a chat where `messages` is not empty."""
        ...

    def score(self, answer: Answer, law: Sampling) -> Scored:
        """Score one response under a law; compare whole laws where the answer holds them."""
        ...


class Decoder(Protocol):
    """A model in this process that decodes; `LocalSampler` makes a `Sampler` of it.

    Attributes
    ----------
    stops : frozenset of int
        Tokens that end a response.
    many : int
        How many responses it decodes together.
    """

    identity: KernelIdentity
    vocabulary: int
    context: int | None
    stops: frozenset[int]
    many: int

    def start(self, prompts: Ids) -> Rows:
        """Take prompts of one length, shape (b, m); return the logits of what follows, (b, vocabulary)."""
        ...

    def step(self, tokens: Ids) -> Rows:
        """Take one token each, shape (b,); return the logits of what follows, (b, vocabulary)."""
        ...


class Forward(Protocol):
    """A model in this process that scores; `LocalScorer` makes a `Scorer` of it."""

    identity: KernelIdentity
    vocabulary: int
    context: int | None

    def encode(self, text: str, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return the token ids of a text, or of a chat where `messages` is not empty."""
        ...

    def response(self, prompt: Ids, tokens: Ids) -> Iterator[Rows]:
        """Yield logits at the n response positions in chunks of rows, one forward pass as in training."""
        ...


class LocalModel(Decoder, Forward, Protocol):
    """A model in this process that does both, and scores in micro-batches."""

    identity: KernelIdentity
    vocabulary: int
    context: int | None

    def responses(self, prompts: Sequence[Ids], tokens: Sequence[Ids]) -> list[Rows]:
        """Return the logits at the response positions of several sequences: one pass, padded on the right."""
        ...
