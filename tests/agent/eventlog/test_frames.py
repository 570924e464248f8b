"""A frame is read back exactly or not at all, wherever the bytes are damaged."""

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.agent.eventlog.frames import (
    FRAME_HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    Fault,
    Frame,
    frame_header,
    last_plausible_seq,
    parse,
    scan,
)

ANY = range(2**64)
U64 = st.integers(0, 2**64 - 1)


def framed(payload, seq=0, wall_ns=1):
    return frame_header(payload, seq=seq, wall_ns=wall_ns) + payload


def scanned(buffer, *, window=ANY, wanted_seq=0, limit=10_000, limit_bytes=2**40, whole=True):
    return scan(
        buffer, window=window, wanted_seq=wanted_seq, limit=limit, limit_bytes=limit_bytes, whole=whole
    )


def test_a_frame_is_these_very_bytes():
    assert framed(b"123456789", seq=258, wall_ns=1).hex() == (
        "a75e" "01" "00" "09000000" "d7bdd5d7" "0201000000000000" "0100000000000000" "313233343536373839"
    )  # fmt: skip


@given(st.binary(max_size=100), U64, U64)
@settings(deadline=None)
def test_a_frame_is_read_back(payload, seq, wall_ns):
    assert parse(memoryview(framed(payload, seq, wall_ns)), 0, ANY) == Frame(seq, wall_ns, payload)


def test_every_beginning_of_a_frame_is_short():
    whole = framed(b"payload")
    assert {parse(memoryview(whole[:size]), 0, ANY) for size in range(len(whole))} == {Fault.SHORT}


def test_every_flipped_bit_is_noticed():
    whole = framed(b"payload", seq=3)
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert isinstance(parse(memoryview(flipped), 0, ANY), Fault)


def test_an_implausible_length_is_no_frame_to_wait_for():
    header = bytearray(framed(b""))
    header[4:8] = (MAX_PAYLOAD_BYTES + 1).to_bytes(4, "little")
    assert parse(memoryview(header), 0, ANY) is Fault.BAD


@pytest.mark.parametrize("at", [2, 3])
def test_a_frame_of_a_later_kind_is_not_read_as_one_of_ours(at):
    later = bytearray(framed(b"x"))
    later[at] += 1  # version or flags, with the right checksum
    later[8:12] = crc32c(bytes(later[2:8]) + bytes(later[12:])).to_bytes(4, "little")
    assert parse(memoryview(later), 0, ANY) is Fault.BAD


def test_a_number_outside_the_window_is_no_frame():
    assert parse(memoryview(framed(b"x", seq=7)), 0, range(8, 20)) is Fault.BAD
    assert parse(memoryview(framed(b"x", seq=20)), 0, range(8, 20)) is Fault.BAD


def test_scan_returns_the_wanted_frames_up_to_its_limits():
    buffer = b"".join(framed(b"x" * 10, seq=n) for n in range(10))
    assert [f.seq for f in scanned(buffer, wanted_seq=4).frames] == [4, 5, 6, 7, 8, 9]
    assert [f.seq for f in scanned(buffer, limit=2).frames] == [0, 1]
    assert [f.seq for f in scanned(buffer, limit_bytes=2 * 38 + 1).frames] == [0, 1, 2]
    assert scanned(buffer, limit=0).consumed_bytes == 0
    assert scanned(buffer, limit=2).consumed_bytes == 2 * 38


def test_what_lies_between_frames_is_passed_over():
    buffer = framed(b"a", 0) + b"garbage \xa7\x5e\x01\x00" + framed(b"b", 1) + b"\xa7" + framed(b"c", 5)
    found = scanned(buffer)
    assert [(f.seq, f.payload) for f in found.frames] == [(0, b"a"), (1, b"b"), (5, b"c")]
    assert (found.consumed_bytes, found.good_end, found.next_seq) == (len(buffer), len(buffer), 6)


def test_a_frame_within_a_payload_is_not_mistaken_for_one():
    inner = framed(b"inner", seq=1)
    assert [f.payload for f in scanned(framed(inner, 0) + framed(b"b", 1)).frames] == [inner, b"b"]
    damaged = bytearray(framed(b"......" + framed(b"old", seq=0), 5) + framed(b"b", 6))
    damaged[FRAME_HEADER_BYTES] ^= 1  # the outer frame is lost, the inner one is of another time
    assert [f.payload for f in scanned(bytes(damaged), window=range(5, 100)).frames] == [b"b"]


