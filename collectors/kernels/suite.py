"""The suite of one run: which responses are drawn, in which order, and how both kernels answer."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paritas.collectors.kernels.kernel import Answer, Ask, Ids, Sampler, Scored, Scorer
from paritas.collectors.kernels.prompts import Prompt
from paritas.errors import UsageError
from paritas.records import LogprobSemantics, Sampling

__all__ = ["Suite", "asks_of", "run_suite", "scoring_law"]


@dataclass(frozen=True, slots=True)
class Suite:
    """What to draw.

    Attributes
    ----------
    samples : int
        Responses a prompt.
    max_tokens : int
        Of a response.
    seed : int
        Of the whole run; each response gets its own from it, its prompt's id and its number.
    """

    prompts: tuple[Prompt, ...]
    samples: int = 1
    max_tokens: int = 128
    seed: int = 0


def asks_of(suite: Suite, scorer: Scorer) -> list[Ask]:
    """Tokenise the prompts, by the training kernel's tokenizer, and name every response."""
    return [
        Ask(
            f"{prompt.id}/{number}",
            prompt.id,
            ids,
            _seed(suite.seed, prompt.id, number),
            suite.max_tokens,
            prompt.labels,
        )
        for prompt in suite.prompts
        for ids in [_encoded(prompt, scorer)]
        for number in range(suite.samples)
    ]


def _seed(seed: int, name: str, number: int) -> int:
    """31 bits: engines take 32-bit seeds, some of them signed."""
    text = f"{seed}:{number}:{name}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little") >> 1


def _encoded(prompt: Prompt, scorer: Scorer) -> Ids:
    ids = np.array(prompt.token_ids, np.int64)
    if not ids.size:
        ids = scorer.encode(prompt.text, prompt.messages)
    if not ids.size:
        raise UsageError(f"{prompt.place}: the tokenizer makes no token of it")
    limit = scorer.vocabulary
    if limit is not None and int(ids.max()) >= limit:
        message = f"{prompt.place}: token id {int(ids.max())} is outside the vocabulary of {limit}"
        raise UsageError(message, hint="are these ids of another tokenizer?")
    return ids


def scoring_law(drawn: Sampling, changed: Sampling) -> Sampling:
    """Return the law the training kernel scores under.

    As trainers do: the temperature of what the inference kernel reports (none where it reports
    raw log-probabilities), never its truncation.  What `changed` holds has precedence.

    Examples
    --------
    >>> drawn = Sampling(0.6, 0.9, semantics=LogprobSemantics.PROCESSED)
    >>> law = scoring_law(drawn, Sampling())
    >>> law.temperature, law.top_p
    (0.6, 1.0)
    """
    raw = drawn.semantics is LogprobSemantics.RAW
    temperature = 1.0 if raw or drawn.temperature is None else drawn.temperature
    base = Sampling(temperature, 1.0, 0, 0.0)
    given = {name: getattr(changed, name) for name in ("temperature", "top_p", "top_k", "min_p")}
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def run_suite(
    sampler: Sampler, scorer: Scorer, asks: Sequence[Ask], *, drawn: Sampling, scored: Sampling
) -> Iterator[tuple[Answer, Scored]]:
    """Draw and score everything, group by group.

    Responses whose prompts are equally long go together; the groups come in an order that their
    seeds decide, so that no trend runs through the recording.

    Raises
    ------
    UsageError
        The kernels do not have one vocabulary, or a response is longer than one of them takes.
    """
    _check(sampler, scorer, asks)
    for group in _groups(asks, sampler):
        for answer in sampler.sample(group, drawn):
            if answer.token.size:
                yield answer, scorer.score(answer, scored)


def _check(sampler: Sampler, scorer: Scorer, asks: Sequence[Ask]) -> None:
    sizes = {kernel.vocabulary for kernel in (sampler, scorer)} - {None}
    if len(sizes) > 1:
        message = f"the kernels have vocabularies of {sampler.vocabulary} and {scorer.vocabulary} tokens"
        raise UsageError(message, hint="do they hold the same policy?")
    known = [size for kernel in (sampler, scorer) if (size := kernel.context) is not None]
    limit = min(known, default=None)
    long = next((a for a in asks if limit is not None and a.prompt.size + a.max_tokens > limit), None)
    if long is not None:
        message = f"prompt {long.group_id!r} has {long.prompt.size} tokens and the response {long.max_tokens}"
        raise UsageError(f"{message}: a kernel takes {limit}", hint="give a smaller --max-tokens")


def _groups(asks: Sequence[Ask], sampler: Sampler) -> list[list[Ask]]:
    ordered = sorted(asks, key=lambda ask: (ask.prompt.size, ask.seed))
    groups: list[list[Ask]] = []
    for ask in ordered:
        last = groups[-1] if groups else []
        fits = last and last[0].prompt.size == ask.prompt.size and len(last) < sampler.batch(ask.max_tokens)
        if fits:
            last.append(ask)
        else:
            groups.append([ask])
    return sorted(groups, key=lambda group: group[0].seed)
