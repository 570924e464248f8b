"""What happens to a request that is observed, and that nothing happens to it.

The objects are shaped like vLLM's (tests/vllm_shapes.py); real vLLM is in tests/engines.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm_shapes import HASHER, Output, Params, Processor, Request, Scene, rows, step

from paritas.clock import ManualClock
from paritas.collectors.openai.columns import Doubt
from paritas.collectors.openai.naming import Names
from paritas.collectors.telling import Telling
from paritas.collectors.vllm.account import FAULTS_LIMIT, Fault, Unobserved
from paritas.records import TokenStatus

DONE = "stop"


def test_an_injected_request_is_traced_and_its_client_sees_nothing():
    scene = Scene()
    mine = scene.ask()
    state = scene.processor.request_states["cmpl-a-0"]
    assert (mine.sampling_params.logprobs, state.wanted) == (0, None)
    scene.run(step("cmpl-a-0", [7]), stamp=2.0)
    scene.run(step("cmpl-a-0", [9], finish_reason=DONE), stamp=2.5)
    assert [output.new_logprobs for output in state.given] == [None, None]
    (trace,) = scene.traces
    assert (trace.run_id, trace.sequence_id, trace.group_id) == ("run", "cmpl-a", "")
    assert trace.token.tolist() == HASHER.hash(np.array([7, 9])).tolist()
    assert trace.logprob.tolist() == [-0.5, -0.5]
    assert trace.status.tolist() == [TokenStatus.VALID, TokenStatus.VALID]
    assert trace.itl_s[1] == 0.5
    assert np.isnan(trace.itl_s[0])
    times = trace.timings
    assert (times.queue_s, times.ttft_s, times.prefill_s, times.decode_s) == (0.5, 1.25, 0.5, 2.0)
    assert trace.attributes == {"prefix_cache": "most", "cached_prompt_tokens": "4"}
    assert trace.event_ns == 5_000_000_000
    told = scene.account.read()
    assert (told.begun, told.injected, told.ended, told.faults, told.doubts) == (1, 1, 1, {}, {})


def test_without_statistics_the_steps_tell_the_times():
    scene = Scene()
    scene.ask()
    scene.processor.request_states["cmpl-a-0"].stats = None
    began_s = ManualClock().monotonic_ns() / 1e9
    scene.run(step("cmpl-a-0", [7]), stamp=began_s + 0.25)
    scene.run(step("cmpl-a-0", [8], finish_reason=DONE), stamp=began_s + 0.75)
    times = scene.traces[0].timings
    assert (times.queue_s, times.prefill_s) == (None, None)
    assert times.ttft_s == pytest.approx(0.25, abs=1e-6)
    assert times.decode_s == pytest.approx(0.5, abs=1e-6)


def test_a_clock_of_another_machine_tells_no_time_to_first_token():
    scene = Scene()
    scene.ask()
    scene.processor.request_states["cmpl-a-0"].stats = None
    scene.run(step("cmpl-a-0", [7], finish_reason=DONE), stamp=3.0)
    assert scene.traces[0].timings.ttft_s is None


def test_parameters_of_the_caller_are_never_written():
    scene = Scene()
    request = scene.ask(logprobs=None)
    callers = scene.processor.request_states["cmpl-a-0"]
    assert callers.wanted is None
    assert request.sampling_params is not None
    shared = SimpleNamespace(n=1, logprobs=None, stop=[], extra_args=None, temperature=1.0)
    first = Request("x", shared)
    scene.processor.add_request(first, "p")
    assert shared.logprobs is None
    assert first.sampling_params.logprobs == 0


def test_a_request_that_asked_keeps_what_it_gets():
    scene = Scene(share=0.0)
    request = scene.ask(logprobs=2)
    assert request.sampling_params.logprobs == 2
    state = scene.processor.request_states["cmpl-a-0"]
    wide = rows([7], extra=((3, -0.1), (7, -0.5)))
    scene.run(Output("cmpl-a-0", [7], wide, DONE))
    assert state.given[0].new_logprobs is wide
    (trace,) = scene.traces
    assert trace.top.token.tolist() == HASHER.hash(np.array([[3, 7]])).tolist()
    assert trace.top.logprob.tolist() == [[pytest.approx(-0.1), -0.5]]
    assert scene.account.read().injected == 0


def test_a_neighbour_that_asked_for_more_widens_the_rows():
    scene = Scene()
    scene.ask()
    scene.run(step("cmpl-a-0", [7], new_logprobs=rows([7], extra=((3, -0.1), (4, -0.2)))))
    scene.run(step("cmpl-a-0", [8, 9], new_logprobs=rows([8, 9], extra=((3, -0.1),)), finish_reason=DONE))
    (trace,) = scene.traces
    assert trace.logprob.tolist() == [-0.5] * 3
    assert trace.top is None
    assert not scene.account.read().doubts


def test_lists_of_lists_are_read_as_arrays_are():
    """As vLLM 0.10 and 0.11 have them."""
    scene = Scene(top_k=1)
    scene.ask("a", logprobs=0)
    scene.ask("b")
    for name, extra in (("a", ()), ("b", ((3, -0.1),))):
        first, second = (tuple(one.tolist() for one in rows(ids, extra=extra)) for ids in ([7], [8, 9]))
        scene.run(step(name, [7], new_logprobs=first))
        scene.run(step(name, [8, 9], new_logprobs=second, finish_reason=DONE))
    for trace in scene.traces:
        assert trace.logprob.tolist() == [-0.5] * 3
        assert trace.rank.tolist() == [1, 1, 1]
        assert trace.token.tolist() == HASHER.hash(np.array([7, 8, 9])).tolist()
    assert scene.traces[1].top.token[:, 0].tolist() == HASHER.hash(np.array([3, 3, 3])).tolist()
    assert not scene.account.read().faults


def test_ranks_arrive_as_the_engine_counted_them():
    scene = Scene()
    scene.ask("a")
    scene.ask("b", logprobs=2)
    scene.ask("c")
    for name, extra in (("a", ()), ("b", ((3, -0.1), (4, -0.2)))):
        scene.run(step(name, [7], new_logprobs=rows([7], extra=extra, ranks=[3])))
        scene.run(step(name, [8, 9], new_logprobs=rows([8], extra=extra, ranks=[49_000])))
        scene.run(step(name, [6], new_logprobs=rows([5], extra=extra), finish_reason=DONE))
    unranked = (*rows([7])[:2], None)
    scene.run(step("c", [7], new_logprobs=unranked, finish_reason=DONE))
    for trace in scene.traces[:2]:
        assert trace.rank.tolist() == [
            3,
            49_000,
            0,
            0,
        ]  # the third was not told, the fourth is of another token
        assert trace.rank.dtype == np.uint32
    assert scene.traces[2].rank is None
    assert not scene.account.read().faults


def test_what_a_trainer_tells_itself_is_left_to_it():
    scene = Scene()
    scene.watch.know(scene.watch._facts, "w1:held")
    telling = Telling()
    with telling.here():
        scene.ask("a", logprobs=0)
    scene.ask("b")
    for name in ("a", "b"):
        scene.run(step(name, [7], finish_reason=DONE))
    assert [trace.sequence_id for trace in scene.traces] == ["b"]
    assert scene.account.read().unobserved == {Unobserved.TRAINER: 1}
    assert (telling.requests, telling.weights_digest) == (1, "w1:held")
    assert telling.kernel == scene.watch._facts.kernel


def test_states_that_take_no_note_and_odd_outputs_leave_the_engine_alone():
    scene = Scene()
    scene.ask("a")
    state = scene.processor.request_states["a"]
    scene.watch._strip([Odd(), step("a", [1])])
    fine = step("a", [7], finish_reason=DONE)
    scene.watch._read(([fine, Odd()], 1.0), {})
    assert fine.new_logprobs is None
    assert scene.account.read().faults == {Fault.TAKE: 1}
    assert state.given == []


def test_rows_of_ids_that_somebody_chose_are_no_list_of_the_most_likely():
    scene = Scene()
    scene.ask(logprob_token_ids=[3, 4])
    scene.run(step("cmpl-a-0", [7], new_logprobs=rows([7], extra=((3, -0.1), (4, -0.2))), finish_reason=DONE))
    assert scene.traces[0].top is None


def test_missing_rows_and_wrong_ids_are_missing_tokens():
    scene = Scene()
    scene.ask()
    scene.run(step("cmpl-a-0", [6], new_logprobs=None))
    scene.run(step("cmpl-a-0", [7, 8], new_logprobs=rows([7])))
    scene.run(step("cmpl-a-0", [9], new_logprobs=rows([1]), finish_reason=DONE))
    missing, valid = TokenStatus.MISSING, TokenStatus.VALID
    assert scene.traces[0].status.tolist() == [missing, valid, missing, missing]
    assert scene.account.read().doubts == {Doubt.LENGTH_MISMATCH: 1, Doubt.ID_MISMATCH: 1}


def test_nan_is_not_missing():
    scene = Scene()
    scene.ask()
    scene.run(step("cmpl-a-0", [7], new_logprobs=rows([7], [np.nan]), finish_reason=DONE))
    assert scene.traces[0].status.tolist() == [TokenStatus.NONFINITE]


def test_zeros_everywhere_are_doubted_where_something_was_drawn():
    for temperature, doubted in ((1.0, {Doubt.ALL_ZERO: 1}), (0.0, {})):
        scene = Scene()
        scene.ask(temperature=temperature)
        ids = list(range(8))
        scene.run(step("cmpl-a-0", ids, new_logprobs=rows(ids, [0.0] * 8), finish_reason=DONE))
        assert scene.account.read().doubts == doubted


def test_tokens_past_a_stop_string_are_not_in_the_trace():
    scene = Scene()
    scene.ask(stop=[8])
    scene.run(step("cmpl-a-0", [7]))
    assert not scene.traces
    scene.run(step("cmpl-a-0", [1, 8, 2, 3]))
    assert scene.traces[0].token.tolist() == HASHER.hash(np.array([7, 1, 8])).tolist()


def test_an_aborted_request_leaves_nothing_behind():
    scene = Scene()
    scene.ask()
    scene.run(step("cmpl-a-0", [7]))
    del scene.processor.request_states["cmpl-a-0"]
    scene.run(step("cmpl-a-0", [8], finish_reason=DONE))
    assert not scene.traces
    told = scene.account.read()
    assert (told.begun, told.ended) == (1, 0)


def test_siblings_are_a_group():
    scene = Scene()
    parent = SimpleNamespace(n=2, external_req_id="chatcmpl-b", request_id="chatcmpl-b-77")
    for index in range(2):
        scene.ask(f"{index}_chatcmpl-b-77", parent=parent, index=index)
        scene.run(step(f"{index}_chatcmpl-b-77", [index + 1], finish_reason=DONE))
    told = [(trace.sequence_id, trace.group_id) for trace in scene.traces]
    assert told == [("chatcmpl-b/0", "chatcmpl-b"), ("chatcmpl-b/1", "chatcmpl-b")]


def test_the_share_takes_a_group_or_leaves_it():
    scene = Scene(share=0.5)
    for group in range(40):
        parent = SimpleNamespace(n=4, external_req_id=f"g{group}")
        taken = {
            scene.ask(f"{index}_g{group}", parent=parent, index=index).sampling_params.logprobs
            for index in range(4)
        }
        assert taken in ({None}, {0})
    assert 40 < scene.account.read().begun < 120


def test_extra_arguments_and_headers_name_a_sequence():
    headers = (Names(run_id="r", attributes={"slice": "math"}), "00-aa-bb-01")
    scene = Scene(headers=lambda: headers)
    scene.ask(extra_args={"paritas_sequence_id": "s", "paritas_group_id": "g", "other": 1})
    scene.run(step("cmpl-a-0", [7], finish_reason=DONE))
    (trace,) = scene.traces
    assert (trace.run_id, trace.sequence_id, trace.group_id) == ("r", "s", "g")
    assert trace.attributes["slice"] == "math"
    assert trace.traceparent == "00-aa-bb-01"


def test_versions_told_by_the_engine_have_precedence():
    scene = Scene(weights_version="0")
    scene.ask()
    scene.processor.request_states["cmpl-a-0"].weight_version_starts = [("default", 0)]
    scene.run(step("cmpl-a-0", [7], finish_reason=DONE))
    scene.ask("b")
    scene.processor.request_states["b"].weight_version_starts = [("3", 0), ("4", 1)]
    scene.run(step("b", [7], finish_reason=DONE))
    assert [trace.weights_version for trace in scene.traces] == ["0", "3+4"]
    assert scene.account.read().doubts == {Doubt.MIXED_WEIGHTS: 1}


def test_what_was_declared_of_old_weights_does_not_hold_for_new_ones():
    scene = Scene(weights_version="0")
    scene.watch.know(scene.watch._facts, "w1:old")
    scene.ask("a")
    scene.ask("b")
    scene.run(step("a", [7], finish_reason=DONE))
    scene.watch.touch()
    scene.run(step("b", [7], finish_reason=DONE))
    scene.ask("c")
    scene.watch.know(scene.watch._facts, "w1:new")
    scene.run(step("c", [7], finish_reason=DONE))
    told = [(trace.weights_version, trace.weights_digest) for trace in scene.traces]
    assert told == [("0", "w1:old"), ("", ""), ("", "w1:new")]


def test_a_share_of_none_and_streamed_input_are_passed_over():
    scene = Scene(share=0.0)
    assert scene.ask().sampling_params.logprobs is None
    growing = Request("g", scene.ask("h").sampling_params, resumable=True)
    scene.processor.add_request(growing, "p")
    scene.processor.add_request(Request("pooling", None), "p")
    assert scene.account.read().unobserved == {Unobserved.SHARE: 2, Unobserved.STREAMED_INPUT: 1}


class Odd:
    """What raises whenever it is looked at."""

    def __getattr__(self, name):
        raise RuntimeError(name)


def test_a_fault_of_ours_changes_nothing_and_is_logged_once(caplog):
    scene = Scene()
    scene.processor.request_states = Odd()  # no state is found there
    scene.watch._add = lambda *args: "made"
    for _ in range(3):
        assert scene.processor.add_request(Request("a", Params()), "p") == "made"
    assert scene.account.read().faults == {Fault.BEGIN: 3}
    (line,) = caplog.records
    assert line.message == (
        "not observed (begin): TypeError: 'Odd' object is not subscriptable; further ones are only counted"
    )


def test_what_was_injected_is_taken_out_even_if_reading_it_fails(caplog):
    scene = Scene()
    scene.ask()
    state = scene.processor.request_states["cmpl-a-0"]
    scene.run(step("cmpl-a-0", [7], new_logprobs=(Odd(), np.zeros((1, 1)), None)))
    scene.run(step("cmpl-a-0", [8], finish_reason=DONE))
    assert [output.new_logprobs for output in state.given] == [None, None]
    assert not scene.traces
    assert scene.account.read().faults == {Fault.TAKE: 1}
    assert len(caplog.records) == 1


def test_it_stops_after_faults_in_a_row_and_still_takes_out_what_it_injected(caplog):
    scene = Scene()
    scene.ask("open")
    state = scene.processor.request_states["open"]
    for _ in range(FAULTS_LIMIT):
        scene.account.fault(Fault.END, ValueError("no"))
    assert scene.ask("later").sampling_params.logprobs is None
    scene.run(step("open", [7], finish_reason=DONE))
    assert state.given[0].new_logprobs is None
    told = scene.account.read()
    assert told.is_stopped
    assert told.unobserved == {Unobserved.STOPPED: 1}
    assert caplog.records[-1].message == "16 faults in a row: observing stops, the engine goes on"


class Failing(Processor):
    def process_outputs(self, *args, **kwargs):
        raise RuntimeError("vLLM's own")


def test_vllms_own_errors_are_vllms():
    scene = Scene(processor=Failing())
    with pytest.raises(RuntimeError, match="vLLM's own"):
        scene.processor.process_outputs([], 1.0)


def test_calls_by_name_are_understood():
    scene = Scene()
    scene.ask()
    output = step("cmpl-a-0", [7], finish_reason=DONE)
    scene.processor.process_outputs(engine_core_outputs=[output], engine_core_timestamp=3.0)
    assert len(scene.traces) == 1


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=12
    ),
    wide=st.integers(0, 2),
)
def test_every_token_of_the_answer_is_in_the_trace_whatever_the_steps_bring(steps, wide):
    """A step has tokens, rows (too few or too many) and columns (too few or too many)."""
    scene = Scene(top_k=wide)
    scene.ask()
    ids, token = [], 0
    for tokens, given_rows, columns in steps:
        fresh = list(range(token + 1, token + 1 + tokens))
        token += tokens
        ids += fresh
        named = [fresh[n] if n < tokens else 0 for n in range(given_rows)]
        extra = tuple((1, -0.1) for _ in range(columns - 1))
        told = rows(named, extra=extra) if given_rows else None
        scene.run(Output("cmpl-a-0", fresh, told))
    scene.run(step("cmpl-a-0", [99], new_logprobs=rows([99]), finish_reason=DONE))
    (trace,) = scene.traces
    assert trace.token.tolist() == HASHER.hash(np.array([*ids, 99])).tolist()
    known = trace.status == TokenStatus.VALID
    assert (trace.logprob[known] == -0.5).all()
    assert not scene.account.read().faults
