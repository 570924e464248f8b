"""Recordings that come through a pipe, as a shell's `<(zcat …)` gives them: whole, or refused."""

import os
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from dump_lines import encode, raw_options, recorded_line, traces_in

from paritas.collectors.dumps import read_dump, read_recorded
from paritas.collectors.dumps.tail import FileTail
from paritas.errors import UsageError
from paritas.records import Role

pytestmark = pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="pipes have no names here")
# More than a pipe or one block holds, and nothing in it shows how deep the lists are.
LINES = [
    recorded_line(sample_id=f"s-{n}", top_logprobs=[[[t, -0.5]] for t in (11, 12, 13)]) for n in range(6000)
]


@contextmanager
def piped(content):
    """Give the path of a pipe whose writer writes `content` once, and whose reading end stays open as a shell's does."""
    reading, writing = os.pipe()

    def write():
        with os.fdopen(writing, "wb") as file:
            file.write(content)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield Path(f"/dev/fd/{reading}")
    finally:
        while os.read(reading, 1 << 20):
            pass
        thread.join()
        os.close(reading)


def test_a_recording_is_read_whole():
    content = encode(*LINES)
    assert len(content) > 1 << 20
    with piped(content) as path:
        items = list(read_recorded(path, Role.INFERENCE, raw_options()))
    assert [one.sequence_id for one in traces_in(items)] == [line["sample_id"] for line in LINES]


@pytest.mark.parametrize(
    "read",
    [lambda path: read_dump(path, raw_options()), lambda path: FileTail(path, limit_bytes=100)],
    ids=["recognised", "followed"],
)
def test_what_must_be_read_twice_refuses(read):
    with piped(encode(recorded_line())) as path, pytest.raises(UsageError) as caught:
        read(path)
    assert caught.value.render() == (
        f"[usage] {path}: is no regular file, and has to be read twice\n  hint: write it to a file first"
    )
