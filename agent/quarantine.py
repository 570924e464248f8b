"""A bounded folder of damaged files, kept for a person to look at."""

import os
from pathlib import Path

from paritas.agent.eventlog.segments import list_segments

__all__ = ["Quarantine"]


class Quarantine:
    """Keeps whole segments in which a frame was damaged, beside the torn ends a writer put there.

    Parameters
    ----------
    directory : Path
        Of the segments; damaged ones go to its folder ``quarantine``.
    limit_bytes : int
        Most bytes kept; a segment that does not fit is not kept, only counted by its records.
    """

    def __init__(self, directory: Path, *, limit_bytes: int) -> None:
        self._directory, self._folder, self._limit_bytes = directory, directory / "quarantine", limit_bytes

    def size_bytes(self) -> int:
        """Bytes kept now."""
        if not self._folder.is_dir():
            return 0
        return sum(file.stat().st_size for file in self._folder.iterdir())

    def keep_segment_of(self, seq: int) -> bool:
        """Keep the segment that should hold a number; False if it is gone or there is no room.

        A second name of the same file costs no space and no copying.
        """
        at_or_before = [s for s in list_segments(self._directory) if s.first_seq <= seq]
        if not at_or_before:
            return False
        path = at_or_before[-1].path
        try:
            if self.size_bytes() + path.stat().st_size > self._limit_bytes:
                return False
            self._folder.mkdir(exist_ok=True)
            os.link(path, self._folder / f"{path.stem}.{path.stat().st_ino}.bad")
        except FileExistsError:
            return True
        except OSError:
            return False  # what cannot be kept is still counted
        return True
