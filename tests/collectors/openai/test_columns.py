"""Top-k lists of a trace: the same entries count there as count among the tokens themselves."""

import math

import numpy as np
import pytest
from engine_answers import HASHER, chat, entry, seen_in
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.collectors.openai.plans import Route
from paritas.collectors.openai.responses import Spoken
from paritas.records import TokenStatus
from paritas.tokens import SENTINEL_NATS, SLACK_NATS, classify

EDGES = [0.0, SLACK_NATS, math.nextafter(SLACK_NATS, 1), SENTINEL_NATS, math.nextafter(SENTINEL_NATS, 0)]
EDGES += [math.nan, math.inf, -math.inf, -3.4028234663852886e38, 1.0, -0.0]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(EDGES) | st.floats(-50.0, 0.0), min_size=1, max_size=6))
def test_what_is_in_a_list_is_what_would_be_valid_as_a_token(values):
    top = list(enumerate(values))
    asked = {"logprobs": True, "top_logprobs": len(top) + 1}
    (trace,) = seen_in([chat([entry(0, -0.5, top)], token_ids=[0])], Route.CHAT, asked=asked).traces
    valid = [token for token, value in top if classify(np.array([value]))[0] == TokenStatus.VALID]
    named = trace.top.token[0][trace.top.token[0] != 0]
    assert sorted(named.tolist()) == sorted(HASHER.hash(np.array(valid, np.int64)).tolist())
    shown = trace.top.logprob[0][: len(valid)]
    assert not np.isnan(shown).any()
    assert (np.diff(shown) <= 0).all()


@pytest.mark.parametrize("value", [math.nan, SENTINEL_NATS])
def test_a_list_of_nothing_valid_is_empty(value):
    asked = {"logprobs": True, "top_logprobs": 2}
    answer = chat([entry(0, -0.5, [(3, value)])], token_ids=[0])
    (trace,) = seen_in([answer], Route.CHAT, asked=asked).traces
    assert trace.top.token.tolist() == [[0]]


def meta(tuples, total, tops=None):
    told = {"output_token_logprobs": tuples, "output_top_logprobs": tops, "completion_tokens": total}
    return {"meta_info": told}


def test_what_a_cumulative_stream_repeats_is_read_once():
    """Or a stream of n tokens costs n², on the loop that passes all streams on."""
    rows = [[-0.5, 1, None], [-0.25, 2, None], [-0.125, 3, None]]
    tops = [[[-0.5, 1, None]], None, [[-0.0625, 9, None]]]
    spoken = Spoken()
    spoken.read_generate(meta(rows[:1], 1, tops[:1]), now_ns=1)
    first = spoken.entries[0]
    spoken.read_generate(meta(rows, 3, tops), now_ns=2)
    assert spoken.entries[0] is first
    assert [(one.token_id, one.logprob, one.top) for one in spoken.entries] == [
        (1, -0.5, ((1, -0.5),)),
        (2, -0.25, ()),
        (3, -0.125, ((9, -0.0625),)),
    ]
    spoken.read_generate(meta(rows, 3, tops), now_ns=3)
    assert len(spoken.entries) == 3


@pytest.mark.parametrize(
    "before", [[meta([[-9.0, 8, None]], 2)], [meta([[-9.0, n, None] for n in range(4)], 4)]]
)
def test_a_whole_list_corrects_what_did_not_add_up(before):
    spoken = Spoken()
    for chunk in [*before, meta([[-0.5, 1, None], [-0.25, 2, None]], 2)]:
        spoken.read_generate(chunk, now_ns=1)
    assert [one.token_id for one in spoken.entries] == [1, 2]
