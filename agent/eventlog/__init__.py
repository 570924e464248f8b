"""Event logs: where the agent puts records and the detectors find them.

`EventLog` says what one can do.  `EmbeddedLog` is a directory of segment files; `SegmentWriter` and
`SegmentReader` are its parts, fit for a spool of their own.
"""

from paritas.agent.eventlog.cursor import Cursor, Saved
from paritas.agent.eventlog.embedded import EmbeddedLog, EmbeddedReader, partition_of
from paritas.agent.eventlog.ledger import SegmentCounters
from paritas.agent.eventlog.lock import WriterLock
from paritas.agent.eventlog.protocol import EventLog, LogReader
from paritas.agent.eventlog.reader import Frames, SegmentReader
from paritas.agent.eventlog.records import Batch, Gap, GapReason, Position, SkipReason, Stored
from paritas.agent.eventlog.settings import LogSettings, SegmentLimits, SyncMode, WriterSettings
from paritas.agent.eventlog.sync import GroupSync
from paritas.agent.eventlog.writer import SegmentWriter

__all__ = [
    "Batch",
    "Cursor",
    "EmbeddedLog",
    "EmbeddedReader",
    "EventLog",
    "Frames",
    "Gap",
    "GapReason",
    "GroupSync",
    "LogReader",
    "LogSettings",
    "Position",
    "Saved",
    "SegmentCounters",
    "SegmentLimits",
    "SegmentReader",
    "SegmentWriter",
    "SkipReason",
    "Stored",
    "SyncMode",
    "WriterLock",
    "WriterSettings",
    "partition_of",
]
