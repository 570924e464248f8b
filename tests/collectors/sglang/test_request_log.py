"""SGLang's log of requests while it is written: hours, cuts, rotations, garbage."""

import json
import threading

import pytest
from engine_answers import HASHER

from paritas.clock import ManualClock
from paritas.collectors.dumps.problem import Problem
from paritas.collectors.sglang import RequestLog, SglangSource, follow_request_log
from paritas.errors import UsageError

SOURCE = SglangSource(HASHER)


def row(name, *, tokens=2):
    told = {
        "id": name,
        "finish_reason": {"type": "length"},
        "prompt_tokens": 3,
        "completion_tokens": tokens,
        "output_token_logprobs": [[-0.5, n, None] for n in range(tokens)],
    }
    return json.dumps({"request_parameters": "{}", **told}) + "\n"


def hour(folder, number):
    return folder / f"sglang-request-metrics-20261128_{number:02}.log"


def write(file, text, mode="a"):
    with file.open(mode) as handle:
        handle.write(text)


def told(items):
    return [one.reason if isinstance(one, Problem) else one.sequence_id for one in items]


def test_lines_come_once_and_whole(tmp_path):
    with RequestLog(tmp_path, SOURCE) as log:
        assert told(log.poll()) == []
        write(hour(tmp_path, 4), row("a") + row("b")[:20])
        assert told(log.poll()) == ["a"]
        write(hour(tmp_path, 4), row("b")[20:])
        assert told(log.poll()) == ["b"]
        assert told(log.poll()) == []


def test_a_new_hour_ends_the_old_one(tmp_path):
    write(hour(tmp_path, 4), row("a"))
    with RequestLog(tmp_path, SOURCE) as log:
        assert told(log.poll()) == ["a"]
        write(hour(tmp_path, 4), row("b"))
        write(hour(tmp_path, 5), row("c"))
        write(hour(tmp_path, 6), row("d"))
        assert told(log.poll()) == ["b", "c", "d"]
        write(tmp_path / "other.log", row("x"))
        assert told(log.poll()) == []


def test_a_file_that_was_cut_is_read_again(tmp_path):
    write(hour(tmp_path, 4), row("a") + row("b"))
    with RequestLog(tmp_path, SOURCE) as log:
        assert told(log.poll()) == ["a", "b"]
        write(hour(tmp_path, 4), row("c"), mode="w")
        assert told(log.poll()) == ["file_shrank", "c"]


def test_a_file_that_was_replaced_is_read_to_its_end_first(tmp_path):
    write(hour(tmp_path, 4), row("a"))
    with RequestLog(tmp_path, SOURCE) as log:
        assert told(log.poll()) == ["a"]
        write(hour(tmp_path, 4), row("b"))
        hour(tmp_path, 4).rename(tmp_path / "gone.1")
        assert told(log.poll()) == ["b"]
        write(hour(tmp_path, 4), row("c"))
        assert told(log.poll()) == ["file_replaced", "c"]


def test_garbage_is_told_with_its_place_and_passed_over(tmp_path):
    without = json.dumps({"request_parameters": "{}", "id": "quiet", "finish_reason": {}}) + "\n"
    write(hour(tmp_path, 4), "{no\n" + "[1]\n" + '{"a": 1}\n' + without + row("a"))
    with RequestLog(tmp_path, SOURCE) as log:
        items = list(log.poll())
    assert told(items) == ["bad_json", "not_object", "missing_key", "a"]
    assert items[2].render() == (
        f"{hour(tmp_path, 4)}:3: finish_reason is missing\n  hint: is this SGLang's log of requests?"
    )


def test_following_ends_when_told(tmp_path):
    write(hour(tmp_path, 4), row("a") + row("b")[:-1])
    stop = threading.Event()
    stop.set()
    assert told(follow_request_log(tmp_path, SOURCE, clock=ManualClock(), stop=stop)) == ["a", "b"]


def test_no_folder_is_one_clear_error(tmp_path):
    with pytest.raises(UsageError) as error:
        RequestLog(tmp_path / "no", SOURCE)
    assert error.value.render() == (
        f"[usage] {tmp_path}/no: is no folder\n  hint: name the one of --export-metrics-to-file-dir"
    )
