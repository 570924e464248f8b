"""llama.cpp's own route ``/completion``: what is asked for, read, and cut out again byte for byte.

The recordings in data_llamacpp/ are of a server of October 2026, each with and without `n_probs`.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from engine_answers import HASHER, LLAMACPP, SGLANG, VLLM, observation, seen_in
from hypothesis import given
from hypothesis import strategies as st
from proxy_scenes import playing, replay, scene

from paritas.collectors.openai import Engine, plan_of
from paritas.collectors.openai.columns import Doubt
from paritas.collectors.openai.native import without_probabilities
from paritas.collectors.openai.plans import Route, Unobserved
from paritas.collectors.openai.streams import EventCutter, data_of
from paritas.collectors.openai.tally import ProxyFault, Tally
from paritas.collectors.openai.watching import EventWatcher, WholeWatcher
from paritas.records import LogprobSemantics, TokenStatus

DATA = Path(__file__).with_name("data_llamacpp")
WHOLE, STREAM, EVENTS = "whole.json", "stream.sse", "text/event-stream"
PROBABILITIES = "completion_probabilities"


def plan(asked, facts=LLAMACPP, **named):
    return plan_of(Route.NATIVE, json.dumps(asked).encode(), facts, **{"takes": True, **named})


def recorded(name):
    return (DATA / name).read_bytes()


def unasked(name):
    """The same answer where nobody asked for log-probabilities."""
    stem, _, ending = name.partition(".")
    return recorded(f"{stem}_unasked.{ending}")


def lasting(answer):
    """The bytes of an answer but its times, which differ from request to request."""
    return re.sub(rb'"timings":\{[^}]*\}', b"", answer)


def pieces(name):
    return [data_of(event) for event in EventCutter().feed(recorded(name))]


def ids_in(trace, ids):
    return trace.token.tolist() == HASHER.hash(np.array(ids)).tolist()


@pytest.mark.parametrize(
    ("asked", "added", "top_k"),
    [
        ({}, {"n_probs": 1}, 1),
        ({"n_probs": None}, {"n_probs": 1}, 1),
        ({"n_probs": 3}, {}, 3),
        ({"n_probs": True}, {}, 1),
        ({"logprobs": 2}, {}, 2),  # it counts here, too
        ({"post_sampling_probs": True}, {"n_probs": 1}, 1),
    ],
)
def test_what_is_asked_for(asked, added, top_k):
    found = plan(asked, top_k=1)
    assert json.loads(found.body) == {**asked, **added}
    assert (bool(found.strip), found.is_changed, found.top_k) == (bool(added), bool(added), top_k)
    assert plan(asked, takes=False).unobserved == (Unobserved.NOT_IN_SHARE if added else None)


@pytest.mark.parametrize(
    ("asked", "facts", "reason"),
    [
        ({"n_probs": 0}, LLAMACPP, Unobserved.CONFLICT),
        ({"n_probs": -1}, LLAMACPP, Unobserved.CONFLICT),
        ({"n_probs": "x"}, LLAMACPP, Unobserved.CONFLICT),
        ({"logprobs": 0}, LLAMACPP, Unobserved.CONFLICT),  # the answer would repeat another number
        ({"response_fields": ["content"]}, LLAMACPP, Unobserved.NO_TOKEN_IDS),
        ({"n_probs": 1, "response_fields": ["content"]}, LLAMACPP, Unobserved.NO_TOKEN_IDS),
        ({}, VLLM, Unobserved.NO_TOKEN_IDS),
        ({}, SGLANG, Unobserved.NO_TOKEN_IDS),
    ],
)
def test_what_passes_as_it_came(asked, facts, reason):
    found = plan(asked, facts)
    assert (found.unobserved, found.is_changed) == (reason, False)


@pytest.mark.parametrize(
    ("prompt", "is_many"),
    [
        ("a", False),
        ([5, 6], False),
        (["a", 6], False),
        (["a"], False),
        (["a", "b"], True),
        ([[5], [6]], True),
    ],
)
def test_several_prompts_are_told_from_a_mixed_one(prompt, is_many):
    assert plan({"prompt": prompt}).is_many is is_many


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_stripped_stream_is_the_one_nobody_asked_for(size):
    """The law of the recording is one of its own: a grammar, so the end token and a quoted letter beyond ASCII come."""
    asked = {"stream": True, "grammar": "…"}
    watcher = EventWatcher(
        observation(Route.NATIVE, LLAMACPP, asked=asked), plan(asked).strip, Tally(), now_ns=lambda: 0
    )
    came = recorded(STREAM)
    out = [watcher.feed(came[at : at + size]) for at in range(0, len(came), size)]
    assert lasting(b"".join([*out, watcher.rest()])) == lasting(unasked(STREAM))


def whole_watcher(tally):
    watching = observation(Route.NATIVE, LLAMACPP)
    return WholeWatcher(watching, plan({}).strip, tally, now_ns=lambda: 0, limit_bytes=1 << 20)


def test_a_stripped_document_is_the_one_nobody_asked_for():
    watcher = whole_watcher(Tally())
    assert watcher.feed(recorded(WHOLE)) == b""
    assert lasting(watcher.rest()) == lasting(unasked(WHOLE))


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", recorded(WHOLE)[:-1]])
def test_a_broken_document_passes_and_is_counted(body):
    tally = Tally()
    watcher = whole_watcher(tally)
    assert watcher.feed(body) + watcher.rest() == body
    assert dict(tally.faults) == {ProxyFault.STRIPPING: 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=4)
FORMS = st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}])


@given(
    st.lists(st.tuples(OBJECTS, OBJECTS, JSON, st.integers(0, 5)), min_size=1, max_size=3),
    FORMS,
    st.booleans(),
)
def test_only_what_was_added_is_cut(answers, form, is_list):
    """Whatever else is there, in whichever order and form: it stays to the byte."""
    before, after = [], []
    for others, settings, probabilities, place in answers:
        told = {**others, "generation_settings": {**settings, "n_probs": 0}}
        more = list({**told, "generation_settings": {**settings, "n_probs": 7}}.items())
        more.insert(place, (PROBABILITIES, probabilities))
        before.append(told)
        after.append(dict(more))
    with_ours, without = (json.dumps(all_ if is_list else all_[0], **form) for all_ in (after, before))
    assert without_probabilities(with_ours.encode()) == without.encode()


@given(JSON, FORMS)
def test_other_documents_stay(told, form):
    body = json.dumps(told, **form).encode()
    assert without_probabilities(body) == body


def test_a_whole_answer():
    (answer,) = [json.loads(recorded(WHOLE))]
    seen = seen_in([answer], Route.NATIVE, LLAMACPP, asked={"prompt": "a"}, top_k=2)
    (trace,) = seen.traces
    entries = answer[PROBABILITIES]
    assert ids_in(trace, [one["id"] for one in entries])
    assert trace.logprob.tolist() == [np.float32(one["logprob"]) for one in entries]
    assert trace.top.logprob.shape == (4, 2)
    assert trace.sampling.semantics is LogprobSemantics.RAW
    assert trace.timings.decode_s == answer["timings"]["predicted_ms"] / 1000
    assert seen.doubts.total() == 0


def test_a_stream_tells_its_end_token():
    """As no stream of the OpenAI routes does, so a letter beyond ASCII hides nothing here."""
    seen = seen_in(pieces(STREAM), Route.NATIVE, LLAMACPP, asked={"stream": True})
    (trace,) = seen.traces
    assert ids_in(trace, [88, 2756, 216, 18, 105, 279, 18, 198, 0])
    assert set(trace.status.tolist()) == {TokenStatus.VALID}
    assert (trace.timings.ttft_s, trace.timings.decode_s) == (1.0, 8.0)
    assert trace.itl_s.tolist()[1:] == [1.0] * 8
    assert seen.doubts.total() == 0


def answer(texts, counted, **more):
    """An answer with one entry a text; ids count up."""
    entries = [{"id": n, "token": text, "logprob": -0.5} for n, text in enumerate(texts)]
    told = {"index": 0, "stop": True, "stop_type": "limit", "tokens_predicted": counted}
    return {**told, PROBABILITIES: entries, **more}


@pytest.mark.parametrize(
    ("told", "doubt"),
    [
        (answer("ab", 2), None),
        (answer("é!", 2), None),
        (answer("é!", 3), Doubt.HIDDEN_TOKENS),
        (answer("é!", 3, stop_type="eos"), Doubt.HIDDEN_TOKENS),
        (answer("ab", 4, stop_type="word"), None),  # what a stop text cut off is at the end
        (answer("ab", 2, stop=False), Doubt.UNFINISHED),
        (answer("", 1), Doubt.NO_TOKEN_IDS),
        ({**answer("", 1), PROBABILITIES: [{"content": "a", "probs": []}]}, Doubt.NO_TOKEN_IDS),  # older
        ({**answer("", 1), PROBABILITIES: "x", "tokens_predicted": None, "index": "y"}, Doubt.NO_TOKEN_IDS),
    ],
)
def test_what_makes_no_trace_is_counted(told, doubt):
    seen = seen_in([told], Route.NATIVE, LLAMACPP)
    assert (len(seen.traces), dict(seen.doubts)) == ((1, {}) if doubt is None else (0, {doubt: 1}))


def test_several_prompts_are_several_choices():
    many = [answer("é!", 3), answer("ab", 2, index=1), None, "x"]
    seen = seen_in([many], Route.NATIVE, LLAMACPP, asked={"prompt": ["a", "b"]})
    assert [trace.sequence_id for trace in seen.traces] == ["/1"]  # nobody named the request here
    assert dict(seen.doubts) == {Doubt.HIDDEN_TOKENS: 1}


def test_progress_of_the_prompt_is_no_token():
    """Before the first token its ``tokens`` hold a zero."""
    progress = {"index": 0, "tokens": [0], "stop": False, "tokens_predicted": 0, "prompt_progress": {}}
    (trace,) = seen_in([progress, *pieces(STREAM)], Route.NATIVE, LLAMACPP, asked={"stream": True}).traces
    assert (len(trace), trace.timings.ttft_s) == (9, 2.0)


def test_post_sampling_probs_tell_another_law():
    told = answer("", 1) | {PROBABILITIES: [{"id": 5, "token": "a", "prob": 0.5, "top_probs": []}]}
    (trace,) = seen_in([told], Route.NATIVE, LLAMACPP, asked={"post_sampling_probs": True}).traces
    assert trace.logprob[0] == np.float32(np.log(0.5))
    assert trace.sampling.semantics is LogprobSemantics.PROCESSED


@pytest.mark.parametrize("path", ["/completion", "/completions"])
@pytest.mark.parametrize(("name", "kind"), [(WHOLE, "application/json"), (STREAM, EVENTS)])
def test_the_proxy_asks_and_takes_out(path, name, kind):
    async def steps():
        async with scene(replay(recorded(name), kind), engine=Engine.LLAMACPP) as s:
            asked = {"prompt": "a", "stream": kind == EVENTS}
            status, _, body = await s.post(path, asked, X_Request_Id="mine")
            assert (status, lasting(body)) == (200, lasting(unasked(name)))
            (sent,) = s.upstream.posts()
            assert (sent.path, sent.json) == (path, {**asked, "n_probs": 1})
            (trace,) = await s.traces()
            assert (trace.run_id, trace.sequence_id) == ("run", "mine")

    playing(steps())


def test_an_answer_without_an_id_has_a_fresh_name():
    async def steps():
        async with scene(replay(recorded(WHOLE)), engine=Engine.LLAMACPP) as s:
            for _ in range(2):
                await s.post("/completion", {"prompt": "a"})
            names = {trace.sequence_id for trace in await s.traces()}
            assert len(names) == 2
            assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)

    playing(steps())


@pytest.mark.parametrize(("name", "kind"), [(WHOLE, "application/json"), (STREAM, EVENTS)])
def test_what_a_client_asked_for_passes_to_the_byte(name, kind):
    async def steps():
        async with scene(replay(recorded(name), kind), engine=Engine.LLAMACPP, share=0.0) as s:
            asked = b'{ "prompt": "a",  "n_probs": 2 }'
            assert (await s.post("/completion", asked))[2] == recorded(name)
            (sent,) = s.upstream.posts()
            assert sent.body == asked
            assert len(await s.traces()) == 1

    playing(steps())


def test_another_engine_answers_for_itself():
    async def steps():
        async with scene(replay(b'{"error":{}}', status=404), engine=Engine.VLLM) as s:
            assert (await s.post("/completion", {"prompt": "a"}))[::2] == (404, b'{"error":{}}')
            assert (await s.stopped()).unobserved == {Unobserved.NO_TOKEN_IDS: 1}

    playing(steps())
