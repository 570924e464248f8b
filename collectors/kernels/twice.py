"""One kernel at two batch sizes over the same tokens: what a floor is measured from.

A batch that is not full is filled with copies, whose answers are left out: code is chosen by the shape of a batch.

- An engine in this process draws at the first size and is replayed at the second: it decodes the drawn tokens again.
- A trainer in this process scores drawn tokens in micro-batches of both sizes, padded on the right, where no token
  looks.
- A server cannot be replayed and is asked twice with the same seeds.  Where the two answers part, tokens count up to
  and with the first that differs: the first answer drew it, the second tells it among its most likely ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Protocol, TypeVar

import numpy as np

from paritas.collectors.kernels.kernel import Answer, Ask, Ids, LocalModel, Rows, Sampler, Scored, TopRows
from paritas.collectors.kernels.law import law_of, logprob_of, most_likely
from paritas.collectors.kernels.local import LocalSampler
from paritas.collectors.kernels.suite import scoring_law
from paritas.errors import UsageError
from paritas.exact import exact_drift
from paritas.records import KernelIdentity, Sampling

__all__ = ["AskedTwice", "Replayed", "ScoredTwice", "Twice"]

T = TypeVar("T")
Pairs = Iterator[tuple[Answer, Scored]]
Sizes = tuple[int, int]


class Twice(Protocol):
    """A kernel that can be run at two batch sizes.

    Attributes
    ----------
    size_name : str
        What its identity calls a batch size.
    apart : int
        Responses that were drawn differently, of which only a part is compared.
    """

    size_name: str
    identity: KernelIdentity
    vocabulary: int | None
    context: int | None
    apart: int

    def encode(self, text: str, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return the token ids of a text, or of a chat where `messages` is not empty."""
        ...

    def laws(self, asked: Sampling) -> tuple[Sampling, Sampling]:
        """Return the law tokens are drawn from, and the one of the log-probabilities that are told."""
        ...

    def run(self, asks: Sequence[Ask], sizes: Sizes, laws: tuple[Sampling, Sampling]) -> Pairs:
        """Yield each response as both sizes tell it; the prompts are of one length."""
        ...


