"""Dumps that are still being written: nothing twice, nothing lost, what happened is told."""

import gzip
import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from dump_lines import (
    encode,
    nemo_line,
    prime_line,
    problems_in,
    raw_options,
    recorded_line,
    shown,
    traces_in,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.clock import ManualClock
from paritas.collectors.dumps import follow
from paritas.collectors.dumps.lines import Line
from paritas.collectors.dumps.problem import ProblemReason
from paritas.collectors.dumps.tail import FileTail
from paritas.errors import UsageError


class WriterClock(ManualClock):
    """A clock on which each wait is one action of the dump's writer; after the last it says stop."""

    def __init__(self, *actions) -> None:
        super().__init__()
        self._actions = list(actions)
        self.waits = 0

    def wait(self, event: threading.Event, *, timeout_s: float) -> bool:
        self.waits += 1
        if self._actions:
            self._actions.pop(0)()
        if not self._actions:
            event.set()
        return super().wait(event, timeout_s=timeout_s)


def followed(path: Path, *actions, **options):
    clock = WriterClock(*actions)
    return [brief(item) for item in follow(path, raw_options(**options), clock=clock, stop=threading.Event())]


def brief(item) -> str:
    told = shown(item)
    return told.get("problem") or f"{told['trace'][0]} {told['id']}"


def appending(path: Path, content: bytes):
    def append() -> None:
        with path.open("ab") as file:
            file.write(content)

    return append


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "dump.jsonl"
    path.touch()
    return path


def line(name: str, **changes) -> bytes:
    return encode(recorded_line(sample_id=name, **changes))


def test_lines_are_given_once_they_are_whole(path: Path) -> None:
    first, second = line("a"), line("b")
    actions = [
        appending(path, first[:20]),
        appending(path, first[20:] + second[:5]),
        appending(path, second[5:-1]),
        appending(path, b"\nnot json\n"),
    ]
    assert followed(path, *actions) == ["i a", "i b", "bad_json"]


def test_what_is_there_before_and_after_the_stop(path: Path) -> None:
    path.write_bytes(line("a"))
    assert followed(path, appending(path, line("b"))) == ["i a", "i b"]
    stop = threading.Event()
    stop.set()
    clock = WriterClock()
    assert [brief(item) for item in follow(path, raw_options(), clock=clock, stop=stop)] == ["i a", "i b"]
    assert clock.waits == 0


def test_what_is_written_just_before_the_stop_is_seen(path: Path) -> None:
    class LastWords(threading.Event):
        """Set when asked for the first time, after a last line was written."""

        def is_set(self) -> bool:
            appending(path, line("z"))()
            return True

    items = follow(path, raw_options(), clock=WriterClock(), stop=LastWords())
    assert [brief(item) for item in items] == ["i z"]


def test_last_line_without_end(path: Path) -> None:
    assert followed(path, appending(path, line("a") + line("b")[:-1])) == ["i a", "i b"]
    assert followed(path, appending(path, b"\n" + line("c")[:-9])) == ["i a", "i b", "truncated_line"]
    assert followed(path, appending(path, b"\n[1, 2]"))[-1] == "not_object"  # whole as it is


def test_waits_as_long_as_it_was_told(path: Path) -> None:
    clock, stop = WriterClock(*[lambda: None] * 3), threading.Event()
    before = clock.monotonic_ns()
    assert list(follow(path, raw_options(), clock=clock, stop=stop, poll_s=2.0)) == []
    # The clock stands still once the event is set, in the last of the three waits.
    assert clock.monotonic_ns() - before == 4_000_000_000


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (encode(nemo_line()), ["i dump.jsonl/0", "t dump.jsonl/0"]),
        (encode(prime_line()), ["i 3/0/0", "t 3/0/0"]),
    ],
)
def test_format_is_that_of_the_first_object(path: Path, content: bytes, expected: list[str]) -> None:
    assert followed(path, appending(path, b"noise\n"), appending(path, content)) == ["bad_json", *expected]


def test_truncation_is_noticed(path: Path) -> None:
    path.write_bytes(line("a") + line("b"))

    def cut() -> None:
        path.write_bytes(line("c"))

    assert followed(path, cut, appending(path, line("d"))) == ["i a", "i b", "file_shrank", "i c", "i d"]


def test_rotation_reads_the_old_file_to_its_end(path: Path) -> None:
    path.write_bytes(line("a"))

    def rotate() -> None:
        appending(path, line("b") + line("x")[:-5])()
        path.rename(path.with_suffix(".old"))

    def create() -> None:
        path.write_bytes(line("c"))

    assert followed(path, rotate, create) == ["i a", "i b", "truncated_line", "file_replaced", "i c"]


def test_what_its_writer_adds_between_the_rename_and_its_own_turn_is_read(path: Path) -> None:
    """Who rotates makes the new file first and tells the writer then: what it has open meanwhile is the old one."""
    path.write_bytes(line("a"))
    with path.open("ab", buffering=0) as writer:

        def rotate() -> None:
            path.rename(path.with_suffix(".1"))
            path.touch()

        def still_there() -> None:
            writer.write(line("b"))

        def turn() -> None:
            writer.write(line("c"))
            path.write_bytes(line("d"))

        told = followed(path, rotate, still_there, turn)
    assert told == ["i a", "i b", "i c", "file_replaced", "i d"]


