"""Segment files: their names, their header, and reading one forward.

A directory holds segments named by the sequence number of their first frame, twenty digits, so
that the names sort.  A segment is a header and then frames without anything between them.  The
header is 64 bytes, little-endian::

    magic        8 bytes  "PARSEGLE" (LE: every number in the file is little-endian)
    format       u16      1
    reserved     6 bytes
    log_id       16 bytes
    epoch        u64      Unix ns at which a writer opened the segment
    first_seq    u64
    reserved     12 bytes
    crc32c       u32      over the 60 bytes before
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from paritas.agent.eventlog.durable import write_atomically
from paritas.agent.eventlog.frames import FRAME_HEADER_BYTES, MAX_PAYLOAD_BYTES, Scan, scan

__all__ = [
    "FILE_HEADER_BYTES",
    "FileHeader",
    "Segment",
    "SegmentScanner",
    "create_segment",
    "list_segments",
    "read_header",
]

MAGIC = b"PARSEGLE"
FORMAT = 1
HEADER = struct.Struct("<8sH6x16sQQ12x")
CRC = struct.Struct("<I")
FILE_HEADER_BYTES = HEADER.size + CRC.size
SUFFIX = ".seg"
READ_BYTES = 256 * 1024  # read at once, usually
# Read at once where that is not enough: holds at least one frame of the largest size whole, with the next one's header.
CHUNK_BYTES = 4 * (FRAME_HEADER_BYTES + MAX_PAYLOAD_BYTES)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What a segment says of itself; `log_id` is 32 hex characters, `epoch` Unix ns."""

    format: int
    log_id: str
    epoch: int
    first_seq: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a directory; the inode tells a replaced file of the same name apart."""

    first_seq: int
    path: Path
    inode: int


def list_segments(directory: Path) -> list[Segment]:
    """Return the segments of a directory, oldest first; other files are left alone."""
    with os.scandir(directory) as entries:
        found = [
            Segment(int(entry.name.removesuffix(SUFFIX)), Path(entry.path), entry.inode())
            for entry in entries
            if entry.name.endswith(SUFFIX) and entry.name.removesuffix(SUFFIX).isdecimal()
        ]
    return sorted(found, key=lambda segment: segment.first_seq)


def create_segment(directory: Path, *, log_id: str, epoch: int, first_seq: int) -> Path:
    """Write an empty segment, durably; one of the same name is replaced.

    Raises
    ------
    TransientError
        The disk refused.
    """
    path = directory / f"{first_seq:020d}{SUFFIX}"
    packed = HEADER.pack(MAGIC, FORMAT, bytes.fromhex(log_id), epoch, first_seq)
    write_atomically(path, [packed, CRC.pack(crc32c(packed))])
    return path


def read_header(fd: int) -> FileHeader | None:
    """Return the header of an open segment, or None if it is damaged."""
    packed = os.pread(fd, FILE_HEADER_BYTES, 0)
    if len(packed) < FILE_HEADER_BYTES or packed[HEADER.size :] != CRC.pack(crc32c(packed[: HEADER.size])):
        return None
    magic, version, log_id, epoch, first_seq = HEADER.unpack_from(packed)
    return FileHeader(version, log_id.hex(), epoch, first_seq) if magic == MAGIC else None


class SegmentScanner:
    """Reads one segment forward, from its first frame to what is there now.

    Parameters
    ----------
    segment : Segment
        FileNotFoundError if it is gone; a file deleted later is read to its end.

    Attributes
    ----------
    header : FileHeader or None
        None if it is damaged; the frames are read all the same.
    at_byte, good_end_byte : int
        Where it stands, and where the last good frame ended: at or before that.
    next_seq : int
        The number the next frame should have.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.header = read_header(self._fd)
        except OSError:  # a folder of that name, a disk that fails
            self.close()
            raise
        self.at_byte = self.good_end_byte = FILE_HEADER_BYTES
        self.next_seq = segment.first_seq
        self._room = memoryview(bytearray(READ_BYTES))  # read into again and again: fresh pages cost more

    def step(self, *, wanted_seq: int, limit: int, limit_bytes: int = CHUNK_BYTES) -> Scan | None:
        """Read on; None when nothing more can be read now."""
        for size_bytes in (READ_BYTES, CHUNK_BYTES):
            buffer = self._read(size_bytes)
            whole = len(buffer) < size_bytes
            found = scan(
                buffer,
                window=self.seq_window(),
                wanted_seq=wanted_seq,
                limit=limit,
                limit_bytes=limit_bytes,
                whole=whole,
            )
            if found.consumed_bytes or whole:
                break
        return self._advance(found) if found.consumed_bytes else None

    def _read(self, size_bytes: int) -> memoryview:
        """Return what is in the file from here on, until the next call."""
        room = self._room if size_bytes <= len(self._room) else memoryview(bytearray(size_bytes))
        return room[: os.preadv(self._fd, [room[:size_bytes]], self.at_byte)]

    def _advance(self, found: Scan) -> Scan:
        if found.good_end is not None:
            self.good_end_byte = self.at_byte + found.good_end
        self.at_byte += found.consumed_bytes
        self.next_seq = found.next_seq
        return found

    def run_to_end(self) -> None:
        """Go on to the last good frame without keeping any."""
        while self.step(wanted_seq=2**64, limit=1) is not None:
            pass

    def size_bytes(self) -> int:
        """Bytes of the file now."""
        return os.fstat(self._fd).st_size

    def rest(self) -> bytes:
        """Return everything behind the last good frame."""
        return os.pread(self._fd, self.size_bytes() - self.good_end_byte, self.good_end_byte)

    def seq_window(self) -> range:
        """Return the numbers that frames behind this place may have."""
        bound = self.segment.first_seq + self.size_bytes() // FRAME_HEADER_BYTES + 1  # the file holds no more
        return range(self.next_seq, bound)

    def sync(self) -> None:
        """Make durable what is in the file, whoever wrote it."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file; twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
