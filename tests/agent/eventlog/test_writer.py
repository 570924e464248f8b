"""The writer keeps to its bounds and its account, and an append happens whole or not at all."""

import contextlib
import resource
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from segment_files import fill, open_writer, payload, read_from, segment_files

from paritas.agent.eventlog import (
    SegmentLimits,
    SegmentReader,
    SegmentWriter,
    SkipReason,
    SyncMode,
    WriterSettings,
)
from paritas.agent.eventlog.frames import FRAME_HEADER_BYTES, MAX_PAYLOAD_BYTES
from paritas.agent.eventlog.segments import FILE_HEADER_BYTES
from paritas.clock import ManualClock
from paritas.errors import PermanentError, TransientError, UsageError

FRAME = FRAME_HEADER_BYTES + len(payload(0))
TWO_A_SEGMENT = FILE_HEADER_BYTES + 2 * FRAME


def small(segments):
    """Room for `segments` segments of two records."""
    return SegmentLimits(TWO_A_SEGMENT, segments * TWO_A_SEGMENT)


def balanced(counters):
    gone = counters.delivered + sum(counters.dropped.values())
    return counters.recovered + counters.accepted == gone + counters.queued


def test_segments_roll_by_size_and_are_named_by_their_first_number(tmp_path):
    fill(tmp_path, 5, small(9))
    assert [int(path.stem) for path in segment_files(tmp_path)] == [0, 2, 4]
    assert {path.stat().st_size for path in segment_files(tmp_path)[:2]} == {TWO_A_SEGMENT}


def test_a_frame_larger_than_a_segment_has_one_of_its_own(tmp_path):
    with open_writer(tmp_path, small(9)) as writer:
        for size in (1, 1000, 1):
            writer.append(bytes(size))
    assert [int(path.stem) for path in segment_files(tmp_path)] == [0, 1, 2]


def test_a_payload_in_two_parts_is_read_as_one(tmp_path):
    with open_writer(tmp_path, small(9)) as writer:
        writer.append(b"he", b"ad")
        writer.append(b"head")
    assert read_from(tmp_path)[1] == [b"head", b"head"]


def test_the_oldest_segment_is_dropped_counted_and_told(tmp_path):
    gaps = []
    with open_writer(
        tmp_path, small(3), on_gap=lambda seqs, reason: gaps.append((seqs, str(reason)))
    ) as writer:
        for number in range(11):
            writer.append(payload(number))
            assert writer.counters().size_bytes <= 3 * TWO_A_SEGMENT
        counters = writer.counters()
        assert (writer.first_seq, writer.next_seq) == (6, 11)
    assert gaps == [(range(2), "overflow"), (range(2, 4), "overflow"), (range(4, 6), "overflow")]
    assert (counters.accepted, counters.dropped, counters.queued) == (11, {"overflow": 6}, 5)
    assert read_from(tmp_path) == (list(range(6, 11)), [payload(n) for n in range(6, 11)], {"expired": 6})


def test_release_deletes_what_is_delivered_and_drops_only_the_rest(tmp_path):
    gaps = []
    with open_writer(tmp_path, small(3), on_gap=lambda seqs, _: gaps.append(seqs)) as writer:
        for number in range(6):
            writer.append(payload(number))
        writer.release(3)
        assert [int(path.stem) for path in segment_files(tmp_path)] == [2, 4]
        for number in range(6, 10):
            writer.append(payload(number))
        counters = writer.counters()
    assert gaps == [range(3, 4)]
    assert (counters.delivered, counters.dropped, counters.queued) == (3, {"overflow": 1}, 6)
    assert balanced(counters)


def test_a_cursor_says_what_was_delivered_before_the_opening(tmp_path):
    fill(tmp_path, 5, small(9))
    with open_writer(tmp_path, small(9), released_seq=3) as writer:
        assert (writer.counters().recovered, writer.counters().queued) == (2, 2)


