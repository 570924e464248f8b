"""The embedded log: its layout, its retention, its errors, and its partitions."""

import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_strategies import WIRE_RECORDS, plain_trace

from paritas.agent.eventlog import (
    EmbeddedLog,
    EmbeddedReader,
    Gap,
    GapReason,
    LogSettings,
    SegmentWriter,
    SyncMode,
    WriterSettings,
    partition_of,
)
from paritas.agent.eventlog.records import pack, pack_gap, packed, unpack, unpack_gap
from paritas.clock import ManualClock, SystemClock
from paritas.errors import RecordError, TransientError, UsageError
from paritas.proto.v1.log_record_pb2 import LogHeader, LogRecord
from paritas.wire import WireRecord, decode, encode

PLAIN = LogSettings(partitions=2, sync=SyncMode.NONE)
TINY = LogSettings(partitions=2, limit_bytes=2 * 2000, segment_bytes=400, sync=SyncMode.NONE)


def open_log(root, chosen=PLAIN, clock=None):
    return EmbeddedLog(root, chosen, clock=clock or ManualClock())


def put(log, number):
    return log.append(WireRecord(b"key", b"%06d" % number), partition_key=b"key")


def usage_error(do):
    with pytest.raises(UsageError) as caught:
        do()
    return caught.value.render()


@given(WIRE_RECORDS)
@settings(deadline=None, max_examples=60)
def test_a_record_survives_packing_into_what_protobuf_writes(record):
    headers = [LogHeader(name=name, value=value) for name, value in record.headers]
    written = LogRecord(key=record.key, headers=headers, value=record.value).SerializeToString()
    for payload in (pack(record), packed(record).head + record.value, written):
        assert unpack(payload) == record
    assert packed(record).size_bytes == len(pack(record))
    assert not record.value or pack(record) == written


@given(st.binary(max_size=60))
@settings(deadline=None, max_examples=60)
def test_random_payloads_are_a_record_or_one_reason(payload):
    try:
        record = unpack(payload)
    except RecordError as error:
        assert error.reason == "not_a_record"  # noqa: PT017 - either outcome is right
    else:
        assert isinstance(record, WireRecord)


@given(
    st.builds(
        Gap, st.integers(0, 1023), st.integers(0, 2**63), st.integers(0, 2**63), st.sampled_from(GapReason)
    )
)
@settings(deadline=None, max_examples=40)
def test_a_gap_survives_packing(gap):
    assert unpack_gap(pack_gap(gap)) == gap


def test_a_gap_of_a_later_version_is_passed_over():
    assert unpack_gap(b"\xff") is None
    assert unpack_gap(b"\x22\x05comet") is None


def test_traces_go_through_the_log_to_another_handle(tmp_path):
    records = encode([plain_trace(3), plain_trace(5, sequence_id="seq-2")], resource={})
    with open_log(tmp_path / "log") as log, EmbeddedReader(tmp_path / "log") as reader:
        places = [log.append(record, partition_key=record.key) for record in records]
        for place, length in zip(places, (3, 5), strict=True):
            [stored] = reader.read(place.partition, place.offset, limit=1)
            assert len(decode(stored.record.value).traces[0]) == length
            assert stored.appended_ns == ManualClock().now_ns()
        assert reader.end_offsets() == log.end_offsets()
        reader.flush()


def test_keys_keep_their_partition_for_ever():
    # Checksums computed bit by bit from the polynomial, not by the package.
    checksums = {b"": 0, b"123456789": 0xE3069283, b"0" * 32: 0x9CBCB3B8, b"\xff": 0xFF000000}
    assert [partition_of(key, 7) for key in checksums] == [value % 7 for value in checksums.values()]
    assert {partition_of(b"%032x" % n, 8) for n in range(100)} == set(range(8))


def test_retention_drops_the_oldest_counts_it_and_remembers_why(tmp_path):
    with open_log(tmp_path, TINY) as log, EmbeddedReader(tmp_path) as reader:
        for number in range(100):
            place = put(log, number)
        counters = log.counters()[place.partition]
        start = log.start_offsets()[place.partition]
        assert 0 < start == counters.dropped["retention"] == 100 - counters.queued
        assert counters.size_bytes <= 2000
        batch = reader.read(place.partition, 0, limit=1000)
        assert batch.skipped == {"expired": start}
        assert [stored.record.value for stored in batch] == [b"%06d" % n for n in range(start, 100)]
        assert reader.start_offsets() == log.start_offsets()
        gaps = log.gaps()
    assert [gap.first_seq for gap in gaps] == [0, *(gap.last_seq + 1 for gap in gaps[:-1])]
    assert gaps[-1] == Gap(place.partition, gaps[-1].first_seq, start - 1, GapReason.RETENTION)
    assert EmbeddedReader(tmp_path).gaps() == gaps


def test_a_frame_without_a_record_is_counted_and_passed_over(tmp_path):
    with open_log(tmp_path) as log:
        place, log_id = put(log, 0), log.log_id
    folder = tmp_path / f"partition-{place.partition:04d}"
    with SegmentWriter(folder, WriterSettings(log_id), clock=ManualClock()) as writer:
        writer.append(b"\xff\xff")
    with open_log(tmp_path) as log:
        put(log, 2)
        batch = log.read(place.partition, 0, limit=10)
    assert ([s.position.offset for s in batch], batch.next_offset) == ([0, 2], 3)
    assert batch.skipped == {"not_a_record": 1}


