"""The suite: names, seeds, order, laws, and kernels that do not fit each other."""

import numpy as np
import pytest
from toy_kernels import sampler, scorer
from usage_errors import failing

from paritas.collectors.kernels import (
    Prompt,
    Suite,
    asks_of,
    run_suite,
    scoring_law,
)
from paritas.collectors.kernels.divergence import Divergence
from paritas.records import LogprobSemantics, Sampling

PROMPTS = (
    Prompt("a", "f:1", text="abc", labels={"slice": "x"}),
    Prompt("b", "f:2", messages=({"role": "user", "content": "xy"},)),
    Prompt("c", "f:3", token_ids=(4, 5, 6)),
)
LAW = Sampling(1.0, 1.0, 0, 0.0)


def asks(**changes):
    return asks_of(Suite(PROMPTS, **{"samples": 2, "max_tokens": 8, "seed": 0, **changes}), scorer())


def test_every_response_has_a_name_a_group_and_a_seed_of_its_own():
    found = asks()
    assert [a.sample_id for a in found] == ["a/0", "a/1", "b/0", "b/1", "c/0", "c/1"]
    assert [a.group_id for a in found] == ["a", "a", "b", "b", "c", "c"]
    assert len({a.seed for a in found}) == 6
    assert all(0 <= a.seed < 1 << 31 for a in found)
    assert found[0].labels == {"slice": "x"}
    assert found[4].prompt.tolist() == [4, 5, 6]


def test_seeds_follow_the_run_and_nothing_else():
    assert [a.seed for a in asks()] == [a.seed for a in asks(max_tokens=3)]
    assert {a.seed for a in asks()}.isdisjoint(a.seed for a in asks(seed=1))


def test_each_response_is_drawn_and_scored_once_in_an_order_without_trend():
    suite = tuple(Prompt(str(i), f"f:{i}", token_ids=(1,) * (1 + i % 5)) for i in range(40))
    found = list(
        run_suite(sampler(), scorer(), asks_of(Suite(suite, max_tokens=4), scorer()), drawn=LAW, scored=LAW)
    )
    assert sorted(int(a.ask.group_id) for a, _ in found) == list(range(40))
    lengths = [a.ask.prompt.size for a, _ in found]
    assert lengths != sorted(lengths)
    assert all(a.token.size == s.logprob.size for a, s in found)


@pytest.mark.parametrize(
    ("drawn", "changed", "expected"),
    [
        (Sampling(0.6, 0.9, semantics=LogprobSemantics.PROCESSED), Sampling(), (0.6, 1.0)),
        (Sampling(0.6, 0.9, semantics=LogprobSemantics.RAW), Sampling(), (1.0, 1.0)),
        (Sampling(0.6, semantics=LogprobSemantics.TEMPERATURE_ONLY), Sampling(), (0.6, 1.0)),
        (
            Sampling(0.6, 0.9, semantics=LogprobSemantics.PROCESSED),
            Sampling(temperature=1.0, top_p=0.9),
            (1.0, 0.9),
        ),
    ],
)
def test_the_trainer_scores_as_trainers_do(drawn, changed, expected):
    law = scoring_law(drawn, changed)
    assert (law.temperature, law.top_p) == expected
    assert law.semantics is LogprobSemantics.UNKNOWN


def test_ids_of_another_tokenizer():
    suite = Suite((Prompt("a", "f:9", token_ids=(5, 48)),))
    expected = "f:9: token id 48 is outside the vocabulary of 48", "are these ids of another tokenizer?"
    assert failing(lambda: asks_of(suite, scorer())) == expected


def test_a_prompt_without_tokens():
    suite = Suite((Prompt("a", "f:9", text=""),))
    assert failing(lambda: asks_of(suite, scorer())) == (
        "f:9: the tokenizer makes no token of it",
        "give another prompt: a kernel scores what follows at least one token",
    )


def test_divergence_sums_what_was_compared():
    found, pairs = Divergence(), list(run_suite(sampler(), scorer(noise=0.3), asks(), drawn=LAW, scored=LAW))
    for pair in pairs:
        found.add(*pair)
    tv = np.concatenate([s.exact.tv for _, s in pairs])
    ell = np.concatenate([s.logprob - a.logprob for a, s in pairs])
    told = found.as_dict()
    assert (told["sequences"], told["tokens"], told["tv_is_exact"]) == (6, tv.size, True)
    assert told["tv"] == pytest.approx(tv.mean(), rel=1e-6)
    assert told["max_abs_nats"] == pytest.approx(np.abs(ell).max())
    assert told["argmax_flip_rate"] == np.concatenate([s.exact.flip for _, s in pairs]).mean()
    assert Divergence().as_dict()["max_oscillation_logits"] is None