def test_numbers_a_cursor_has_seen_are_not_given_again(tmp_path):
    fill(tmp_path, 2)
    with open_writer(tmp_path, released_seq=7) as writer:
        assert (writer.append(b"x"), writer.counters().recovered) == (7, 0)
    assert read_from(tmp_path)[::2] == ([0, 1, 7], {"missing": 5})


def test_threads_share_a_writer(tmp_path):
    with open_writer(tmp_path, small(1000)) as writer:
        given = [[] for _ in range(4)]

        def work(mine):
            mine.extend(writer.append(b"%016d" % threading.get_ident()) for _ in range(20))

        threads = [threading.Thread(target=work, args=(mine,)) for mine in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(seq for mine in given for seq in mine) == list(range(80))
    assert read_from(tmp_path)[0] == list(range(80))


class FileSizeLimit:
    """The kernel refuses to let any file of this process grow beyond a size: a full disk in small."""

    def __init__(self, size_bytes):
        self.size_bytes = size_bytes

    def __enter__(self):
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size_bytes, self._before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


@pytest.mark.parametrize("room", [0, 1, FRAME_HEADER_BYTES, FRAME - 1])
def test_a_full_disk_refuses_an_append_whole(tmp_path, room):
    with open_writer(tmp_path) as writer:
        writer.append(payload(0))
        [path] = segment_files(tmp_path)
        before = path.stat().st_size
        with FileSizeLimit(before + room), pytest.raises(TransientError) as caught:
            writer.append(payload(1))
        assert path.stat().st_size == before
        assert caught.value.render() == (
            f"[transient] {path}: cannot write: File too large\n"
            "  hint: free space on the volume, or lower limit_bytes"
        )
        assert read_from(tmp_path)[0] == [0]
        assert writer.append(payload(1)) == 1
        assert balanced(writer.counters())
    assert read_from(tmp_path) == ([0, 1], [payload(0), payload(1)], {})


def test_an_append_that_cannot_be_undone_is_left_behind_in_its_segment(tmp_path):
    with open_writer(tmp_path) as writer:
        writer.append(payload(0))
        writer._active.broken = True
        with segment_files(tmp_path)[0].open("ab") as file:
            file.write(b"\xa7\x5e\x01\x00half")
        assert writer.append(payload(1)) == 1
    assert len(segment_files(tmp_path)) == 2
    assert read_from(tmp_path) == ([0, 1], [payload(0), payload(1)], {})


def test_a_payload_that_is_too_large_is_refused_for_good(tmp_path):
    with open_writer(tmp_path) as writer, pytest.raises(PermanentError) as caught:
        writer.append(bytes(MAX_PAYLOAD_BYTES + 1))
    assert caught.value.render() == (
        "[permanent] a record of 1048577 bytes exceeds the limit of 1048576\n"
        "  hint: split it by trace, or into segments"
    )


def test_a_closed_writer_says_so(tmp_path):
    writer = open_writer(tmp_path)
    writer.close()
    writer.close()
    with pytest.raises(UsageError, match="the writer is closed"):
        writer.append(b"x")


@pytest.mark.parametrize("mode", SyncMode)
def test_unsynced_bytes_are_what_a_power_loss_may_take(tmp_path, mode):
    settings = WriterSettings("00" * 16, small(99), mode)
    with SegmentWriter(tmp_path, settings, clock=ManualClock()) as writer:
        for number in range(9):
            writer.append(payload(number))
        assert writer.unsynced_bytes == (0 if mode is SyncMode.ALWAYS else 9 * FRAME)
        writer.flush()
        assert writer.counters().unsynced_bytes == 0


def open_below(folder):
    """How many files below a folder this process has open; what other tests left open or close is not counted."""
    held = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since
            held.append(str(link.readlink()))
    return sum(path.startswith(str(folder)) for path in held)


def test_unsynced_files_do_not_pile_up_without_a_sync(tmp_path):
    with open_writer(tmp_path / "warm") as warm:
        warm.append(b"x")
    settings = WriterSettings("00" * 16, small(99), SyncMode.INTERVAL)
    with SegmentWriter(tmp_path / "log", settings, clock=ManualClock()) as writer:
        for number in range(40):
            writer.append(payload(number))
        assert 1 <= open_below(tmp_path) <= 6
    assert open_below(tmp_path) == 0


@pytest.mark.parametrize(
    ("segment_bytes", "total_bytes", "text", "hint"),
    [
        (
            1000,
            1999,
            "[usage] a limit of 1999 bytes is less than two segments of 1000",
            "raise limit_bytes, or lower segment_bytes or the number of partitions",
        ),
        (64, 10_000, "[usage] segment_bytes is 64, less than an empty frame takes", "64 MiB is a good size"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(segment_bytes, total_bytes, text, hint):
    with pytest.raises(UsageError) as caught:
        SegmentLimits(segment_bytes, total_bytes)
    assert caught.value.render() == f"{text}\n  hint: {hint}"


class WriterModel(RuleBasedStateMachine):
    """Random appends, releases, damage and reopenings against a list of what was appended."""

    def __init__(self):
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.directory = Path(self._folder.name)
        self.appended, self.dropped, self.released = {}, Counter(), 0
        self.writer = self.reopen()

    def reopen(self):
        return open_writer(self.directory, small(3), released_seq=self.released, on_gap=self.remember)

    def remember(self, seqs, reason):
        self.dropped[reason] += len(seqs)

    @rule(size=st.integers(0, 200))
    def append(self, size):
        content = b"%d" % size * (1 + size // 3)
        self.appended[self.writer.append(content)] = content

    @rule(data=st.data())
    def release(self, data):
        with SegmentReader(self.directory) as reader:
            got = reader.read(self.released, limit=data.draw(st.integers(0, 5)))
        self.writer.release(got.next_seq, skipped=got.skipped)
        self.released = max(self.released, got.next_seq)

    @rule(noise=st.binary(max_size=5))
    def crash_and_reopen(self, noise):
        """End without closing, with the beginning of a frame behind the last one."""
        next_seq = self.writer.next_seq
        self.writer._active.close()
        path = segment_files(self.directory)[-1]
        path.write_bytes(path.read_bytes() + (b"\xa7\x5e\x01\x00" + noise)[: len(noise)])
        self.writer = self.reopen()
        assert self.writer.next_seq == next_seq

    @invariant()
    def the_account_balances(self):
        assert balanced(self.writer.counters())

    @invariant()
    def a_reader_sees_exactly_what_is_kept(self):
        seqs, payloads, skipped = read_from(self.directory, self.writer.first_seq)
        assert seqs == list(range(self.writer.first_seq, self.writer.next_seq))
        assert payloads == [self.appended[seq] for seq in seqs]
        assert skipped == {}

    def teardown(self):
        self.writer.close()
        self._folder.cleanup()


WriterModel.TestCase.settings = settings(deadline=None, max_examples=12, stateful_step_count=20)
test_the_writer_follows_its_model = WriterModel.TestCase


def test_skipped_records_are_dropped_by_reason(tmp_path):
    fill(tmp_path, 4)
    damaged = bytearray(segment_files(tmp_path)[0].read_bytes())
    damaged[FILE_HEADER_BYTES + FRAME + FRAME_HEADER_BYTES] ^= 1
    segment_files(tmp_path)[0].write_bytes(damaged)
    with open_writer(tmp_path) as writer, SegmentReader(tmp_path) as reader:
        got = reader.read(0, limit=10)
        writer.release(got.next_seq, skipped=got.skipped)
        counters = writer.counters()
    assert got.skipped == {SkipReason.CORRUPT: 1}
    assert (counters.delivered, counters.dropped, counters.queued) == (3, {"corrupt": 1}, 0)
    assert balanced(counters)
