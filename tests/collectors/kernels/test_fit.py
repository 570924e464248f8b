"""Kernels that do not fit each other or the suite: one error each, with what to do."""

import numpy as np
from toy_kernels import ToyModel, sampler, scorer
from usage_errors import failing

from paritas.collectors.kernels import LocalSampler, Prompt, Suite, asks_of, run_suite
from paritas.collectors.kernels.fit import check_sizes, check_tokenizers
from paritas.errors import UsageError
from paritas.records import Sampling

LAW = Sampling(1.0, 1.0, 0, 0.0)
PROMPTS = (Prompt("a", "f:1", text="abc"), Prompt("b", "f:2", token_ids=(4, 5)))
POLICY = "do they hold the same policy?"


def asks(max_tokens=8, prompts=PROMPTS):
    return asks_of(Suite(prompts, max_tokens=max_tokens), scorer())


def with_context(kernel, context):
    kernel.context = context
    return kernel


def test_two_vocabularies():
    found = failing(lambda: check_sizes(sampler(vocabulary=50), scorer(), asks()))
    assert found == ("the kernels have vocabularies of 50 and 48 tokens", POLICY)


def test_a_response_too_long_for_a_kernel():
    message = "prompt 'a' has 3 tokens and its response up to 62: --inference takes 64 together"
    assert failing(lambda: check_sizes(sampler(), scorer(), asks(62))) == (
        message,
        "give --max-tokens 61 or less",
    )
    check_sizes(sampler(), scorer(), asks(61))


def test_a_prompt_too_long_for_a_kernel():
    short = with_context(scorer(), 3)
    message = "prompt 'a' has 3 tokens and its response up to 1: --train takes 3 together"
    found = failing(lambda: check_sizes(sampler(), short, asks(1)))
    assert found == (message, "shorten the prompt or leave it out")


def test_a_kernel_that_does_not_say_what_it_takes():
    check_sizes(with_context(sampler(), None), with_context(scorer(), None), asks(10_000))


def test_a_server_with_another_vocabulary_shows_in_its_answers():
    server = sampler(vocabulary=50)
    server.vocabulary = None
    many = asks(40, tuple(Prompt(str(n), f"f:{n}", token_ids=(1,)) for n in range(40)))
    message, hint = failing(lambda: list(run_suite(server, scorer(), many, drawn=LAW, scored=LAW)))
    assert message in {
        f"--inference answered token id {n}, and --train has a vocabulary of 48" for n in (48, 49)
    }
    assert hint == POLICY


class Reversing(ToyModel):
    """The same weights with a tokenizer of its own."""

    def encode(self, text, messages):
        return super().encode(text, messages)[::-1]


def test_two_tokenizers():
    other = LocalSampler(Reversing(), top_k=3)
    message = "f:1: the tokenizers make different tokens of it: 3 by --inference, 3 by --train"
    hint = "save one tokenizer beside both, or give prompt_token_ids, which pass by the tokenizers"
    assert failing(lambda: check_tokenizers(other, scorer(), PROMPTS)) == (message, hint)
    check_tokenizers(sampler(), scorer(), PROMPTS)
    check_tokenizers(other, scorer(), PROMPTS[1:])


class Mute(ToyModel):
    def encode(self, text, messages):
        raise UsageError("holds no tokenizer")


def test_a_kernel_without_tokenizer_takes_the_ids_it_is_given():
    mute = LocalSampler(Mute(), top_k=3)
    assert mute.encode("abc") is None
    check_tokenizers(mute, scorer(), PROMPTS)
    assert np.array_equal(sampler().encode("abc"), scorer().encode("abc", ()))