class _Local:
    """What both kinds of kernel in this process share; parameters as of `LocalSampler`."""

    apart = 0

    def __init__(self, model: LocalModel, *, top_k: int) -> None:
        self._model, self._top_k = model, top_k
        self._sampler = LocalSampler(model, top_k=top_k)
        self.identity: KernelIdentity = model.identity
        self.vocabulary: int | None = model.vocabulary
        self.context: int | None = model.context

    def encode(self, text: str, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return the token ids of a text, or of a chat where `messages` is not empty."""
        return self._model.encode(text, messages)


class Replayed(_Local):
    """An engine in this process."""

    size_name = "batch_size"

    def laws(self, asked: Sampling) -> tuple[Sampling, Sampling]:
        """Tokens are drawn from the very law that is told."""
        law = self._sampler.law(asked)
        return law, law

    def run(self, asks: Sequence[Ask], sizes: Sizes, laws: tuple[Sampling, Sampling]) -> Pairs:
        """Draw at the first size, decode the same tokens at the second."""
        answers = _drawn(self._sampler, asks, sizes[0], laws[0])
        for some, batch in _filled(answers, sizes[1]):
            rows = self._replay(batch, laws[0])
            yield from (
                (answer, _scored(answer, told, self._top_k)) for answer, told in zip(some, rows, strict=False)
            )

    def _replay(self, answers: Sequence[Answer], law: Sampling) -> Iterator[Rows]:
        """Decode given tokens; whoever ended goes on with its last token."""
        most = max(answer.token.size for answer in answers)
        tokens = np.stack([np.pad(a.token, (0, most - a.token.size), mode="edge") for a in answers])
        laws = [law_of(self._model.start(np.stack([a.ask.prompt for a in answers])), law)]
        laws += [law_of(self._model.step(tokens[:, position]), law) for position in range(most - 1)]
        return (np.stack([row[i] for row in laws[: a.token.size]]) for i, a in enumerate(answers))


class ScoredTwice(_Local):
    """A trainer in this process; the same model draws the tokens.

    Parameters
    ----------
    changed : Sampling
        The parts of the scoring law that were given with the kernel.
    """

    size_name = "micro_batch"

    def __init__(self, model: LocalModel, changed: Sampling, *, top_k: int) -> None:
        super().__init__(model, top_k=top_k)
        self._changed = changed

    def laws(self, asked: Sampling) -> tuple[Sampling, Sampling]:
        """Tokens are scored as trainers do, under `scoring_law`."""
        law = self._sampler.law(asked)
        return law, scoring_law(law, self._changed)

    def run(self, asks: Sequence[Ask], sizes: Sizes, laws: tuple[Sampling, Sampling]) -> Pairs:
        """Score the drawn tokens in micro-batches of both sizes."""
        answers = _drawn(self._sampler, asks, sizes[0], laws[0])
        one, other = (self._scores(answers, size, laws[1]) for size in sizes)
        for answer, first, second in zip(answers, one, other, strict=True):
            told = _told(answer, first, self._top_k)
            yield told, _scored(told, second, self._top_k)

    def _scores(self, answers: Sequence[Answer], size: int, law: Sampling) -> Iterator[Rows]:
        for some, batch in _filled(answers, size):
            logits = self._model.responses([a.ask.prompt for a in batch], [a.token for a in batch])
            yield from (law_of(rows, law) for rows in logits[: len(some)])


class AskedTwice:
    """A server, which batches what it is asked at once."""

    size_name = "concurrency"

    def __init__(self, sampler: Sampler, flag: str) -> None:
        self._sampler, self._flag = sampler, flag
        self.identity: KernelIdentity = sampler.identity
        self.vocabulary: int | None = sampler.vocabulary
        self.context: int | None = sampler.context
        self.apart = 0

    def encode(self, text: str, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return the tokens the server makes of a text.

        Raises
        ------
        UsageError
            For a chat, or where the server does not tell.
        """
        ids = None if messages else self._sampler.encode(text)
        if ids is None:
            what = "a chat" if messages else "a text"
            raise UsageError(
                f"{self._flag}: the server makes no tokens of {what}", hint="give prompt_token_ids"
            )
        return ids

    def laws(self, asked: Sampling) -> tuple[Sampling, Sampling]:
        """The server says what it tells."""
        law = self._sampler.law(asked)
        return law, law

    def run(self, asks: Sequence[Ask], sizes: Sizes, laws: tuple[Sampling, Sampling]) -> Pairs:
        """Ask for the same responses twice, as many at once as the sizes say."""
        one, other = (_drawn(self._sampler, asks, size, laws[0]) for size in sizes)
        for first, second in zip(one, other, strict=True):
            self.apart += not np.array_equal(first.token, second.token)
            shared = _shared(first, second)
            if shared is not None:
                yield shared


def _drawn(sampler: Sampler, asks: Sequence[Ask], size: int, law: Sampling) -> list[Answer]:
    """Draw every response in full batches of a size."""
    batches = (sampler.sample(batch, law)[: len(some)] for some, batch in _filled(asks, size))
    return [answer for answers in batches for answer in answers]


def _filled(items: Sequence[T], size: int) -> Iterator[tuple[Sequence[T], list[T]]]:
    """Yield parts of at most `size` items, each with the full batch that it is run in."""
    for start in range(0, len(items), size):
        some = items[start : start + size]
        yield some, list(islice(cycle(some), size))


def _told(answer: Answer, rows: Rows, top_k: int) -> Answer:
    """The same response as whole laws tell it."""
    top: TopRows = most_likely(rows, top_k)
    return Answer(answer.ask, answer.token, logprob_of(rows, answer.token), top, rows, answer.finish)


def _scored(answer: Answer, rows: Rows, top_k: int) -> Scored:
    exact = None if answer.rows is None else exact_drift(answer.rows, rows)
    return Scored(logprob_of(rows, answer.token), most_likely(rows, top_k), exact)


def _shared(one: Answer, other: Answer) -> tuple[Answer, Scored] | None:
    """Cut two answers after the first token in which they differ; None where nothing is left."""
    both = min(one.token.size, other.token.size)
    differing = np.flatnonzero(one.token[:both] != other.token[:both])
    length = int(differing[0]) + 1 if differing.size else both
    if not length:
        return None
    logprob, token = other.logprob[:length].copy(), one.token[:length]
    if differing.size:
        logprob[-1] = dict(other.top[length - 1]).get(int(token[-1]), np.nan)
    told = Answer(one.ask, token, one.logprob[:length], one.top[:length], None, one.finish)
    return told, Scored(logprob, other.top[:length])
