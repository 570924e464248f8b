"""How far a reader has come, together with the state it reached there, in one atomic write.

The file is, little-endian::

    magic           8 bytes  "PARCURLE"
    crc32c          u32      over everything behind it
    positions_bytes u32      length of the JSON
    positions       JSON     {"log_id": "…", "positions": {"0": 12, …}}
    snapshot        the rest
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

from paritas.agent.eventlog.durable import write_atomically
from paritas.errors import UsageError

__all__ = ["Cursor", "Saved"]

MAGIC = b"PARCURLE"
CRC = struct.Struct("<I")
LENGTH = struct.Struct("<I")
PREFIX_BYTES = len(MAGIC) + CRC.size


@dataclass(frozen=True, slots=True)
class Saved:
    """A reader's state, and the positions that this state covers.

    Attributes
    ----------
    log_id : str
        Which log the positions belong to; with another one they mean nothing.
    positions : mapping of int to int
        Next offset of each partition.
    snapshot : bytes
        State reached by reading everything below the positions, and nothing else.
    """

    log_id: str
    positions: Mapping[int, int] = field(default_factory=dict)
    snapshot: bytes = b""


class Cursor:
    """A file that holds one `Saved`; after a crash it holds the last one whole.

    State and positions are written together, so that a restart neither loses nor doubles a record.
    Call the log's ``flush`` before `save`: a position must not outlive the records below it.

    Parameters
    ----------
    path : Path
        Its directory must exist.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cursor = Cursor(Path(folder) / "detectors")
    ...     cursor.save(Saved("0" * 32, {0: 7}, b"state"))
    ...     cursor.load().positions
    {0: 7}
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Saved | None:
        """Return what was saved last; None if nothing was.

        Raises
        ------
        UsageError
            The file is damaged, or none of ours.
        """
        try:
            return _unpack(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
            raise UsageError(
                f"{self.path}: damaged, or not a cursor",
                hint="move it away to start again from the oldest record",
            ) from error

    def save(self, saved: Saved) -> None:
        """Replace what was saved; TransientError if the disk refuses, and the old stays."""
        told = {"log_id": saved.log_id, "positions": {str(p): o for p, o in sorted(saved.positions.items())}}
        positions = json.dumps(told, separators=(",", ":")).encode()
        head = LENGTH.pack(len(positions)) + positions
        checksum = crc32c(saved.snapshot, crc32c(head))
        write_atomically(self.path, [MAGIC, CRC.pack(checksum), head, saved.snapshot])


def _unpack(packed: bytes) -> Saved:
    """Return what the bytes hold; ValueError, KeyError, TypeError or struct.error if it is nothing of ours."""
    body = memoryview(packed)[PREFIX_BYTES:]
    if packed[:PREFIX_BYTES] != MAGIC + CRC.pack(crc32c(body)):
        raise ValueError("checksum")
    (length,) = LENGTH.unpack_from(body)
    end = LENGTH.size + length
    told = json.loads(bytes(body[LENGTH.size : end]))
    positions = {int(partition): int(offset) for partition, offset in told["positions"].items()}
    return Saved(str(told["log_id"]), positions, bytes(body[end:]))