def test_group_commit_syncs_by_bytes_long_before_its_interval(tmp_path):
    synced = threading.Event()

    class Told(EmbeddedLog):
        def flush_appends(self):
            super().flush_appends()
            synced.set()

    patient = LogSettings(partitions=1, sync_interval_s=3600.0, sync_bytes=100)
    with Told(tmp_path, patient, clock=SystemClock()) as log:
        for number in range(3):
            put(log, number)
        assert synced.wait(60.0)
        log.flush()
        assert log.counters()[0].unsynced_bytes == 0
        assert log.sync_failures == 0


def test_two_writers_are_one_too_many(tmp_path):
    with open_log(tmp_path), EmbeddedReader(tmp_path):
        assert usage_error(lambda: open_log(tmp_path)).endswith(
            "is already writing here\n  hint: a log has one writer: stop the other, or give each its own directory"
        )


def test_a_refused_opening_leaves_nothing_locked(tmp_path):
    with open_log(tmp_path):
        pass
    segment = next((tmp_path / "partition-0001").glob("*.seg"))
    good = segment.read_bytes()
    segment.unlink()
    segment.mkdir()
    assert usage_error(lambda: open_log(tmp_path)) == (
        f"[usage] {tmp_path}: cannot be opened: Is a directory\n"
        "  hint: check that it is a log's and that this user may write it"
    )
    segment.rmdir()
    segment.write_bytes(good)
    with open_log(tmp_path) as log:
        put(log, 1)


def test_no_log_here(tmp_path):
    for root in (tmp_path, tmp_path / "absent"):
        assert usage_error(lambda root=root: EmbeddedReader(root)) == (
            f"[usage] {root}: no event log here\n  hint: start what writes it first, or correct the path"
        )


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"format": 1, "log_id": "a", "partitions": "many"}']
)
def test_a_damaged_description(tmp_path, content):
    (tmp_path / "log.json").write_text(content)
    for do in (lambda: EmbeddedReader(tmp_path), lambda: open_log(tmp_path)):
        assert usage_error(do) == (
            f"[usage] {tmp_path}/log.json: damaged, or not an event log's\n"
            "  hint: restore the file, or move the directory away to start a new log"
        )


def test_a_later_format(tmp_path):
    with open_log(tmp_path):
        pass
    told = json.loads((tmp_path / "log.json").read_text())
    (tmp_path / "log.json").write_text(json.dumps({**told, "format": 2}))
    assert usage_error(lambda: EmbeddedReader(tmp_path)) == (
        f"[usage] {tmp_path}/log.json: log format 2, this version knows 1\n"
        "  hint: upgrade paritas, or use another directory"
    )


def test_the_number_of_partitions_is_fixed(tmp_path):
    with open_log(tmp_path):
        pass
    assert usage_error(lambda: open_log(tmp_path, LogSettings(partitions=3))) == (
        f"[usage] {tmp_path}: the log has 2 partitions, not 3\n"
        "  hint: the number is fixed when a log is made: keep it, or use another directory"
    )


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    assert usage_error(lambda: open_log(tmp_path / "file" / "log")) == (
        f"[usage] {tmp_path}/file/log/gaps: cannot be opened: Not a directory\n"
        "  hint: check that it is a log's and that this user may write it"
    )


def test_reading_outside_the_log(tmp_path):
    with open_log(tmp_path) as log:
        assert usage_error(lambda: log.read(2, 0, limit=1)) == (
            f"[usage] {tmp_path}: no partition 2, the log has 0 to 1"
        )
        assert usage_error(lambda: log.read(0, -1, limit=1)) == f"[usage] {tmp_path}: offset -1 is below 0"


def test_a_log_that_vanishes_is_said_to(tmp_path):
    with open_log(tmp_path / "log"), EmbeddedReader(tmp_path / "log") as reader:
        (tmp_path / "log").rename(tmp_path / "elsewhere")
        with pytest.raises(TransientError) as caught:
            reader.read(0, 0, limit=1)
        assert caught.value.render() == (
            f"[transient] {tmp_path}/log/partition-0000: cannot read: No such file or directory\n"
            "  hint: check the volume; reading goes on where it was"
        )
        for do in (reader.start_offsets, reader.end_offsets, reader.gaps):
            with pytest.raises(TransientError):
                do()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"partitions": 0}, "partitions is 0, expected 1 to 1024"),
        ({"sync_interval_s": 0}, "sync_interval_s is 0, expected more than 0"),
        (
            {"limit_bytes": 2**27, "partitions": 4},
            "a limit of 33554432 bytes is less than two segments of 33554432",
        ),
    ],
)
def test_settings_that_make_no_log(tmp_path, options, text):
    with pytest.raises(UsageError) as caught:
        EmbeddedLog(tmp_path / "log", LogSettings(**options), clock=ManualClock())
    assert str(caught.value) == text
    assert not (tmp_path / "log").exists()
