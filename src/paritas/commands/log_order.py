"""The one order of a log with several partitions: by time of appending, then partition, then offset.

Judging is a function of this order, so that one process and many operators on Flink, today's
reading and a repetition, all say the same.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping

from paritas.agent.eventlog import Batch, LogReader, SkipReason, Stored
from paritas.wire import Gap

__all__ = ["LogOrder"]

# A hole may be a transaction's marker, and what is no record was none of ours: counted, not missed.
LOST = {SkipReason.EXPIRED, SkipReason.CORRUPT}


class LogOrder:
    """Merges the partitions of a log; a partition that may still have something earlier holds back the others.

    Parameters
    ----------
    reader : LogReader
    positions : mapping of int to int
        Offset to begin at, by partition.
    batch : int
        Records read at once from a partition.
    ends : mapping of int to int, optional
        Offsets to stop at, by partition; without it the log has no end.

    Attributes
    ----------
    positions : dict
        Offset of the first record that was not handed out, by partition: what to save.
    skipped : Counter
        Offsets that gave no record, by reason.
    gaps : list of Gap
        Holes that held records, told just before the record that follows them is handed out; for
        whoever judges the log to take away.
    """

    def __init__(
        self,
        reader: LogReader,
        positions: Mapping[int, int],
        *,
        batch: int,
        ends: Mapping[int, int] | None = None,
    ) -> None:
        self.positions = dict(positions)
        self.skipped: Counter[str] = Counter()
        self.gaps: list[Gap] = []
        self._reader = reader
        self._batch = batch
        self._ends = ends
        self._ahead = dict(positions)
        self._queues: dict[int, deque[Stored]] = {p: deque() for p in positions}
        self._holes: dict[tuple[int, int], Gap] = {}  # by partition and offset of what follows

    def records(self) -> Iterator[Stored]:
        """Yield what can be told to come next; nothing when a partition has more than it gives."""
        self._read()
        if len(self._queues) > 1 and any(self._queues.values()):
            self._read()  # what is empty now was empty after all the others were read
        full = [p for p, queue in self._queues.items() if queue]
        if not full or (len(full) < len(self._queues) and self._hidden()):
            return
        while all(self._queues[p] for p in full):
            partition = min(full, key=self._place)
            stored = self._queues[partition].popleft()
            emptied = not self._queues[partition]
            self._tell(partition, stored.position.offset)
            yield stored
            self.positions[partition] = stored.position.offset + 1
            if emptied:
                self._settle(partition)

    def _place(self, partition: int) -> tuple[int, int]:
        return self._queues[partition][0].appended_ns, partition

    def _read(self) -> None:
        """Fill the empty queues."""
        for partition, queue in self._queues.items():
            if queue:
                continue
            batch = self._reader.read(partition, self._ahead[partition], limit=self._limit(partition))
            start = self._ahead[partition]
            self._note_holes(partition, start, batch)
            queue.extend(batch)
            self._ahead[partition] = batch.next_offset
            if not queue:
                self._settle(partition)

    def _settle(self, partition: int) -> None:
        """Move on to what was not read yet; not over a hole nobody was told of: a restart meets it again."""
        ahead = self._ahead[partition]
        if (partition, ahead) not in self._holes:
            self.positions[partition] = ahead

    def _tell(self, partition: int, offset: int) -> None:
        """Hand the hole before a record out with it."""
        if (hole := self._holes.pop((partition, offset), None)) is not None:
            self.gaps.append(hole)

    def untold(self) -> list[Gap]:
        """Return the holes at the end of the input, which no record follows."""
        holes, self._holes = list(self._holes.values()), {}
        return holes

    def _note_holes(self, partition: int, start: int, batch: Batch) -> None:
        """Count offsets without a record, and remember the holes in which there was one."""
        self.skipped.update({reason.value: n for reason, n in batch.skipped.items()})
        lost = min(LOST & batch.skipped.keys(), default=None)
        before = self._holes.pop((partition, start), None)  # the last batch ended in a hole
        if lost is None and before is None:
            return
        first_seq, reason = (before.first_seq, before.reason) if before else (start, lost)
        for offset in (*(stored.position.offset for stored in batch), batch.next_offset):
            if first_seq < offset and reason is not None:
                self._holes[partition, offset] = Gap(f"log/{partition}", first_seq, offset - 1, str(reason))
            first_seq, reason = offset + 1, lost

    def _hidden(self) -> bool:
        """Whether a partition gave nothing although its log goes on."""
        ends = self.ends()
        return any(self._ahead[p] < ends.get(p, 0) for p, queue in self._queues.items() if not queue)

    def _limit(self, partition: int) -> int:
        if self._ends is None:
            return self._batch
        return min(self._batch, max(self._ends.get(partition, 0) - self._ahead[partition], 0))

    def ends(self) -> Mapping[int, int]:
        """Where to stop, or where the log ends now, by partition."""
        return self._ends if self._ends is not None else self._reader.end_offsets()

    def at_end(self) -> bool:
        """Whether everything up to the end was handed out."""
        ends = self.ends()
        return all(not queue and self._ahead[p] >= ends.get(p, 0) for p, queue in self._queues.items())
