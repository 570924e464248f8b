"""Real processes: one writes, another reads, and the writer is killed in the middle of it."""

import subprocess
import sys

import pytest

from paritas.agent.eventlog import EmbeddedLog, EmbeddedReader, LogSettings, SyncMode
from paritas.clock import SystemClock
from paritas.wire import WireRecord

ROLLING = "LogSettings(partitions=2, segment_bytes=200_000, limit_bytes=2**28, sync=SyncMode.NONE)"
SETTINGS = LogSettings(partitions=2, segment_bytes=200_000, limit_bytes=2**28, sync=SyncMode.NONE)

# Appends `count` records whose content follows from their number, and says each time how far it is.
WRITER = f"""
import sys
from pathlib import Path
from paritas.agent.eventlog import EmbeddedLog, LogSettings, SyncMode
from paritas.clock import SystemClock
from paritas.wire import WireRecord
root, first, count, size = Path(sys.argv[1]), *map(int, sys.argv[2:])
with EmbeddedLog(root, {ROLLING}, clock=SystemClock()) as log:
    print("open", flush=True)
    for number in range(first, first + count):
        key = b"%032x" % number
        log.append(WireRecord(key, key * size), partition_key=key)
        print(number, flush=True)
"""


def start_writer(root, first, count, size):
    arguments = [sys.executable, "-c", WRITER, root, str(first), str(count), str(size)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE)


def expected(number, size):
    key = b"%032x" % number
    return WireRecord(key, key * size)


def drain(reader, offsets, found):
    """Read what is there now; return whether it was anything."""
    moved = False
    for partition, offset in offsets.items():
        batch = reader.read(partition, offset, limit=50)
        assert batch.skipped == {}
        found += [stored.record for stored in batch]
        offsets[partition] = batch.next_offset
        moved |= batch.next_offset > offset
    return moved


def test_a_reader_in_another_process_sees_every_record_once_while_it_is_written(tmp_path):
    count, size = 400, 300  # 10 kB a record: twenty segments
    with start_writer(tmp_path, 0, count, size) as writer:
        assert writer.stdout.readline() == b"open\n"
        found, offsets = [], {0: 0, 1: 0}
        with EmbeddedReader(tmp_path) as reader:
            for _ in range(count):
                writer.stdout.readline()
                drain(reader, offsets, found)
            assert len(found) == count
    assert sorted(found, key=lambda r: r.key) == [expected(number, size) for number in range(count)]


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_writer_killed_in_the_middle_loses_nothing_it_acknowledged(tmp_path, size):
    acknowledged, found, offsets = [], [], {0: 0, 1: 0}
    for kill_after in (1, 7, 20):
        with start_writer(tmp_path, len(acknowledged) * 1000, 10**6, size) as writer:
            assert writer.stdout.readline() == b"open\n"
            told = [int(writer.stdout.readline()) for _ in range(kill_after)]
            writer.kill()
            acknowledged += told + [
                int(line) for line in writer.stdout.read().splitlines(True) if line[-1:] == b"\n"
            ]
        with EmbeddedReader(tmp_path) as reader:  # before anybody has mended the end
            while drain(reader, offsets, found):
                pass
    with EmbeddedLog(tmp_path, SETTINGS, clock=SystemClock()) as log:
        log.append(expected(9, size), partition_key=b"%032x" % 9)
        while drain(log, offsets, found):
            pass
        assert sum(log.end_offsets().values()) == len(found)
    numbers = [int(record.key, 16) for record in found[:-1]]
    assert all(record == expected(int(record.key, 16), size) for record in found)
    assert set(acknowledged) <= set(numbers)
    # Appended, and killed before it could say so: at most one in each round.
    assert len(set(numbers) - set(acknowledged)) <= 3
    assert len(set(numbers)) == len(numbers)
