"""Streams, stripping, names and headers on the way through."""

import json

import pytest
from engine_answers import events, observation, recorded, told
from hypothesis import given
from hypothesis import strategies as st

from paritas.collectors.openai import Strip, strip
from paritas.collectors.openai.headers import answer_headers, request_headers
from paritas.collectors.openai.naming import Names, is_in_share, names_of, traceparent_of
from paritas.collectors.openai.plans import Route
from paritas.collectors.openai.streams import EventCutter, data_of, with_data
from paritas.collectors.openai.tally import ProxyFault, Tally
from paritas.collectors.openai.watching import EventWatcher, WholeWatcher

RULES = Strip(("logprobs", "token_ids", "prompt_token_ids"), (), ("prompt_token_ids",))


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\r", b"data: x", b"\n\n", b":c\n"]), max_size=30),
    st.integers(1, 5),
)
def test_events_joined_are_the_stream(parts, size):
    content = b"".join(parts)
    cutter = EventCutter()
    out = [event for at in range(0, len(content), size) for event in cutter.feed(content[at : at + size])]
    assert b"".join([*out, cutter.rest()]) == content


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n"])
def test_an_event_ends_where_a_line_is_empty_however_lines_end(end):
    event = b'data: {"a": 1}' + end
    cutter = EventCutter()
    cut = [one for at in range(3 * len(event)) for one in cutter.feed((event * 3)[at : at + 1])]
    assert (cut, cutter.rest()) == ([event] * 3, b"")


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: [DONE]\n\n", None),
        (b": keep-alive\n\n", None),
        (b"event: ping\n\n", None),
        (b"data: {nonsense\n\n", None),
        (b'data:{"a":1}\n\n', {"a": 1}),
        (b'data: {"a":\ndata: 1}\n\n', {"a": 1}),
        (b'id: 3\r\ndata: {"a": 1}\r\n\r\n', {"a": 1}),
    ],
)
def test_data_of_an_event(event, data):
    assert data_of(event) == data


def test_other_lines_of_an_event_stay():
    assert with_data(b"event: x\ndata: 1\nid: 2\n\n", b"9") == b"event: x\nid: 2\ndata: 9\n\n"


def test_a_stripped_completion_is_what_vllm_writes_unasked():
    """Only what the client did not ask for becomes null; all else stays, digit for digit."""
    answer = strip(told("completions.json"), RULES)
    whole = told("completions.json")
    choice, before = answer["choices"][0], whole["choices"][0]
    assert (choice["logprobs"], choice["token_ids"], choice["prompt_token_ids"]) == (None, None, None)
    same = set(before) - {"logprobs", "token_ids", "prompt_token_ids"}
    assert {k: choice[k] for k in same} == {k: before[k] for k in same}
    assert {k: v for k, v in answer.items() if k != "choices"} == {
        k: v for k, v in whole.items() if k != "choices"
    }
    assert list(choice) == list(before)


def test_without_rules_nothing_changes():
    assert strip(told("chat.json"), Strip()) == told("chat.json")


def watcher(name, rules, tally=None):
    kind = Route.CHAT if name.startswith("chat") else Route.COMPLETIONS
    return EventWatcher(observation(kind, asked={"stream": True}), rules, tally or Tally(), now_ns=lambda: 1)


@pytest.mark.parametrize("name", ["chat_stream.sse", "completions_stream.sse"])
@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_a_stream_without_rules_goes_out_as_it_comes(name, size):
    content, watching = recorded(name), watcher(name, Strip())
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    assert [watching.feed(piece) for piece in pieces] == pieces
    assert watching.rest() == b""


@pytest.mark.parametrize("name", ["chat_stream.sse", "completions_stream.sse"])
def test_a_stripped_stream_has_the_same_events(name):
    content, watching = recorded(name), watcher(name, RULES)
    out = watching.feed(content) + watching.rest()
    assert out.endswith(b"data: [DONE]\n\n")
    assert b'logprob"' not in out
    cut = [data_of(event) for event in EventCutter().feed(out)][:-1]
    for before, after in zip(events(name), cut, strict=True):
        assert after == strip(before, RULES)


def test_an_event_goes_out_with_its_last_byte():
    watching = watcher("chat_stream.sse", RULES)
    event = EventCutter().feed(recorded("chat_stream.sse"))[1]
    assert watching.feed(event[:-1]) == b""
    assert watching.feed(event[-1:]).startswith(b"data: {")


def test_a_last_event_without_its_empty_line_still_goes_out():
    watching = watcher("chat_stream.sse", RULES)
    assert watching.feed(b'data: {"choices": []}') == b""
    assert watching.rest() == b'data: {"choices":[]}\n\n'


