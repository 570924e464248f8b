"""Bytes to lines: gzip in every state of decay, lines without end, files that are not there."""

import gzip
import random
from itertools import pairwise
from pathlib import Path

import pytest
from dump_lines import problems_in
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.collectors.dumps.lines import LineSplitter, read_lines
from paritas.collectors.dumps.problem import Problem
from paritas.errors import UsageError

LIMIT = 1 << 20


def read(path: Path, content: bytes, *, limit_bytes: int = LIMIT):
    path.write_bytes(content)
    return list(read_lines(path, limit_bytes=limit_bytes))


def contents(items) -> list[bytes | None]:
    return [item.content for item in items if not isinstance(item, Problem)]


def random_lines(n: int) -> list[bytes]:
    chance = random.Random(7)
    return [chance.randbytes(40).hex().encode() for _ in range(n)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dump.jsonl"


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
@settings(deadline=None, max_examples=100)
def test_splitting_does_not_depend_on_the_blocks(content: bytes, cuts: list[int]) -> None:
    splitter = LineSplitter(1000)
    bounds = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    blocks = [content[a:b] for a, b in pairwise(bounds)]
    lines = [line for block in blocks for line in splitter.feed(block)] + list(splitter.finish())
    expected = content.split(b"\n")
    expected = expected if expected[-1] else expected[:-1]
    assert [line.content for line in lines] == expected
    assert [line.number for line in lines] == list(range(1, len(expected) + 1))
    assert [line.whole for line in lines] == [True] * content.count(b"\n") + [False] * (
        not content.endswith(b"\n") and content != b""
    )


def test_a_long_line_is_skipped_up_to_its_end() -> None:
    splitter = LineSplitter(4)
    lines = [
        *splitter.feed(b"ab\nabcde"),
        *splitter.feed(b"fgh"),
        *splitter.feed(b"i\nabcd\nabcde"),
        *splitter.finish(),
    ]
    assert [(line.number, line.content) for line in lines] == [(1, b"ab"), (2, None), (3, b"abcd"), (4, None)]


def test_blank_lines_are_counted_but_not_given(path: Path) -> None:
    items = read(path, b"\n  \r\na\n\t\nb\n\n")
    assert [(item.number, item.content) for item in items] == [(3, b"a"), (5, b"b")]


@pytest.mark.parametrize(
    "content", [b"", b"\n\n  \n", gzip.compress(b"", mtime=0), gzip.compress(b"\n", mtime=0)]
)
def test_empty_file(path: Path, content: bytes) -> None:
    (problem,) = read(path, content)
    assert problem.reason == "empty_file"
    assert problem.render() == f"{path}: no line in it\n  hint: did its writer get to write?"


def test_gzip_shows_in_the_content_not_in_the_name(path: Path) -> None:
    assert contents(read(path, gzip.compress(b"a\nb", mtime=0))) == [b"a", b"b"]


def test_gzip_members_and_padding(path: Path) -> None:
    two = gzip.compress(b"a\nb", mtime=0) + bytes(5) + gzip.compress(b"c\n", mtime=0) + bytes(700)
    items = read(path, two)
    assert items == read(path, two + bytes(40_000))  # more than a block
    assert contents(items) == [b"a", b"bc"]
    assert not problems_in(items)


@pytest.mark.parametrize("level", [1, 9])
def test_truncated_gzip_gives_what_is_whole(path: Path, level: int) -> None:
    lines = random_lines(2000)
    packed = gzip.compress(b"\n".join(lines) + b"\n", level, mtime=0)
    for kept in (2, 5, 11, 5000, len(packed) // 2, len(packed) - 9, len(packed) - 1):
        *whole, problem = read(path, packed[:kept])
        assert contents(whole) == lines[: len(whole)]
        assert problem.reason == "truncated_gzip"
        assert problem.render() == (
            f"{path}:{len(whole) + 1}: the gzip stream ends early\n"
            "  hint: whole lines before this were read; copy the file again"
        )
    assert len(whole) == 2000  # only the checksum was cut


def test_damaged_gzip(path: Path) -> None:
    packed = bytearray(gzip.compress(b"\n".join(random_lines(4000))))
    packed[-6] ^= 0xFF  # the checksum
    *whole, problem = read(path, bytes(packed))
    assert problem.reason == "corrupt_gzip"
    assert len(whole) > 1000
    assert problem.render() == (
        f"{path}:{len(whole) + 1}: the gzip stream is damaged\n"
        "  hint: whole lines before this were read; copy the file again"
    )


def test_garbage_after_gzip_is_a_problem(path: Path) -> None:
    *whole, problem = read(path, gzip.compress(b"a\n", mtime=0) + b"garbage")
    assert contents(whole) == [b"a"]
    assert problem.reason == "corrupt_gzip"


def test_a_gzip_of_one_endless_line_stays_small(path: Path) -> None:
    items = read(path, gzip.compress(b"x" * (8 << 20) + b"\nend\n", mtime=0), limit_bytes=1 << 16)
    assert contents(items) == [None, b"end"]


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        list(read_lines(tmp_path / "nothing", limit_bytes=LIMIT))
    assert caught.value.render() == (
        f"[usage] {tmp_path}/nothing: no such file or folder\n  hint: check the name of the dump"
    )


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        list(read_lines(tmp_path, limit_bytes=LIMIT))
    assert (
        caught.value.render()
        == f"[usage] {tmp_path}: is a folder, expected a file\n  hint: name one file in it"
    )


def test_a_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as caught:
        list(read_lines(tmp_path / "file" / "x", limit_bytes=LIMIT))
    assert caught.value.render() == (
        f"[usage] {tmp_path}/file/x: cannot be read: Not a directory\n  hint: check the path and its permissions"
    )
