"""A process that has no descriptor left: nothing is lost, nothing leaks, no thread ends."""

import resource
from contextlib import contextmanager
from pathlib import Path

import pytest
from segment_files import payload, read_from

from paritas.agent.eventlog import (
    EmbeddedLog,
    GroupSync,
    LogSettings,
    SegmentLimits,
    SegmentWriter,
    SyncMode,
    WriterSettings,
)
from paritas.agent.eventlog.frames import FRAME_HEADER_BYTES
from paritas.agent.eventlog.segments import FILE_HEADER_BYTES
from paritas.clock import ManualClock, SystemClock
from paritas.errors import UsageError

TWO_A_SEGMENT = FILE_HEADER_BYTES + 2 * (FRAME_HEADER_BYTES + len(payload(0)))


def descriptors(folder):
    """How many this process has of files in `folder`; what else it opens and closes meanwhile is not counted."""
    return sum(_link(entry).startswith(f"{folder}/") for entry in Path("/proc/self/fd").iterdir())


def _link(entry):
    try:
        return str(entry.readlink())
    except OSError:  # closed meanwhile
        return ""


@contextmanager
def no_descriptor_left():
    """The kernel gives this process none, whatever others are closed meanwhile: below the limit is standard input alone."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_could_not_be_synced_is_synced_next_time(tmp_path):
    limits = SegmentLimits(TWO_A_SEGMENT, 99 * TWO_A_SEGMENT)
    settings = WriterSettings("00" * 16, limits, SyncMode.INTERVAL)
    with SegmentWriter(tmp_path, settings, clock=ManualClock()) as writer:
        for number in range(5):
            writer.append(payload(number))
        held, unsynced = descriptors(tmp_path), writer.unsynced_bytes
        with no_descriptor_left(), pytest.raises(OSError, match="Too many open files"):
            writer.flush()
        assert (descriptors(tmp_path), writer.unsynced_bytes) == (held, unsynced)
        writer.flush()
        assert (descriptors(tmp_path), writer.unsynced_bytes) == (1, 0)  # the segment appended to
    assert descriptors(tmp_path) == 0
    assert read_from(tmp_path)[0] == list(range(5))


def test_a_log_that_cannot_be_opened_leaves_none_behind(tmp_path):
    settings = LogSettings(partitions=2, sync=SyncMode.NONE)
    with EmbeddedLog(tmp_path, settings, clock=ManualClock()):
        pass
    segment = next((tmp_path / "partition-0001").glob("*.seg"))
    segment.unlink()
    segment.mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        EmbeddedLog(tmp_path, settings, clock=ManualClock())
    assert descriptors(tmp_path) == 0


def test_the_sync_thread_outlives_it():
    calls = []

    def flush():
        calls.append(1)
        if len(calls) == 1:
            raise OSError(24, "Too many open files")
        if len(calls) == 3:
            sync._closing.set()

    sync = GroupSync(flush, interval_s=0.001, clock=SystemClock())
    with sync:
        sync._thread.join(30.0)
    assert (len(calls) >= 3, sync.failures) == (True, 1)
