"""Segment files: their names and headers, and reading on through any size of damage."""

import os

from segment_files import LOG_ID, fill, open_writer, read_from, segment_files

from paritas.agent.eventlog import SegmentLimits, SegmentReader
from paritas.agent.eventlog.frames import MAX_PAYLOAD_BYTES
from paritas.agent.eventlog.segments import (
    FILE_HEADER_BYTES,
    READ_BYTES,
    FileHeader,
    SegmentScanner,
    create_segment,
    list_segments,
    read_header,
)
from paritas.clock import ManualClock


def header_of(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_header(fd)
    finally:
        os.close(fd)


def test_an_empty_segment_is_these_very_bytes(tmp_path):
    path = create_segment(tmp_path, log_id=LOG_ID, epoch=258, first_seq=3)
    assert path.name == "00000000000000000003.seg"
    assert path.read_bytes().hex() == (
        "5041525345474c45" "0100" "000000000000" + "ab" * 16 + "0201000000000000" "0300000000000000"
        "000000000000000000000000" "d518d409"
    )  # fmt: skip
    assert header_of(path) == FileHeader(1, LOG_ID, 258, 3)


def test_segments_are_listed_by_number_and_strangers_left_alone(tmp_path):
    for seq in (100, 20, 3):
        create_segment(tmp_path, log_id=LOG_ID, epoch=1, first_seq=seq)
    for name in ("x.seg", "12.txt", "5.seg.new", "lock"):
        (tmp_path / name).write_text("")
    assert [segment.first_seq for segment in list_segments(tmp_path)] == [3, 20, 100]


def test_a_damaged_header_costs_the_epoch_and_no_record(tmp_path):
    payloads = fill(tmp_path, 5)
    [path] = segment_files(tmp_path)
    for at in (0, 8, 30, FILE_HEADER_BYTES - 1):
        damaged = bytearray(path.read_bytes())
        damaged[at] ^= 1
        (tmp_path / "copy").mkdir(exist_ok=True)
        (tmp_path / "copy" / path.name).write_bytes(damaged)
        with SegmentReader(tmp_path / "copy") as reader:
            got = reader.read(0, limit=10)
        assert [(epoch, frame.payload) for epoch, frame in got.frames] == [(0, p) for p in payloads]


def test_what_was_read_outlives_the_next_read(tmp_path):
    wanted = [bytes([number]) * (READ_BYTES // 3) for number in range(9)]
    with open_writer(tmp_path, SegmentLimits(16 * READ_BYTES, 64 * READ_BYTES)) as writer:
        for payload in wanted:
            writer.append(payload)
    assert read_from(tmp_path, page=99)[1] == wanted  # one call, several reads of the file


def test_frames_tell_the_epoch_of_the_opening_that_wrote_them(tmp_path):
    clock = ManualClock(start_ns=1000)
    for _ in range(2):
        with open_writer(tmp_path, clock=clock) as writer:
            writer.append(b"x")
        clock.advance(seconds=1e-9)
    with open_writer(tmp_path, clock=ManualClock(start_ns=5)) as writer:  # a clock that went back
        writer.append(b"x")
    with SegmentReader(tmp_path) as reader:
        epochs = [epoch for epoch, _ in reader.read(0, limit=10).frames]
    assert epochs == [1000, 1001, 1002]


def test_the_largest_payloads_are_read(tmp_path):
    large = SegmentLimits(2**23, 2**24)
    sizes = [MAX_PAYLOAD_BYTES, 0, MAX_PAYLOAD_BYTES - 1, 300_000, 5, MAX_PAYLOAD_BYTES]
    with open_writer(tmp_path, large) as writer:
        for size in sizes:
            writer.append(bytes(size))
    assert [len(payload) for payload in read_from(tmp_path)[1]] == sizes


def test_megabytes_of_damage_in_the_middle_are_passed_over(tmp_path):
    with open_writer(tmp_path, SegmentLimits(2**24, 2**26)) as writer:
        for number in range(12):
            writer.append(bytes([number]) * 700_000)
    [path] = segment_files(tmp_path)
    noise = bytearray(path.read_bytes())
    noise[1_000_000:7_000_000] = (b"\xa7\x5e\x01\x00" + bytes(56)) * 100_000
    path.write_bytes(noise)
    seqs, payloads, skipped = read_from(tmp_path)
    assert seqs == [0, 10, 11]
    assert [set(payload) for payload in payloads] == [{0}, {10}, {11}]
    assert skipped == {"corrupt": 9}


def test_a_scanner_reads_a_deleted_file_to_its_end(tmp_path):
    fill(tmp_path, 3)
    scanner = SegmentScanner(list_segments(tmp_path)[0])
    segment_files(tmp_path)[0].unlink()
    assert len(scanner.step(wanted_seq=0, limit=10).frames) == 3
    scanner.close()
    scanner.close()