def test_an_endless_event_passes():
    watching = watcher("chat_stream.sse", RULES)
    out = b"".join(watching.feed(b"a" * (1 << 20)) for _ in range(18)) + watching.rest()
    assert out == b"a" * (18 << 20)


def whole(rules, tally, limit_bytes=1 << 20):
    return WholeWatcher(
        observation(Route.COMPLETIONS), rules, tally, now_ns=lambda: 1, limit_bytes=limit_bytes
    )


def test_a_document_is_held_only_to_be_stripped():
    content, tally = recorded("completions.json"), Tally()
    passing = whole(Strip(), tally)
    assert passing.feed(content[:100]) + passing.feed(content[100:]) + passing.rest() == content
    holding = whole(RULES, tally)
    assert holding.feed(content[:100]) + holding.feed(content[100:]) == b""
    assert json.loads(holding.rest())["choices"][0]["logprobs"] is None
    assert not tally.faults


@pytest.mark.parametrize("rules", [Strip(), RULES])
def test_a_document_too_large_passes_as_it_came(rules):
    content, tally = recorded("completions.json"), Tally()
    passing = whole(rules, tally, limit_bytes=100)
    out = b"".join(passing.feed(content[at : at + 60]) for at in range(0, len(content), 60)) + passing.rest()
    assert out == content
    assert tally.faults == {ProxyFault.ANSWER_TOO_LARGE: 1}


@pytest.mark.parametrize("rules", [Strip(), RULES])
def test_what_is_no_json_passes(rules):
    tally = Tally()
    passing = whole(rules, tally)
    assert passing.feed(b"<html>") + passing.rest() == b"<html>"
    assert tally.faults == {ProxyFault.STRIPPING: 1}


def test_names_of_a_request():
    headers = {"x-paritas-run-id": " r ", "x-paritas-attributes": "slice=math, replica=a,=x,"}
    assert names_of(headers, "paritas:run=q,sequence=s,group=g,weights=3") == Names(
        "r", "s", "g", "3", {"slice": "math", "replica": "a"}
    )
    assert names_of({}, "user-7") == Names()
    assert len(names_of({"x-paritas-sequence-id": "s" * 999}).sequence_id) == 256


@pytest.mark.parametrize(
    ("names", "is_many", "expected"),
    [
        (Names(), False, ("c", "")),
        (Names(), True, ("c/2", "c")),
        (Names(sequence_id="s", group_id="g"), False, ("s", "g")),
        (Names(sequence_id="s", group_id="g"), True, ("s/2", "g")),
    ],
)
def test_names_of_a_choice(names, is_many, expected):
    assert names.of_choice("c", 2, is_many=is_many) == expected


def test_a_share_is_a_share():
    keys = [f"s-{n}" for n in range(20_000)]
    taken = [key for key in keys if is_in_share(key, 0.05)]
    assert abs(len(taken) - 1000) < 5 * 31  # five standard deviations
    assert all(is_in_share(key, 0.1) for key in taken)
    assert is_in_share("\ud800", 1.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
        "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
    ],
)
def test_what_is_no_traceparent(text):
    assert traceparent_of(text) is None


def test_headers_of_one_connection_stay_behind():
    sent = [
        ("Host", "a"),
        ("Connection", "close, X-Mine"),
        ("X-Mine", "1"),
        ("TE", "trailers"),
        ("Authorization", "Bearer k"),
        ("Content-Length", "3"),
    ]
    assert request_headers(sent, added={}, is_changed=False) == [
        ("Authorization", "Bearer k"),
        ("Content-Length", "3"),
    ]
    added = {"traceparent": "t"}
    assert request_headers([*sent, ("Traceparent", "old")], added=added, is_changed=True) == [
        ("Authorization", "Bearer k"),
        ("traceparent", "t"),
    ]
    back = [
        ("Transfer-Encoding", "chunked"),
        ("Set-Cookie", "a"),
        ("Set-Cookie", "b"),
        ("ETag", "e"),
        ("Content-Length", "3"),
    ]
    assert answer_headers(back, is_changed=True) == [("Set-Cookie", "a"), ("Set-Cookie", "b")]
    assert ("Content-Length", "3") in answer_headers(back, is_changed=False)


def test_a_fault_while_observing_ends_the_observation_only():
    class Broken:
        def read(self, answer, *, now_ns):
            raise RuntimeError

    tally = Tally()
    watching = EventWatcher(Broken(), Strip(), tally, now_ns=lambda: 1)
    content = recorded("completions_stream.sse")
    assert watching.feed(content) == content
    assert tally.faults == {ProxyFault.OBSERVING: 1}
