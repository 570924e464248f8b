"""State and positions are saved together or not at all."""

import resource
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.agent.eventlog import Cursor, Saved
from paritas.errors import TransientError, UsageError

SAVED = st.builds(
    Saved,
    log_id=st.text(max_size=10),
    positions=st.dictionaries(st.integers(0, 2000), st.integers(0, 2**63), max_size=5),
    snapshot=st.binary(max_size=100),
)


@given(st.lists(SAVED, min_size=1, max_size=3))
@settings(deadline=None, max_examples=25)
def test_the_last_save_is_loaded(tmp_path_factory, saves):
    cursor = Cursor(tmp_path_factory.mktemp("c") / "cursor")
    for saved in saves:
        cursor.save(saved)
    assert Cursor(cursor.path).load() == saves[-1]
    assert [path.name for path in cursor.path.parent.iterdir()] == ["cursor"]


def test_nothing_saved_is_nothing_loaded(tmp_path):
    assert Cursor(tmp_path / "cursor").load() is None


def test_any_damaged_byte_is_noticed(tmp_path):
    cursor = Cursor(tmp_path / "cursor")
    cursor.save(Saved("a", {0: 12}, b"state"))
    whole = cursor.path.read_bytes()
    for at in range(len(whole)):
        cursor.path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(UsageError):
            cursor.load()
    for size in range(len(whole)):
        cursor.path.write_bytes(whole[:size])
        with pytest.raises(UsageError):
            cursor.load()


def test_the_error_of_a_damaged_cursor(tmp_path):
    cursor = Cursor(tmp_path / "cursor")
    cursor.path.write_text("12\n")
    with pytest.raises(UsageError) as caught:
        cursor.load()
    assert caught.value.render() == (
        f"[usage] {cursor.path}: damaged, or not a cursor\n"
        "  hint: move it away to start again from the oldest record"
    )


def test_a_full_disk_leaves_the_old_save(tmp_path):
    cursor = Cursor(tmp_path / "cursor")
    cursor.save(Saved("a", {0: 1}, b"old"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(TransientError) as caught:
            cursor.save(Saved("a", {0: 2}, bytes(5000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value) == f"{cursor.path}: cannot write: File too large"
    assert cursor.load() == Saved("a", {0: 1}, b"old")
    assert [path.name for path in tmp_path.iterdir()] == ["cursor"]


def test_who_reads_while_another_saves_reads_one_save(tmp_path):
    cursor = Cursor(tmp_path / "cursor")
    cursor.save(Saved("a", {0: 1}, b"old"))
    whole = cursor.path.read_bytes()
    with cursor.path.open("rb") as reader:
        cursor.save(Saved("a", {0: 2}, b"new, and longer"))
        assert reader.read() == whole


KILLED = """
import sys
from pathlib import Path
from paritas.agent.eventlog import Cursor, Saved
cursor = Cursor(Path(sys.argv[1]))
for number in range(10**9):
    cursor.save(Saved("a", {0: number}, b"%d" % number * 20_000))
    print(number, flush=True)
"""


@pytest.mark.parametrize("saves", [1, 4, 9])
def test_a_killed_save_leaves_a_whole_one(tmp_path, saves):
    path = tmp_path / "cursor"
    with subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE) as child:
        for _ in range(saves):
            child.stdout.readline()
        child.kill()
        acknowledged = saves - 1 + len(child.stdout.read().split())
    saved = Cursor(path).load()
    assert saved.positions[0] >= acknowledged
    assert saved.snapshot == b"%d" % saved.positions[0] * 20_000
