"""How much a log may hold and how often it is made durable."""

from dataclasses import dataclass, field
from enum import StrEnum

from paritas.agent.eventlog.frames import FRAME_HEADER_BYTES
from paritas.agent.eventlog.records import GapReason
from paritas.agent.eventlog.segments import FILE_HEADER_BYTES
from paritas.errors import UsageError

__all__ = ["LogSettings", "SegmentLimits", "SyncMode", "WriterSettings"]

MIB = 1024 * 1024


class SyncMode(StrEnum):
    """When appended records are made safe against a power loss; a killed process never loses any."""

    NONE = "none"  # when the operating system pleases, or on flush()
    INTERVAL = "interval"  # together, on an own thread
    ALWAYS = "always"  # before each append returns


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """How much one directory of segments may hold.

    Attributes
    ----------
    segment_bytes : int
        Size at which a segment is closed; one frame may be larger.
    total_bytes : int
        Size at which the oldest segment is dropped; at least two segments.
    quarantine_bytes : int
        Most damaged bytes kept for inspection, beside the total.
    """

    segment_bytes: int = 64 * MIB
    total_bytes: int = 1024 * MIB
    quarantine_bytes: int = 16 * MIB

    def __post_init__(self) -> None:
        """Check that dropping the oldest segment can make room."""
        if self.segment_bytes < FILE_HEADER_BYTES + FRAME_HEADER_BYTES:
            raise UsageError(
                f"segment_bytes is {self.segment_bytes}, less than an empty frame takes",
                hint="64 MiB is a good size",
            )
        if self.total_bytes < 2 * self.segment_bytes:
            raise UsageError(
                f"a limit of {self.total_bytes} bytes is less than two segments of {self.segment_bytes}",
                hint="raise limit_bytes, or lower segment_bytes or the number of partitions",
            )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How an embedded event log is laid out and kept.

    Attributes
    ----------
    partitions : int
        Fixed when the log is made.
    limit_bytes : int
        Most bytes of all partitions together; the oldest segments go first.
    segment_bytes : int
        Size at which a segment is closed.
    sync : SyncMode
        When appends are made durable.
    sync_interval_s : float
        Longest time between two syncs in mode ``interval``, seconds.
    sync_bytes : int
        Appended bytes after which a sync starts earlier: keeps each one short.
    """

    partitions: int = 4
    limit_bytes: int = 1024 * MIB
    segment_bytes: int = 32 * MIB
    sync: SyncMode = SyncMode.INTERVAL
    sync_interval_s: float = 0.5
    sync_bytes: int = 4 * MIB

    def __post_init__(self) -> None:
        """Check the numbers that have no meaning outside a range."""
        if not 1 <= self.partitions <= 1024:
            raise UsageError(f"partitions is {self.partitions}, expected 1 to 1024")
        if self.sync_interval_s <= 0:
            raise UsageError(f"sync_interval_s is {self.sync_interval_s}, expected more than 0")

    @property
    def partition_limits(self) -> SegmentLimits:
        """What one partition may hold."""
        return SegmentLimits(self.segment_bytes, self.limit_bytes // self.partitions)


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What a writer needs to know before it opens a directory.

    Attributes
    ----------
    log_id : str
        32 hex characters, written into every segment.
    limits : SegmentLimits
        Sizes in bytes.
    sync : SyncMode
        ``interval`` only keeps rolled segments open for the next `SegmentWriter.flush`.
    drop_reason : GapReason
        What it is called when the oldest segment is dropped.
    """

    log_id: str
    limits: SegmentLimits = field(default_factory=SegmentLimits)
    sync: SyncMode = SyncMode.INTERVAL
    drop_reason: GapReason = GapReason.OVERFLOW