def test_a_damaged_length_does_not_hide_the_frames_behind_it():
    buffer = bytearray(framed(b"a", 0) + framed(b"b", 1))
    buffer[4:8] = (1000).to_bytes(4, "little")
    assert [f.seq for f in scanned(bytes(buffer)).frames] == [1]


def test_an_end_that_may_still_grow_is_left_to_the_next_reading():
    whole = framed(b"a", 0) + framed(b"b", 1)
    for size in range(len(framed(b"a", 0)), len(whole)):
        for last in (True, False):
            found = scanned(whole[:size], whole=last)
            assert ([f.seq for f in found.frames], found.consumed_bytes) == ([0], 29)


@given(st.lists(st.binary(max_size=30), max_size=8), st.data())
@settings(deadline=None, max_examples=150)
def test_damage_anywhere_costs_frames_but_never_changes_one(payloads, data):
    frames = dict(enumerate(payloads))
    buffer = bytearray(b"".join(framed(p, seq) for seq, p in frames.items()))
    for _ in range(data.draw(st.integers(0, 3)) if buffer else 0):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    found = scanned(bytes(buffer), window=range(len(frames)), whole=data.draw(st.booleans()))
    assert [f.seq for f in found.frames] == sorted({f.seq for f in found.frames})
    assert all(frames[f.seq] == f.payload for f in found.frames)
    assert 0 <= found.consumed_bytes <= len(buffer)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8), st.integers(1, 3), st.data())
@settings(deadline=None, max_examples=100)
def test_reading_in_chunks_equals_reading_at_once(payloads, damaged, data):
    buffer = bytearray(b"".join(framed(p, seq) for seq, p in enumerate(payloads)))
    for _ in range(damaged):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] ^= data.draw(st.integers(0, 255))
    at, seqs, window = 0, [], range(len(payloads))
    chunk = 2 * (FRAME_HEADER_BYTES + 40)
    while True:
        part = bytes(buffer[at : at + chunk])
        found = scanned(part, window=window, whole=len(part) < chunk)
        seqs += [f.seq for f in found.frames]
        window = range(found.next_seq, len(payloads))
        at += found.consumed_bytes
        if not found.consumed_bytes:
            break
    if not any(length > 40 for length in claimed_lengths(buffer)):
        assert seqs == [f.seq for f in scanned(bytes(buffer), window=range(len(payloads))).frames]


def claimed_lengths(buffer):
    """Lengths in frame headers: one beyond the chunk makes a reader wait for bytes it will never get."""
    places = (i for i in range(len(buffer) - 7) if buffer[i : i + 4] == b"\xa7\x5e\x01\x00")
    return [int.from_bytes(buffer[i + 4 : i + 8], "little") for i in places]


@given(st.binary(max_size=200), st.booleans())
@settings(deadline=None, max_examples=150)
def test_random_bytes_hold_no_frame_and_raise_nothing(noise, whole):
    assert scanned(noise, whole=whole).frames == ()


@pytest.mark.parametrize("whole", [True, False])
def test_a_buffer_full_of_frame_headers_ends(whole):
    hostile = frame_header(b"", seq=0, wall_ns=0)[:4] + (900_000).to_bytes(4, "little") + bytes(20)
    assert scanned(hostile * 60_000, whole=whole).frames == ()


def test_the_highest_number_in_damaged_bytes_is_remembered():
    damaged = bytearray(framed(b"a", 3) + framed(b"b", 4) + b"?" + framed(b"c", 5))
    for at in (FRAME_HEADER_BYTES, 2 * FRAME_HEADER_BYTES + 1, len(damaged) - 1):
        damaged[at] ^= 0xFF
    assert scanned(bytes(damaged)).frames == ()
    assert last_plausible_seq(bytes(damaged), range(3, 100)) == 5
    assert last_plausible_seq(bytes(damaged), range(3, 5)) == 4
    assert last_plausible_seq(b"nothing here", ANY) is None
