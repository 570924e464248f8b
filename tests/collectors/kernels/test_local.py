"""Kernels in this process, over a toy model: what is drawn, what is kept, what is scored."""

import numpy as np
import pytest
from toy_kernels import STOP, VOCABULARY, ToyModel

from paritas.collectors.kernels import Ask, LocalSampler, LocalScorer, local
from paritas.collectors.kernels.law import law_of, neutral
from paritas.records import LogprobSemantics, Role, Sampling


def ask(number, *, prompt=(5, 6), max_tokens=12):
    return Ask(f"a/{number}", "a", np.array(prompt, np.int64), seed=100 + number, max_tokens=max_tokens)


def sampled(asks, law=None, **model):
    return LocalSampler(ToyModel(**model), top_k=3).sample(asks, law or neutral())


def test_a_response_does_not_depend_on_its_batch():
    together = sampled([ask(n) for n in range(4)])
    alone = [sampled([ask(n)])[0] for n in range(4)]
    assert [a.token.tolist() for a in together] == [a.token.tolist() for a in alone]
    assert len({tuple(a.token.tolist()) for a in together}) == 4


def test_ends_at_a_stop_token_or_at_the_limit():
    answers = sampled([ask(n) for n in range(40)])
    stopped = [a for a in answers if a.finish == "stop"]
    full = [a for a in answers if a.finish == "length"]
    assert stopped
    assert full
    assert all(a.token[-1] == STOP and STOP not in a.token[:-1] and a.token.size <= 12 for a in stopped)
    assert all(a.token.size == 12 and STOP not in a.token for a in full)


def test_the_law_of_every_token_is_kept_and_tells_its_logprob():
    (answer,) = sampled([ask(1)], Sampling(0.7, 0.9))
    model = ToyModel()
    before = np.concatenate([[6], answer.token[:-1]])
    np.testing.assert_array_equal(
        answer.rows, law_of(model.table[before].astype(np.float32), Sampling(0.7, 0.9))
    )
    np.testing.assert_array_equal(answer.logprob, answer.rows[np.arange(answer.token.size), answer.token])
    assert np.isfinite(answer.logprob).all()
    assert all(row[0][1] == rows.max() for row, rows in zip(answer.top, answer.rows, strict=True))


def test_prompts_of_one_length_are_decoded_together_and_others_apart():
    model = ToyModel()
    asks = [ask(0), ask(1), ask(2, prompt=(1, 2, 3))]
    answers = LocalSampler(model, top_k=1).sample(asks, neutral())
    assert model.started == [(2, 2), (1, 3)]
    assert [a.ask.sample_id for a in answers] == ["a/0", "a/1", "a/2"]


def test_limits_of_their_own_are_kept():
    answers = sampled([ask(0, max_tokens=2), ask(1, max_tokens=9)], stops=frozenset())
    assert [a.token.size for a in answers] == [2, 9]


def test_the_batch_fits_the_memory():
    sampler = LocalSampler(ToyModel(), top_k=1)
    assert sampler.batch(16) == 4  # as many as the model decodes together
    per_response = local.LIMIT_BYTES // (VOCABULARY * 4)
    assert (sampler.batch(per_response // 3), sampler.batch(per_response * 9)) == (3, 1)


def test_what_does_not_fit_is_kept_in_a_file():
    expected = sampled([ask(1)])[0].rows
    rows = LocalSampler(ToyModel(), top_k=3, limit_bytes=100).sample([ask(1)], neutral())[0].rows
    assert isinstance(rows, np.memmap)
    np.testing.assert_array_equal(rows, expected)


def test_the_same_model_scores_what_it_drew_exactly():
    (answer,) = sampled([ask(1)])
    scored = LocalScorer(ToyModel(Role.TRAIN), top_k=3).score(answer, neutral())
    np.testing.assert_array_equal(scored.logprob, answer.logprob)
    assert scored.top == answer.top
    assert scored.exact.tv.tolist() == scored.exact.oscillation.tolist() == [0.0] * answer.token.size


def test_another_model_is_compared_law_by_law():
    (answer,) = sampled([ask(1)])
    scored = LocalScorer(ToyModel(Role.TRAIN, noise=0.3), top_k=3).score(answer, neutral())
    gap = np.exp(answer.rows.astype(float)).sum(axis=1)
    np.testing.assert_allclose(gap, 1.0, rtol=1e-6)
    assert (scored.exact.tv > 0).all()
    assert (np.maximum(-np.expm1(scored.logprob - answer.logprob), 0) <= 1).all()
    assert len(scored.exact) == answer.token.size


def test_without_whole_laws_there_is_no_exact_comparison():
    (answer,) = sampled([ask(1)])
    bare = type(answer)(answer.ask, answer.token, answer.logprob, answer.top)
    assert LocalScorer(ToyModel(Role.TRAIN), top_k=3).score(bare, neutral()).exact is None


def test_tokens_are_drawn_from_the_law_that_is_reported():
    law = LocalSampler(ToyModel(), top_k=1).law(Sampling(0.6, 0.9))
    assert law == Sampling(0.6, 0.9, semantics=LogprobSemantics.PROCESSED)


@pytest.mark.parametrize("length", [1, 5, 12])
def test_every_length_is_scored_whole(length):
    (answer,) = sampled([ask(3, max_tokens=length)], stops=frozenset())
    scored = LocalScorer(ToyModel(Role.TRAIN), top_k=2).score(answer, neutral())
    assert scored.logprob.shape == (length,)
    assert len(scored.top) == length
