"""Reading beside a writer: every number is a record or a counted reason, and "not yet" is neither."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_files import fill, open_writer, payload, read_from, segment_files

from paritas.agent.eventlog import Frames, SegmentLimits, SegmentReader
from paritas.agent.eventlog.frames import FRAME_HEADER_BYTES, frame_header
from paritas.agent.eventlog.segments import FILE_HEADER_BYTES, create_segment

FRAME = FRAME_HEADER_BYTES + len(payload(0))
THREE_A_SEGMENT = SegmentLimits(FILE_HEADER_BYTES + 3 * FRAME, 2**20)


def seqs(got):
    return [frame.seq for _, frame in got.frames]


def damage(path, at):
    changed = bytearray(path.read_bytes())
    changed[at] ^= 1
    path.write_bytes(changed)


@pytest.mark.parametrize("start", range(10))
@pytest.mark.parametrize("page", [1, 2, 100])
def test_reading_starts_anywhere(tmp_path, start, page):
    payloads = fill(tmp_path, 10, THREE_A_SEGMENT)
    assert read_from(tmp_path, start, page) == (list(range(start, 10)), payloads[start:], {})


def test_a_reader_may_jump_back_and_forth(tmp_path):
    fill(tmp_path, 10, THREE_A_SEGMENT)
    with SegmentReader(tmp_path) as reader:
        for seq in (7, 2, 3, 9, 0, 8, 1):
            assert seqs(reader.read(seq, limit=2)) == [s for s in (seq, seq + 1) if s < 10]


def test_a_batch_is_bounded_in_bytes(tmp_path):
    fill(tmp_path, 10, THREE_A_SEGMENT)
    with SegmentReader(tmp_path) as reader:
        assert seqs(reader.read(0, limit=10, limit_bytes=1)) == [0]
        assert seqs(reader.read(1, limit=10, limit_bytes=4 * FRAME)) == [1, 2, 3, 4]


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_flipped_bits_anywhere_cost_counted_records_and_change_none(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("log")
    payloads = fill(directory, 10, THREE_A_SEGMENT)
    before_last = segment_files(directory)[:-1]
    for _ in range(data.draw(st.integers(1, 6))):
        path = data.draw(st.sampled_from(before_last))
        changed = bytearray(path.read_bytes())
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(changed)
    numbers, found, skipped = read_from(directory)
    assert found == [payloads[number] for number in numbers]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + skipped.get("corrupt", 0) == 10
    assert set(skipped) <= {"corrupt"}


@given(noise=st.lists(st.binary(max_size=120), min_size=1, max_size=3))
@settings(deadline=None, max_examples=60)
def test_files_of_noise_raise_nothing(tmp_path_factory, noise):
    directory = tmp_path_factory.mktemp("log")
    for number, content in enumerate(noise):
        (directory / f"{number * 5:020d}.seg").write_bytes(content)
    numbers, _, skipped = read_from(directory)
    assert numbers == []
    assert sum(skipped.values()) == 5 * (len(noise) - 1)


@pytest.mark.parametrize(
    ("missing", "skipped"), [(0, {"expired": 3}), (1, {"missing": 3}), (2, {"missing": 3}), (3, {})]
)
def test_a_missing_segment_is_a_counted_gap(tmp_path, missing, skipped):
    fill(tmp_path, 10, THREE_A_SEGMENT)
    segment_files(tmp_path)[missing].unlink()
    numbers, _, counted = read_from(tmp_path)
    gone = set(range(3 * missing, 3 * missing + 3))
    assert (numbers, counted) == ([n for n in range(10) if n not in gone], skipped)


def test_a_partial_frame_is_not_yet_and_then_a_record(tmp_path):
    fill(tmp_path, 2)
    [path] = segment_files(tmp_path)
    frame = frame_header(payload(2), seq=2, wall_ns=1) + payload(2)
    with SegmentReader(tmp_path) as reader, path.open("ab", buffering=0) as file:
        assert seqs(reader.read(0, limit=10)) == [0, 1]
        for byte in frame:
            assert reader.read(2, limit=10) == Frames((), 2, {})
            file.write(bytes([byte]))
        assert seqs(reader.read(2, limit=10)) == [2]


def test_damage_at_the_live_end_is_not_yet_until_a_record_follows(tmp_path):
    with open_writer(tmp_path) as writer, SegmentReader(tmp_path) as reader:
        for number in range(3):
            writer.append(payload(number))
        damage(segment_files(tmp_path)[0], -1)
        got = reader.read(0, limit=10)
        assert (seqs(got), got.next_seq, got.skipped) == ([0, 1], 2, {})
        writer.append(payload(3))
        got = reader.read(2, limit=10)
        assert (seqs(got), got.next_seq, got.skipped) == ([3], 4, {"corrupt": 1})


def test_damage_at_the_end_of_a_closed_segment_is_counted(tmp_path):
    fill(tmp_path, 5, THREE_A_SEGMENT)
    damage(segment_files(tmp_path)[0], -1)
    assert read_from(tmp_path)[::2] == ([0, 1, 3, 4], {"corrupt": 1})


def test_a_reader_follows_the_writer_over_rolls_drops_and_reopenings(tmp_path):
    limits = SegmentLimits(FILE_HEADER_BYTES + 3 * FRAME, 2 * (FILE_HEADER_BYTES + 3 * FRAME))
    read, seq = [], 0
    with SegmentReader(tmp_path) as reader:
        for opening in range(4):
            with open_writer(tmp_path, limits) as writer:
                for number in range(5):
                    writer.append(payload(opening * 5 + number))
                    got = reader.read(seq, limit=1)
                    read, seq = read + seqs(got), got.next_seq
                    assert got.skipped == {}
    assert read == list(range(20))


def test_a_segment_is_left_only_after_its_last_record(tmp_path):
    """The writer appends and rolls between a reading that found nothing and the look for a successor."""

    class Overtaken(SegmentReader):
        def _move_on(self, scanner, segments, gathering):
            while writer.next_seq < 5:
                writer.append(payload(writer.next_seq))
            return super()._move_on(scanner, segments, gathering)

    with open_writer(tmp_path, THREE_A_SEGMENT) as writer, Overtaken(tmp_path) as reader:
        writer.append(payload(0))
        got = reader.read(0, limit=10)
        assert (seqs(got), got.skipped) == ([0, 1, 2, 3, 4], {})


def test_a_slow_reader_is_told_what_expired_under_it(tmp_path):
    limits = SegmentLimits(FILE_HEADER_BYTES + 3 * FRAME, 2 * (FILE_HEADER_BYTES + 3 * FRAME))
    with open_writer(tmp_path, limits) as writer, SegmentReader(tmp_path) as reader:
        writer.append(payload(0))
        assert seqs(reader.read(0, limit=1)) == [0]
        for number in range(1, 12):
            writer.append(payload(number))
        got = reader.read(1, limit=20)
        # Its segment is deleted but still open; what followed it is gone.
        assert (seqs(got), got.skipped) == ([1, 2, *range(6, 12)], {"expired": 3})


def test_a_replaced_empty_segment_is_noticed(tmp_path):
    fill(tmp_path, 1)
    create_segment(tmp_path, log_id="00" * 16, epoch=1, first_seq=1)
    with SegmentReader(tmp_path) as reader:
        assert seqs(reader.read(0, limit=5)) == [0]
        with open_writer(tmp_path) as writer:
            writer.append(payload(1))
            assert reader.end_seq() == 2
            assert seqs(reader.read(1, limit=5)) == [1]


def test_first_and_end_numbers(tmp_path):
    with SegmentReader(tmp_path) as reader:
        assert (reader.first_seq(), reader.end_seq()) == (0, 0)
        with open_writer(tmp_path, THREE_A_SEGMENT) as writer:
            for number in range(8):
                writer.append(payload(number))
                assert reader.end_seq() == number + 1
            writer.release(4)
            assert (reader.first_seq(), reader.end_seq()) == (3, 8)


def test_what_was_read_can_be_made_durable_also_when_it_is_gone(tmp_path):
    fill(tmp_path, 5, THREE_A_SEGMENT)
    with SegmentReader(tmp_path) as reader:
        reader.read(0, limit=10)
        segment_files(tmp_path)[0].unlink()
        reader.sync()
        reader.sync()


def test_nothing_there_is_nothing_read(tmp_path):
    with SegmentReader(tmp_path) as reader:
        assert reader.read(5, limit=1).next_seq == 5
    with SegmentReader(tmp_path / "absent") as reader, pytest.raises(FileNotFoundError):
        reader.read(0, limit=1)
