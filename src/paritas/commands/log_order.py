"""The one order of a log with several partitions: by time of appending, then partition, then offset.

Judging is a function of this order, so that one process and many operators on Flink, today's
reading and a repetition, all say the same.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping

from paritas.agent.eventlog import LogReader, SkipReason, Stored
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
        Those that held records, by place, for whoever judges the log to take away.
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
            yield stored
            self.positions[partition] = self._ahead[partition] if emptied else stored.position.offset + 1

    def _place(self, partition: int) -> tuple[int, int]:
        return self._queues[partition][0].appended_ns, partition

    def _read(self) -> None:
        """Fill the empty queues."""
        for partition, queue in self._queues.items():
            if queue:
                continue
            batch = self._reader.read(partition, self._ahead[partition], limit=self._limit(partition))
            self._note_skipped(partition, batch.skipped)
            queue.extend(batch)
            self._ahead[partition] = batch.next_offset
            if not queue:
                self.positions[partition] = batch.next_offset

    def _note_skipped(self, partition: int, skipped: Mapping[SkipReason, int]) -> None:
        """Count offsets without a record; a read tells how many, so a gap begins where it was read."""
        self.skipped.update({reason.value: n for reason, n in skipped.items()})
        seq = self._ahead[partition]
        for reason in LOST & skipped.keys():
            self.gaps.append(Gap(f"log/{partition}", seq, seq + skipped[reason] - 1, reason.value))

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
        return all(self.positions.get(p, 0) >= end for p, end in self.ends().items())
