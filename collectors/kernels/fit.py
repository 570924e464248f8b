"""Whether two kernels fit each other and the suite: each misfit is one error, before or as it shows."""

from collections.abc import Sequence

import numpy as np

from paritas.collectors.kernels.kernel import Answer, Ask, Ids, Sampler, Scorer
from paritas.collectors.kernels.prompts import Prompt
from paritas.errors import UsageError

__all__ = ["check_answer", "check_room", "check_sizes", "check_tokenizers"]

POLICY_HINT = "do they hold the same policy?"
TOKENIZER_HINT = "save one tokenizer beside both, or give prompt_token_ids, which pass by the tokenizers"


def check_sizes(sampler: Sampler, scorer: Scorer, asks: Sequence[Ask]) -> None:
    """Compare vocabularies, and the longest response with what the kernels take.

    Raises
    ------
    UsageError
        Vocabularies differ, or a prompt and its response are longer than a kernel takes.
    """
    sizes = {kernel.vocabulary for kernel in (sampler, scorer)} - {None}
    if len(sizes) > 1:
        message = f"the kernels have vocabularies of {sampler.vocabulary} and {scorer.vocabulary} tokens"
        raise UsageError(message, hint=POLICY_HINT)
    for kernel, flag in ((sampler, "--inference"), (scorer, "--train")):
        check_room(kernel.context, asks, flag)


def check_room(context: int | None, asks: Sequence[Ask], flag: str) -> None:
    """Compare the longest response with the context of a kernel; raises `UsageError` where it is longer."""
    long = next((ask for ask in asks if not _takes(context, ask)), None)
    if long is not None and context is not None:
        raise _too_long(long, context, flag)


def _takes(context: int | None, ask: Ask) -> bool:
    return context is None or ask.prompt.size + ask.max_tokens <= context


def _too_long(ask: Ask, context: int, flag: str) -> UsageError:
    message = f"prompt {ask.group_id!r} has {ask.prompt.size} tokens and its response up to {ask.max_tokens}"
    left = context - ask.prompt.size
    hint = f"give --max-tokens {left} or less" if left > 0 else "shorten the prompt or leave it out"
    return UsageError(f"{message}: {flag} takes {context} together", hint=hint)


def check_answer(answer: Answer, scorer: Scorer) -> None:
    """Refuse tokens that the training kernel does not know: a server does not tell its vocabulary.

    Raises
    ------
    UsageError
        A token id is outside the training kernel's vocabulary.
    """
    limit, most = scorer.vocabulary, int(answer.token.max(initial=0))
    if limit is not None and most >= limit:
        message = f"--inference answered token id {most}, and --train has a vocabulary of {limit}"
        raise UsageError(message, hint=POLICY_HINT)


def check_tokenizers(sampler: Sampler, scorer: Scorer, prompts: Sequence[Prompt]) -> None:
    """Compare how both kernels tokenise the texts of the suite, where the inference kernel tells.

    Chats are left out: their template is the training kernel's for both.

    Raises
    ------
    UsageError
        Different tokens come of a prompt: the responses would be compared after different prompts
        in production, and not here.
    """
    for prompt in prompts:
        if not prompt.text:
            continue
        theirs = sampler.encode(prompt.text)
        if theirs is None:
            return
        _check_same(theirs, scorer.encode(prompt.text, ()), prompt.place)


def _check_same(inference: Ids, train: Ids, place: str) -> None:
    if not np.array_equal(inference, train):
        counts = f"{inference.size} by --inference, {train.size} by --train"
        raise UsageError(
            f"{place}: the tokenizers make different tokens of it: {counts}", hint=TOKENIZER_HINT
        )
