"""The declared policy and the names, by tables.  Parameters are shaped like vLLM's (tests/vllm_shapes.py)."""

from dataclasses import replace

import pytest
from vllm_shapes import FACTS, Params

from paritas.collectors.openai.naming import Names
from paritas.collectors.vllm.account import Unobserved
from paritas.collectors.vllm.asking import TOP_LIMIT, Declared, asked_of, identity_of, names_in
from paritas.records import LogprobSemantics

RAW, PROCESSED, UNKNOWN = LogprobSemantics.RAW, LogprobSemantics.PROCESSED, LogprobSemantics.UNKNOWN


def asked(params, *, facts=FACTS, share=1.0, top_k=0, is_speculative=False):
    declared = Declared(share=share, top_k=top_k)
    return asked_of(params, facts, declared, key="s", is_speculative=is_speculative)


@pytest.mark.parametrize(
    ("params", "told", "expected"),
    [
        (Params(), {}, (None, 0, 1, 0)),
        (Params(), {"top_k": 5}, (None, 5, 6, 5)),
        (Params(), {"top_k": 500}, (None, TOP_LIMIT, TOP_LIMIT + 1, TOP_LIMIT)),
        (Params(), {"share": 0.0}, (Unobserved.SHARE, None, 1, 0)),
        (Params(logprobs=0), {"share": 0.0, "top_k": 5}, (None, None, 1, 0)),
        (Params(logprobs=3), {"share": 0.0}, (None, None, 4, 3)),
        (Params(logprobs=100), {}, (None, None, 101, TOP_LIMIT)),
        (Params(logprobs=-1), {}, (Unobserved.WHOLE_VOCABULARY, None, 1, 0)),
        (Params(logprob_token_ids=[1, 2]), {}, (None, None, 3, 0)),
        (Params(), {"facts": replace(FACTS, are_logits=True)}, (Unobserved.LOGITS, None, 1, 0)),
    ],
)
def test_the_policy(params, told, expected):
    found = asked(params, **told)
    assert (found.unobserved, found.inject, found.width, found.top) == expected


def test_speculation_is_left_alone_where_asking_would_end_it():
    old, new = (
        replace(FACTS, kernel=replace(FACTS.kernel, engine_version=version))
        for version in ("0.13.2", "0.14.0")
    )
    assert asked(Params(), facts=old, is_speculative=True).unobserved is Unobserved.SPECULATIVE
    assert asked(Params(), facts=new, is_speculative=True).inject == 0
    assert asked(Params(logprobs=1), facts=old, is_speculative=True).unobserved is None


def test_the_share_is_drawn_by_name():
    declared = Declared(share=0.3)
    taken = [
        asked_of(Params(), FACTS, declared, key=f"s{n}", is_speculative=False).unobserved is None
        for n in range(1000)
    ]
    assert 240 < sum(taken) < 360
    again = asked_of(Params(), FACTS, declared, key="s7", is_speculative=False)
    assert (again.unobserved is None) == taken[7]


@pytest.mark.parametrize(
    ("params", "semantics", "expected"),
    [
        (Params(temperature=0.6), RAW, RAW),
        (Params(temperature=0.6), PROCESSED, PROCESSED),
        (Params(temperature=0.0), RAW, RAW),
        (Params(temperature=0.0), PROCESSED, RAW),
    ],
)
def test_what_the_numbers_mean(params, semantics, expected):
    assert asked(params, facts=replace(FACTS, semantics=semantics)).sampling.semantics is expected


def test_greedy_with_penalties_has_no_name():
    params = Params(temperature=0.0)
    params.presence_penalty = 0.5
    told = asked(params, facts=replace(FACTS, semantics=PROCESSED)).sampling
    assert (told.semantics, told.processors != "") == (UNKNOWN, True)


def test_the_law_is_told_with_all_that_bends_it():
    plain = Params(temperature=0.7, top_p=0.9, top_k=40, min_p=0.05)
    told = asked(plain).sampling
    assert (told.temperature, told.top_p, told.top_k, told.min_p) == (0.7, 0.9, 40, 0.05)
    assert told.processors == ""
    seen = set()
    for name, value in (
        ("logit_bias", {5: 1.0}),
        ("logit_bias", {5: 2.0}),
        ("bad_words", ["x"]),
        ("allowed_token_ids", [1]),
        ("min_tokens", 4),
        ("structured_outputs", object),
    ):
        bent = Params()
        setattr(bent, name, value)
        seen.add(asked(bent).sampling.processors)
    assert len(seen) == 6
    assert "" not in seen


@pytest.mark.parametrize(
    ("external", "index", "choices", "expected"),
    [
        ("chatcmpl-a", 0, 1, ("chatcmpl-a", "")),
        ("chatcmpl-a", 1, 2, ("chatcmpl-a/1", "chatcmpl-a")),
        ("cmpl-a-0", 0, 1, ("cmpl-a", "")),
        ("cmpl-a-1", 0, 1, ("cmpl-a/1", "cmpl-a")),
        ("cmpl-a-1", 1, 2, ("cmpl-a/3", "cmpl-a")),
        ("cmpl-12", 0, 1, ("cmpl-12", "")),
        ("17", 0, 1, ("host:1/17", "")),
        ("17", 1, 2, ("host:1/17/1", "host:1/17")),
        ("mine", 0, 1, ("mine", "")),
    ],
)
def test_names_without_a_word_from_the_client(external, index, choices, expected):
    found = identity_of(Names(), external, index, choices=choices, instance="host:1")
    assert (found.sequence_id, found.group_id) == expected


def test_a_client_names_its_choices():
    found = identity_of(Names(sequence_id="s", group_id="g"), "17", 1, choices=2, instance="h")
    assert (found.sequence_id, found.group_id) == ("s/1", "g")


def test_extra_arguments_that_are_none_are_passed_over():
    told = Names(run_id="r")
    for extra in (None, [1], {}, {"paritas_run_id": None}, {"paritas_run_id": ""}):
        assert names_in(Params(extra_args=extra), told) == told
    assert names_in(Params(extra_args={"paritas_weights_version": 3}), None).weights_version == "3"
    assert len(names_in(Params(extra_args={"paritas_sequence_id": "x" * 999}), None).sequence_id) == 256
