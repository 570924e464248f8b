"""Everything the agent has accepted and not delivered: on disk, or in memory while the disk refuses.

::

    lock        held by the agent
    reserve     given up when the volume is full, so that the position can still be saved
    bulk/       records that came in
    own/        the agent's gap and health records, apart from the bulk
    dead/       records the destination will never take, the last few
"""

import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from paritas.agent.account import Totals
from paritas.agent.claim import Batch, Lost
from paritas.agent.config import SpoolSettings
from paritas.agent.counters import SpoolCounters, SyncTimes
from paritas.agent.eventlog import (
    GapReason,
    GroupSync,
    SegmentLimits,
    SegmentWriter,
    SyncMode,
    WriterLock,
    WriterSettings,
)
from paritas.agent.eventlog.durable import opening
from paritas.agent.eventlog.records import Packed, pack, packed
from paritas.agent.memory import MemoryQueue
from paritas.agent.own_spans import gap_record
from paritas.agent.pending_gaps import PendingGaps
from paritas.agent.reasons import DropReason
from paritas.agent.stream import Stream, StreamSettings
from paritas.clock import Clock
from paritas.errors import PermanentError, TransientError
from paritas.wire import WireRecord

__all__ = ["Spool", "Taken"]

NS = 1_000_000_000
OWN_LIMITS = SegmentLimits(
    segment_bytes=1024 * 1024, total_bytes=4 * 1024 * 1024, quarantine_bytes=1024 * 1024
)
DEAD_LIMITS = SegmentLimits(segment_bytes=4 * 1024 * 1024, total_bytes=16 * 1024 * 1024)
DEAD_LOG_ID = "dead" * 8
SYNC_BYTES = 4 * 1024 * 1024  # a sync starts early here: keeps each one short
RESERVE_BYTES = 64 * 1024
PROBE_S = 5.0  # between two tries of a disk that refused
FRAME_BYTES = 64  # a frame's header and the packing, rounded up


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch, and where it has to be settled."""

    source: Stream | MemoryQueue
    batch: Batch


class Spool:
    """Takes from any thread, gives to one; a context manager that holds the directory's lock.

    Raises
    ------
    UsageError
        Another agent holds the directory, it cannot be made, or a later version wrote it.
    """

    def __init__(self, settings: SpoolSettings, *, agent: str, clock: Clock) -> None:
        self.settings, self._agent, self._clock = settings, agent, clock
        self.arrived = threading.Event()
        self._lock = threading.RLock()
        self._gaps = PendingGaps()
        self._refused: Totals = Totals()
        self._sync_times = SyncTimes()
        self.commit_failures = self.degradations = 0
        self._is_memory_only, self._probe_ns = False, 0
        self._bulk: Stream | None = None
        self._own: Stream | None = None
        self._dead: SegmentWriter | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        root = self.settings.path
        with opening(root), ExitStack() as stack:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(WriterLock(root))
            self._memory = MemoryQueue(
                f"{self._agent}/memory",
                limit_bytes=self.settings.memory_bytes,
                clock=self._clock,
                lock=self._lock,
                on_lost=partial(self._note_lost, f"{self._agent}/memory"),
            )
            stack.callback(self._close_streams)
            self._open_at_start()
            sync = GroupSync(self.flush, interval_s=self.settings.sync_interval_s, clock=self._clock)
            self._sync = stack.enter_context(sync) if self.settings.sync is SyncMode.INTERVAL else sync
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_at_start(self) -> None:
        """Open even on a full volume: what is on it must be delivered to make room."""
        try:
            self._open_streams()
        except TransientError:
            self.degrade()
            self._give_up_reserve()
            with suppress(TransientError):
                self._open_streams()

    def _open_streams(self) -> None:
        """Open what is not open; TransientError if the disk refuses."""
        root, told, clock = self.settings.path, self._stream_settings(), self._clock
        if self._bulk is None:
            on_lost = partial(self._note_lost, self._agent)
            self._bulk = Stream(root / "bulk", told, clock=clock, lock=self._lock, on_lost=on_lost)
        if self._own is None:
            own = StreamSettings(f"{self._agent}/own", OWN_LIMITS, told.sync)
            self._own = Stream(root / "own", own, clock=clock, lock=self._lock, on_lost=_ignore)
        if self._dead is None:
            dead = WriterSettings(DEAD_LOG_ID, DEAD_LIMITS, SyncMode.NONE, GapReason.OVERFLOW)
            self._dead = SegmentWriter(root / "dead", dead, clock=clock)
        self._keep_reserve()

    def _stream_settings(self) -> StreamSettings:
        settings = self.settings
        return StreamSettings(self._agent, settings.limits, settings.sync, settings.max_age_s)

    def _note_lost(self, stream: str, seqs: range, reason: DropReason) -> None:
        with self._lock:
            self._gaps.add(stream, Lost(seqs, reason))

    def append(self, records: Sequence[WireRecord]) -> None:
        """Accept records, all or none; they are on disk when this returns, or in memory if it refuses.

        Raises
        ------
        TransientError
            There is no room for them, and the policy is to refuse.
        """
        ready = [packed(record) for record in records]
        with self._lock:
            if self.settings.refuse_when_full:
                self._expect_room(ready)
            for one in ready:
                self._append(one)
        self._after_append()

    def _after_append(self) -> None:
        bulk = self._bulk
        if not self.arrived.is_set():
            self.arrived.set()
        if bulk is not None and bulk.unsynced_bytes >= SYNC_BYTES:
            self._sync.wake()

    def _append(self, ready: Packed) -> None:
        if not self._is_memory_only and self._bulk is not None:
            try:
                self._bulk.append(ready)
            except (TransientError, OSError):  # also a process without free descriptors
                self.degrade()
            except PermanentError:
                self.drop_unspooled(1, DropReason.TOO_LARGE)
                return
            else:
                return
        self._memory.append(ready.record)

    def _expect_room(self, ready: Sequence[Packed]) -> None:
        wanted_bytes = sum(one.size_bytes + FRAME_BYTES for one in ready)
        if self._is_memory_only or self._bulk is None:
            is_full = self._memory.size_bytes + wanted_bytes > self._memory.limit_bytes
        else:
            is_full = self._bulk.size_bytes() + wanted_bytes > self.settings.limit_bytes
        if is_full:
            raise TransientError("the spool is full", hint="the destination is behind: try again later")

    def drop_unspooled(self, count: int, reason: DropReason) -> None:
        """Count records that were accepted and cannot be spooled."""
        with self._lock:
            self._refused += Totals(accepted=count, dropped={str(reason): count})

    def degrade(self) -> None:
        """Go on in memory: the disk refused.  It is tried again now and then."""
        with self._lock:
            if not self._is_memory_only:
                self._is_memory_only = True
                self.degradations += 1
            self._probe_ns = self._clock.monotonic_ns() + round(PROBE_S * NS)

    def take(self, *, limit: int, limit_bytes: int) -> Taken | None:
        """Return what should go next, or None: own records, then the oldest.

        Settle a batch before taking the next.

        Raises
        ------
        TransientError
            The disk cannot be read.
        """
        self.arrived.clear()
        for source in (self._own, self._bulk, self._memory):
            if source is None:
                continue
            if (batch := source.take(limit=limit, limit_bytes=limit_bytes)) is not None:
                return Taken(source, batch)
        return None

    def waiting(self) -> int:
        """Return about how many records could be taken now."""
        streams = [stream for stream in (self._own, self._bulk) if stream is not None]
        return sum(stream.waiting for stream in streams) + self._memory.waiting

    def keep_dead(self, record: WireRecord, *, why: str) -> None:
        """Put a record that the destination refused among the dead letters, if the disk has room."""
        marked = replace(record, headers=(*record.headers, ("paritas-refused", why.encode()[:1000])))
        if self._dead is not None:
            with suppress(TransientError, PermanentError):  # it is counted in any case
                self._dead.append(pack(marked))

    def commit(self) -> None:
        """Save the positions and delete what was delivered; on a full volume the reserve is given up."""
        try:
            self._commit()
        except TransientError:
            self.degrade()  # first, so that nobody else takes the room that is made now
            self._give_up_reserve()
            try:
                self._commit()
            except TransientError:
                self.commit_failures += 1

    def _commit(self) -> None:
        for stream in (self._bulk, self._own):
            if stream is not None:
                stream.commit()

    def maintain(self) -> None:
        """Write pending gaps down, and try a disk that refused; call it when nothing is in flight."""
        if self._is_memory_only and self._clock.monotonic_ns() >= self._probe_ns:
            try:
                self._recover()
            except TransientError:
                self.degrade()
        if self._gaps and not self._is_memory_only:
            self._write_gaps()

    def _recover(self) -> None:
        """Move what waits in memory to the disk, which was refusing; TransientError if it still does."""
        self._open_streams()
        assert self._bulk is not None, "opened above"
        while self._move_first(self._bulk):
            pass
        self._bulk.flush()
        with self._lock:
            self._is_memory_only = self._memory.first() is not None

    def _move_first(self, bulk: Stream) -> bool:
        """Move the oldest record; False if none is left.  Under the lock: a full memory gives up its oldest."""
        with self._lock:
            record = self._memory.first()
            if record is None:
                return False
            bulk.append(packed(record))
            self._memory.move_first()
            return True

    def _give_up_reserve(self) -> None:
        with suppress(OSError):
            (self.settings.path / "reserve").unlink(missing_ok=True)

    def _keep_reserve(self) -> None:
        path = self.settings.path / "reserve"
        try:
            if not path.exists():
                path.write_bytes(bytes(RESERVE_BYTES))
        except OSError as error:
            path.unlink(missing_ok=True)
            raise TransientError(f"{path}: cannot write: {error.strerror}") from error

    def _write_gaps(self) -> None:
        while (gap := self._gaps.first()) is not None:
            stream, lost = gap
            if not self.tell(gap_record(self._agent, stream, lost, now_ns=self._clock.now_ns())):
                return
            with self._lock:
                self._gaps.drop_first()

    def tell(self, record: WireRecord) -> bool:
        """Append one of the agent's own records; False if the disk refuses."""
        if self._own is None:
            return False
        try:
            self._own.append(packed(record))
        except (TransientError, OSError):  # also a process without free descriptors
            self.degrade()
            return False
        self.arrived.set()
        return True

    def flush(self) -> None:
        """Make what was appended durable; a disk that fails here is not trusted any more."""
        began_ns = self._clock.monotonic_ns()
        try:
            for stream in (self._bulk, self._own):
                if stream is not None and stream.unsynced_bytes:
                    stream.flush()
                    self._sync_times.note((self._clock.monotonic_ns() - began_ns) / NS)
        except (TransientError, OSError):
            self._sync_times.note_failure()
            self.degrade()

    def reconfigure(self, settings: SpoolSettings) -> None:
        """Go on with other limits; nothing may be in flight.

        Raises
        ------
        TransientError
            The disk refused; the agent goes on in memory.
        """
        with self._lock:
            self.settings, self._memory.limit_bytes = settings, settings.memory_bytes
            if self._bulk is None:
                return
            try:
                self._bulk.resize(self._stream_settings())
            except TransientError:
                self._bulk = None  # opened again by the next probe
                self.degrade()
                raise

    def counters(self) -> SpoolCounters:
        """Return one consistent reading."""
        with self._lock:
            streams = [stream for stream in (self._bulk, self._own) if stream is not None]
            records = self._refused + self._memory.totals()
            return SpoolCounters(
                records=records + (self._bulk.totals() if self._bulk else Totals()),
                own=self._own.totals() if self._own else Totals(),
                disk_bytes=sum(stream.size_bytes() for stream in streams),
                memory_bytes=self._memory.size_bytes,
                quarantined_bytes=sum(stream.quarantined_bytes() for stream in streams),
                oldest_age_s=max(
                    self._memory.oldest_age_s(), self._bulk.oldest_age_s() if self._bulk else 0.0
                ),
                is_memory_only=self._is_memory_only,
                degradations=self.degradations,
                commit_failures=self.commit_failures,
                cursor_resets=sum(stream.cursor_resets for stream in streams),
                gaps_forgotten=self._gaps.forgotten,
                dead_letters=self._dead.counters().accepted if self._dead else 0,
                sync=replace(self._sync_times),
            )

    def close(self) -> None:
        """Move what waits in memory to disk if it takes it, save and close; twice is fine.

        What is in memory still is counted as lost in the shutdown.
        """
        self._stack.close()

    def _close_streams(self) -> None:
        if self._memory.first() is not None:
            with suppress(TransientError):
                self._recover()
        self._memory.give_up()
        with suppress(TransientError):
            self._write_gaps()
        self.commit()
        for part in (self._bulk, self._own, self._dead):
            if part is not None:
                with suppress(TransientError):
                    part.close()


def _ignore(_seqs: range, _reason: DropReason) -> None:
    """Tell nobody: a gap in the gap records is counted, not told."""
