"""What makes a directory an event log: its one-line description and its folders."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from paritas.agent.eventlog.durable import sync_directory, write_atomically
from paritas.errors import UsageError

__all__ = ["Layout", "create_layout", "read_layout"]

FORMAT = 1
FILE = "log.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of one log are.

    Attributes
    ----------
    root : Path
        Directory of the log.
    log_id : str
        32 random hex characters, drawn when the log was made.
    partitions : int
        Fixed when the log was made.
    """

    root: Path
    log_id: str
    partitions: int

    def partition(self, number: int) -> Path:
        """Return the directory of one partition."""
        return self.root / f"partition-{number:04d}"

    @property
    def gaps(self) -> Path:
        """Directory of the gap records."""
        return self.root / "gaps"


def read_layout(root: Path) -> Layout:
    """Return the layout of an existing log.

    Raises
    ------
    UsageError
        There is none, it is damaged, or a later version made it.
    """
    try:
        told = json.loads((root / FILE).read_bytes())
        version, layout = told["format"], Layout(root, str(told["log_id"]), int(told["partitions"]))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(
            f"{root}: no event log here", hint="start what writes it first, or correct the path"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{root / FILE}: damaged, or not an event log's",
            hint="restore the file, or move the directory away to start a new log",
        ) from error
    if version != FORMAT:
        raise UsageError(
            f"{root / FILE}: log format {version}, this version knows {FORMAT}",
            hint="upgrade paritas, or use another directory",
        )
    return layout


def create_layout(root: Path, *, partitions: int) -> Layout:
    """Return the layout of the log in a directory, making it if there is none.

    The description is written last: whoever can read it finds all folders.

    Raises
    ------
    UsageError
        The log has another number of partitions.
    OSError
        The directories cannot be made.
    TransientError
        The disk refused.
    """
    if (root / FILE).exists():
        return _expect(read_layout(root), partitions)
    layout = Layout(root, secrets.token_hex(16), partitions)
    for folder in (layout.gaps, *(layout.partition(number) for number in range(partitions))):
        folder.mkdir(parents=True, exist_ok=True)
    sync_directory(root)
    told = {"format": FORMAT, "log_id": layout.log_id, "partitions": partitions}
    write_atomically(root / FILE, [json.dumps(told).encode(), b"\n"])
    return layout


def _expect(layout: Layout, partitions: int) -> Layout:
    if layout.partitions != partitions:
        raise UsageError(
            f"{layout.root}: the log has {layout.partitions} partitions, not {partitions}",
            hint="the number is fixed when a log is made: keep it, or use another directory",
        )
    return layout
