"""Opening again after any end: nothing acknowledged is lost, nothing lost is unaccounted for."""

import pytest
from crc32c import crc32c
from segment_files import fill, open_writer, payload, read_from, segment_files

from paritas.agent.eventlog import SegmentLimits
from paritas.agent.eventlog.frames import frame_header
from paritas.agent.eventlog.recovery import recover
from paritas.errors import UsageError

LAST = frame_header(payload(3), seq=3, wall_ns=9) + payload(3)


@pytest.mark.parametrize("cut", range(len(LAST)))
def test_an_append_cut_at_any_byte_is_cut_off_and_its_number_used_again(tmp_path, cut):
    kept = fill(tmp_path, 3)
    [path] = segment_files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + LAST[:cut])
    with open_writer(tmp_path) as writer:
        assert path.read_bytes() == whole
        assert writer.counters().torn_bytes == cut
        assert writer.append(b"next") == 3
    assert read_from(tmp_path) == ([0, 1, 2, 3], [*kept, b"next"], {})


def test_a_whole_last_frame_is_kept(tmp_path):
    kept = fill(tmp_path, 3)
    [path] = segment_files(tmp_path)
    path.write_bytes(path.read_bytes() + LAST)
    with open_writer(tmp_path) as writer:
        assert writer.append(b"next") == 4
    assert read_from(tmp_path)[1] == [*kept, payload(3), b"next"]


def test_damaged_records_at_the_end_go_to_quarantine_and_their_numbers_are_not_used_again(tmp_path):
    kept = fill(tmp_path, 5)
    [path] = segment_files(tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    damaged[-1 - len(LAST)] ^= 1
    path.write_bytes(damaged)
    gaps = []
    with open_writer(tmp_path, on_gap=lambda seqs, reason: gaps.append((seqs, reason))) as writer:
        assert gaps == [(range(3, 5), "corrupt")]
        assert writer.append(b"next") == 5
        assert writer.counters().quarantined_bytes == 2 * len(LAST)
    assert read_from(tmp_path) == ([0, 1, 2, 5], [*kept[:3], b"next"], {"missing": 2})
    [quarantined] = (tmp_path / "quarantine").iterdir()
    assert quarantined.read_bytes() == damaged[-2 * len(LAST) :]


def test_noise_at_the_end_is_one_lost_record(tmp_path):
    fill(tmp_path, 2)
    [path] = segment_files(tmp_path)
    path.write_bytes(path.read_bytes() + b"noise")
    with open_writer(tmp_path) as writer:
        assert writer.next_seq == 3


def test_damage_before_a_good_frame_is_left_to_the_readers(tmp_path):
    fill(tmp_path, 5)
    [path] = segment_files(tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[-1 - len(LAST)] ^= 1
    path.write_bytes(damaged)
    with open_writer(tmp_path) as writer:
        assert writer.next_seq == 5
    assert not (tmp_path / "quarantine").exists()
    assert read_from(tmp_path)[::2] == ([0, 1, 2, 4], {"corrupt": 1})


def test_quarantine_is_bounded(tmp_path):
    tight = SegmentLimits(2**20, 2**21, quarantine_bytes=8)
    for noise in (b"noise-1", b"noise-2"):
        with open_writer(tmp_path, tight) as writer:
            writer.append(b"x")
        path = segment_files(tmp_path)[-1]
        path.write_bytes(path.read_bytes() + noise)
    with open_writer(tmp_path, tight) as writer:
        assert writer.counters().quarantined_bytes == 7
    assert [f.read_bytes() for f in (tmp_path / "quarantine").iterdir()] == [b"noise-1"]


def test_a_segment_that_was_being_made_is_forgotten(tmp_path):
    fill(tmp_path, 2)
    (tmp_path / "00000000000000000002.seg.new").write_bytes(b"half a head")
    with open_writer(tmp_path) as writer:
        assert writer.next_seq == 2
    assert not list(tmp_path.glob("*.new"))


def test_openings_without_appends_leave_one_empty_segment(tmp_path):
    fill(tmp_path, 2)
    for _ in range(4):
        fill_nothing = open_writer(tmp_path)
        fill_nothing.close()
    assert [path.name[-5:] for path in segment_files(tmp_path)] == ["0.seg", "2.seg"]
    assert read_from(tmp_path)[0] == [0, 1]


def test_an_empty_directory_recovers_to_nothing(tmp_path):
    assert recover(tmp_path, quarantine_limit_bytes=0).next_seq == 0


def test_a_later_format_is_refused_before_anything_is_touched(tmp_path):
    fill(tmp_path, 1)
    [path] = segment_files(tmp_path)
    later = bytearray(path.read_bytes())
    later[8:10] = (2).to_bytes(2, "little")
    later[60:64] = crc32c(bytes(later[:60])).to_bytes(4, "little")
    path.write_bytes(later + b"frames of a later kind")
    with pytest.raises(UsageError) as caught:
        open_writer(tmp_path)
    assert caught.value.render() == (
        f"[usage] {path}: written in segment format 2, this version knows 1\n"
        "  hint: upgrade paritas, or use another directory"
    )
    assert path.read_bytes() == later + b"frames of a later kind"
