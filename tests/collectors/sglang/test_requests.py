"""Requests of SGLang, as its 0.5 source writes them: no SGLang runs here."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from engine_answers import HASHER

from paritas.collectors.openai.columns import Doubt
from paritas.collectors.sglang.requests import Finished, SglangSource, request_in_line, trace_of_request
from paritas.records import LogprobSemantics, TokenStatus

SOURCE = SglangSource(HASHER, "run", "0", {"replica": "a"})


def meta(**changed):
    """``meta_info`` of a request of three tokens, with ``--enable-metrics``."""
    told = {
        "id": "rid-1",
        "finish_reason": {"type": "stop", "matched": 2},
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "cached_tokens": 4,
        "weight_version": "7",
        "output_token_logprobs": [[-0.5, 11, None], [-1.0, 12, None], [-3.4028234663852886e38, 13, None]],
        "output_token_logprobs_length": 3,
        "e2e_latency": 3.0,
        "queue_time": 0.25,
        "first_token_latency": 1.0,
        "forward_entry_time": 1795813722.5,
        "prefill_finished_time": 1795813723.0,
        "request_received_ts": 1795813722.0,
    }
    return {name: value for name, value in (told | changed).items() if value is not ...}


def parameters(**sampling):
    return {"rid": "rid-1", "sampling_params": {"temperature": 0.6, "top_p": 0.9} | sampling}


def traced(asked=None, told=None):
    return trace_of_request(Finished(asked or parameters(), told or meta()), SOURCE)


def test_a_request_with_everything():
    trace, doubts = traced()
    assert (trace.run_id, trace.sequence_id, trace.weights_version) == ("run", "rid-1", "7")
    assert trace.logprob[:2].tolist() == [-0.5, -1.0]
    assert trace.token.tolist() == HASHER.hash(np.array([11, 12, 13])).tolist()
    assert trace.status.tolist() == [TokenStatus.VALID, TokenStatus.VALID, TokenStatus.SENTINEL]
    assert trace.sampling.semantics is LogprobSemantics.TEMPERATURE_ONLY
    assert (trace.sampling.temperature, trace.sampling.top_p, trace.sampling.top_k) == (0.6, 0.9, None)
    times = trace.timings
    assert (times.queue_s, times.ttft_s, times.prefill_s, times.decode_s) == (0.25, 1.0, 0.5, 2.0)
    assert trace.event_ns == 1_795_813_722_000_000_000
    assert trace.attributes == {"replica": "a", "prefix_cache": "part", "cached_prompt_tokens": "4"}
    assert not doubts


def test_without_metrics_only_the_whole_time_is_told():
    names = ("queue_time", "first_token_latency", "forward_entry_time", "prefill_finished_time")
    trace, _ = traced(told=meta(**dict.fromkeys((*names, "request_received_ts"), ...)))
    times = trace.timings
    assert (times.queue_s, times.ttft_s, times.prefill_s, times.decode_s) == (None, None, None, None)
    assert trace.event_ns == 0


def test_spans_of_weights_are_one_label():
    spans = [{"version": "7", "start": 0, "end": 1}, {"version": "8", "start": 1, "end": 3}]
    trace, doubts = traced(told=meta(weight_versions=spans))
    assert trace.weights_version == "7+8"
    assert doubts == {Doubt.MIXED_WEIGHTS: 1}


def test_default_is_no_version():
    assert traced(told=meta(weight_version="default"))[0].weights_version == "0"


def test_top_lists_are_cut_to_what_was_asked():
    top = [[[-0.1, 5, None], [-0.5, 11, None]]] * 3
    trace, _ = traced({**parameters(), "top_logprobs_num": 2}, meta(output_top_logprobs=top))
    assert trace.top.token[0].tolist() == HASHER.hash(np.array([5, 11])).tolist()


def test_custom_parameters_name_a_sequence():
    custom = {"paritas_sequence_id": "s", "paritas_group_id": 3, "paritas_run_id": "r"}
    trace, _ = traced(parameters(custom_params=custom))
    assert (trace.run_id, trace.sequence_id, trace.group_id) == ("r", "s", "3")


def test_greedy_is_reported_at_temperature_one():
    assert traced(parameters(temperature=0))[0].sampling.temperature == 1.0


@pytest.mark.parametrize(
    ("changed", "doubt"),
    [
        ({"output_token_logprobs": ...}, Doubt.NO_TOKEN_IDS),
        ({"finish_reason": None}, Doubt.UNFINISHED),
    ],
)
def test_what_gives_no_trace_says_why(changed, doubt):
    assert traced(told=meta(**changed)) == (None, {doubt: 1})


def test_fewer_logprobs_than_tokens_are_doubted():
    """Speculation that tells one of N: sgl-project/sglang pull 14046."""
    _, doubts = traced(told=meta(output_token_logprobs=[[-0.5, 11, None]]))
    assert doubts == {Doubt.OUT_OF_STEP: 1}


def test_a_line_of_the_log():
    row = {"request_parameters": json.dumps(parameters()), **meta()}
    trace, _ = trace_of_request(request_in_line(row), SOURCE)
    assert trace.sampling.temperature == 0.6


@pytest.mark.parametrize("told", [None, "{", 7, "[1]", "[" * 100_000], ids=lambda told: str(told)[:9])
def test_parameters_that_are_none_are_not_told(told):
    finished = request_in_line({"request_parameters": told, **meta()})
    trace, _ = trace_of_request(finished, SOURCE)
    assert (trace.sampling.temperature, trace.sequence_id) == (None, "rid-1")


def test_an_object_in_place_of_everything():
    odd = SimpleNamespace()
    assert trace_of_request(Finished({"sampling_params": odd}, {"finish_reason": odd}), SOURCE)[0] is None
