"""One frame a record, and how frames are found again in bytes that may be damaged.

A frame is, little-endian and without padding::

    magic      2 bytes   A7 5E
    version    u8        1
    flags      u8        0; a frame with unknown flags is unreadable
    length     u32       bytes of the payload
    crc32c     u32       over version, flags, length, seq, wall_ns and payload
    seq        u64       dense within a segment
    wall_ns    u64       Unix ns of the append
    payload    length bytes

Everything here is pure: bytes in, frames out.
"""

import struct
from dataclasses import dataclass
from enum import Enum

from crc32c import crc32c

__all__ = [
    "FRAME_HEADER_BYTES",
    "MAX_PAYLOAD_BYTES",
    "Fault",
    "Frame",
    "Scan",
    "frame_header",
    "last_plausible_seq",
    "parse",
    "scan",
]

MAGIC = b"\xa7\x5e"  # not text in any common encoding
VERSION = 1
HEAD = struct.Struct("<BBI")  # version, flags, length
CRC = struct.Struct("<I")
TAIL = struct.Struct("<QQ")  # seq, wall_ns
HEADER = struct.Struct("<2sBBIIQQ")
FRAME_HEADER_BYTES = HEADER.size

# Twice the record limit of the wire format: room for key and headers, still a plausible length.
MAX_PAYLOAD_BYTES = 1024 * 1024
# What a search for the next good frame may checksum before it gives the rest up: damaged or hostile
# bytes full of frame headers would otherwise cost quadratic time.
RESYNC_LIMIT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Frame:
    """One whole, checked frame.

    Attributes
    ----------
    seq : int
        Sequence number.
    wall_ns : int
        Unix ns of the append.
    payload : bytes
        What was appended.
    """

    seq: int
    wall_ns: int
    payload: bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the frame, header included."""
        return FRAME_HEADER_BYTES + len(self.payload)


class Fault(Enum):
    """Why there is no frame at a place."""

    SHORT = "short"  # what is there may be the beginning of one
    BAD = "bad"  # what is there is none


@dataclass(frozen=True, slots=True)
class Scan:
    """What one pass over a buffer found.

    Attributes
    ----------
    frames : tuple of Frame
        Wanted frames in order; the ones below the wanted number were checked and left out.
    consumed_bytes : int
        How much of the buffer is done with, good or given up.
    good_end : int or None
        Where in the buffer the last good frame ended; None if there was none.
    next_seq : int
        One more than the last good frame's number; the number it began with if there was none.
    """

    frames: tuple[Frame, ...]
    consumed_bytes: int
    good_end: int | None
    next_seq: int


def frame_header(payload: bytes, rest: bytes = b"", *, seq: int, wall_ns: int) -> bytes:
    """Return the bytes that precede the payload, which may come in two parts.

    Examples
    --------
    >>> parse(memoryview(frame_header(b"x", seq=7, wall_ns=1) + b"x"), 0, range(10))
    Frame(seq=7, wall_ns=1, payload=b'x')
    """
    head, tail = HEAD.pack(VERSION, 0, len(payload) + len(rest)), TAIL.pack(seq, wall_ns)
    return MAGIC + head + CRC.pack(crc32c(rest, crc32c(payload, crc32c(head + tail)))) + tail


def parse(view: memoryview, at: int, window: range) -> Frame | Fault:
    """Return the frame at `at` whose number lies in `window`, or why there is none."""
    end = _frame_end(view, at, window)
    if isinstance(end, Fault):
        return end
    _, _, _, _, crc, seq, wall_ns = HEADER.unpack_from(view, at)
    if crc32c(view[at + 12 : end], crc32c(view[at + 2 : at + 8])) != crc:
        return Fault.BAD
    return Frame(seq, wall_ns, bytes(view[at + FRAME_HEADER_BYTES : end]))


def _frame_end(view: memoryview, at: int, window: range) -> int | Fault:
    """Return where the frame at `at` ends if its header is plausible; nothing is checksummed."""
    if len(view) - at < FRAME_HEADER_BYTES:
        start = bytes(view[at : at + 2])
        return Fault.SHORT if MAGIC.startswith(start) else Fault.BAD
    magic, version, flags, length, _, seq, _ = HEADER.unpack_from(view, at)
    if magic != MAGIC or version != VERSION or flags or length > MAX_PAYLOAD_BYTES or seq not in window:
        return Fault.BAD
    end = at + FRAME_HEADER_BYTES + int(length)
    return end if end <= len(view) else Fault.SHORT


def scan(
    buffer: bytes | memoryview, *, window: range, wanted_seq: int, limit: int, limit_bytes: int, whole: bool
) -> Scan:
    """Return the good frames of a buffer, in rising order, passing over what is damaged.

    Parameters
    ----------
    buffer : bytes
        Part of a segment that starts where a frame should start.
    window : range
        Plausible sequence numbers; a checksum can be right by accident or by a copied frame.
    wanted_seq : int
        Frames below it are checked but not returned.
    limit, limit_bytes : int
        Stop after so many frames, or so many bytes of them, have been returned.
    whole : bool
        Whether the buffer reaches the end of the file.  If it does, a frame that looks incomplete
        may be a damaged length, so good frames are looked for behind it too.
    """
    view, at, good_end, room_bytes = memoryview(buffer), 0, None, limit_bytes
    frames: list[Frame] = []
    while len(frames) < limit and room_bytes > 0:
        found = parse(view, at, window)
        if isinstance(found, Fault):
            resumed = _resync(bytes(view), at, window, whole=whole) if whole or found is Fault.BAD else None
            if resumed is None:
                break
            at = resumed
            continue
        at = good_end = at + found.size_bytes
        window = range(found.seq + 1, window.stop)
        if found.seq >= wanted_seq:
            frames.append(found)
            room_bytes -= found.size_bytes
    return Scan(tuple(frames), at, good_end, window.start)


def _resync(buffer: bytes, at: int, window: range, *, whole: bool) -> int | None:
    """Return where to go on behind a damaged place; None if nothing good is in sight.

    Without the end of the file in the buffer that is the first place that may be a frame cut by
    the buffer's end, so that the caller can read on from there.
    """
    view, budget_bytes = memoryview(buffer), RESYNC_LIMIT_BYTES
    place = buffer.find(MAGIC, at + 1)
    while place != -1 and budget_bytes > 0:
        end = _frame_end(view, place, window)
        if end is Fault.SHORT and not whole:
            return place
        if not isinstance(end, Fault):
            if isinstance(parse(view, place, window), Frame):
                return place
            budget_bytes -= end - place
        place = buffer.find(MAGIC, place + 1)
    # The last byte may be the first half of a magic number; at least one byte is always passed.
    return None if whole else max(at + 1, len(buffer) - 1)


def last_plausible_seq(buffer: bytes, window: range) -> int | None:
    """Return the highest number that a frame header in damaged bytes shows; None if none shows one.

    A writer goes on behind it, so that a number a reader may have seen never means another record.
    """
    view, highest = memoryview(buffer), None
    place = buffer.find(MAGIC)
    while place != -1:
        whole_header = len(buffer) - place >= FRAME_HEADER_BYTES
        if whole_header and _frame_end(view, place, window) is not Fault.BAD:
            highest = max(int(HEADER.unpack_from(view, place)[5]), highest or 0)
        place = buffer.find(MAGIC, place + 1)
    return highest
