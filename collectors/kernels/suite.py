"""The suite of one run: which responses are drawn, in which order, and how both kernels answer."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paritas.collectors.kernels.fit import check_answer, check_sizes
from paritas.collectors.kernels.kernel import Answer, Ask, Encoder, Ids, Sampler, Scored, Scorer
from paritas.collectors.kernels.prompts import Prompt
from paritas.errors import UsageError
from paritas.records import LogprobSemantics, Sampling

__all__ = ["Suite", "asks_of", "run_suite", "scoring_law"]

NOTHING_HINT = "give another prompt: a kernel scores what follows at least one token"


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


def asks_of(suite: Suite, scorer: Encoder | Scorer) -> list[Ask]:
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


def _encoded(prompt: Prompt, scorer: Encoder | Scorer) -> Ids:
    ids = np.array(prompt.token_ids, np.int64)
    if not ids.size:
        ids = scorer.encode(prompt.text, prompt.messages)
    if not ids.size:
        raise UsageError(f"{prompt.place}: the tokenizer makes no token of it", hint=NOTHING_HINT)
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
    check_sizes(sampler, scorer, asks)
    for group in _groups(asks, sampler):
        for answer in sampler.sample(group, drawn):
            if answer.token.size:
                check_answer(answer, scorer)
                yield answer, scorer.score(answer, scored)


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