def test_times_go_on_where_a_file_is_cut_or_replaced(path: Path) -> None:
    """A line without a time gets one by its number; one that went back would be late, and lost."""
    path.write_bytes(line("a") + line("b"))

    def cut() -> None:
        path.write_bytes(line("c"))

    def rotate() -> None:
        path.rename(path.with_suffix(".1"))
        path.write_bytes(b"no line\n" + line("d"))

    clock, options = WriterClock(cut, rotate), raw_options(base_ns=100, step_ns=7)
    items = list(follow(path, options, clock=clock, stop=threading.Event()))
    times = {trace.sequence_id: trace.event_ns for trace in traces_in(items)}
    assert times == {"a": 100, "b": 107, "c": 114, "d": 128}
    assert [one.line for one in problems_in(items)] == [3, 2, 1]  # of the file that they are in


def test_messages_of_truncation_and_rotation(path: Path) -> None:
    path.write_bytes(b"one\ntwo\n")
    with FileTail(path, limit_bytes=100) as tail:
        assert [item.content for item in tail.poll()] == [b"one", b"two"]
        os.truncate(path, 0)
        (problem,) = tail.poll()
        assert problem.render() == (
            f"{path}:3: the file got shorter and is read from its start\n"
            "  hint: what was added just before is not read: rotate by renaming, not by copying and cutting"
        )
        path.unlink()
        assert list(tail.poll()) == []
        path.write_bytes(b"new\n")
        problem, new = tail.poll()
        assert problem.render() == f"{path}:1: the file was replaced; the new one is read"
        assert (new.number, new.content) == (1, b"new")
    tail.close()


def test_what_was_added_just_before_a_rotation_is_read(path: Path) -> None:
    class Busy(FileTail):
        """Its writer adds a line and rotates after the end was read, before the name is looked at."""

        def _is_replaced(self) -> bool:
            with path.open("ab") as file:
                file.write(b"two\n")
            path.rename(path.with_suffix(".1"))
            path.write_bytes(b"three\n")
            return super()._is_replaced()

    path.write_bytes(b"one\n")
    with Busy(path, limit_bytes=100) as tail:
        told = [item.content if isinstance(item, Line) else item.reason for item in tail.poll()]
    assert told == [b"one", b"two", ProblemReason.FILE_REPLACED, b"three"]


def test_usage_errors(tmp_path: Path, path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        follow(tmp_path / "nothing", raw_options(), clock=WriterClock(), stop=threading.Event())
    assert str(caught.value) == f"{tmp_path}/nothing: no such file or folder"
    with pytest.raises(UsageError) as caught:
        followed(path, appending(path, b'{"a": 1}\n'))
    assert str(caught.value) == f"{path}: holds no dump that can be read"
    path.write_bytes(gzip.compress(line("a"), mtime=0))
    with pytest.raises(UsageError) as caught:
        followed(path)
    assert caught.value.render() == (
        f"[usage] {path}: is compressed and cannot be followed\n  hint: read it once it is finished"
    )


def test_prime_steps_are_read_once_they_are_stable(tmp_path: Path) -> None:
    def write(step: int):
        def act() -> None:
            folder = tmp_path / "token_exports" / f"step_{step}"
            folder.mkdir(parents=True)
            (folder / "rank_0.jsonl").write_bytes(encode(prime_line(step=step)))

        return act

    def stabilise(step: int):
        return (tmp_path / "token_exports" / f"step_{step}" / "STABLE").touch

    actions = [write(1), write(2), stabilise(2), stabilise(1), write(3)]
    assert followed(tmp_path, *actions) == ["i 2/0/0", "t 2/0/0", "i 1/0/0", "t 1/0/0"]


def test_nemo_files_one_after_another(tmp_path: Path) -> None:
    def step(n: int, content: bytes):
        return appending(tmp_path / f"train_data_step{n}.jsonl", content)

    whole = encode(nemo_line(idx=0), nemo_line(idx=1))
    (tmp_path / "train_data_step8.jsonl.gz").write_bytes(gzip.compress(encode(nemo_line())))
    actions = [step(9, whole[:-10]), step(9, whole[-10:]), step(10, whole[:-10]), step(11, whole)]
    assert followed(tmp_path, *actions) == [
        *("i 8/0", "t 8/0"),
        *("i 9/0", "t 9/0", "i 9/1", "t 9/1"),
        *("i 10/0", "t 10/0", "truncated_line"),
        *("i 11/0", "t 11/0", "i 11/1", "t 11/1"),
    ]


def test_a_folder_that_gets_its_first_dump_later(tmp_path: Path) -> None:
    name = tmp_path / "train_data_step1.jsonl"
    assert followed(tmp_path, lambda: None, appending(name, encode(nemo_line()))) == ["i 1/0", "t 1/0"]


def test_stopping_early_closes_the_file(path: Path) -> None:
    path.write_bytes(line("a") + line("b"))
    items = follow(path, raw_options(), clock=WriterClock(), stop=threading.Event())
    next(items)
    items.close()  # an open file would be a ResourceWarning, hence an error


@given(st.lists(st.integers(0, 400), max_size=6))
@settings(deadline=None, max_examples=40)
def test_any_cutting_of_the_writes_gives_the_same_items(tmp_path_factory, cuts: list[int]) -> None:
    content = line("a") + b"{broken\n" + line("b", logprobs=[None, -1.0, 2.0]) + b"\n" + line("c")
    path = tmp_path_factory.mktemp("cuts") / "dump.jsonl"
    path.touch()
    bounds = [0, *sorted(min(cut * 3, len(content)) for cut in cuts), len(content)]
    writes = [appending(path, content[a:b]) for a, b in pairwise(bounds)]
    assert followed(path, *writes) == ["i a", "bad_json", "i b", "i c"]
