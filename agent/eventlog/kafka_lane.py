"""One partition as its reader keeps it: every offset becomes a record or is counted."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from paritas.agent.eventlog.records import Batch, Position, SkipReason, Stored
from paritas.wire import WireRecord

__all__ = ["Lane"]

NS_PER_MS = 1_000_000


@dataclass(slots=True)
class Lane:
    """One partition: what was fetched and not yet read.

    `next_offset` is where the next read goes on without a seek, `fetched_to` where the next fetch does.
    """

    partition: Any
    next_offset: int = -1
    fetched_to: int = -1
    waiting: deque[Any] = field(default_factory=deque)
    waiting_bytes: int = 0
    jumped: SkipReason | None = None

    def add(self, found: list[Any]) -> None:
        """Keep fetched records until they are read."""
        self.waiting.extend(found)
        self.waiting_bytes += sum(record.serialized_value_size for record in found)

    def move(self, offset: int) -> None:
        """Forget what was fetched and go on elsewhere."""
        self.waiting.clear()
        self.waiting_bytes = 0
        self.next_offset = self.fetched_to = offset

    def jump(self, offset: int, reason: SkipReason) -> None:
        """Go on behind offsets that cannot be had."""
        self.fetched_to, self.jumped = offset, reason

    def take(self, limit: int) -> Batch:
        """Return the next records and account for every offset between them."""
        offset = self.next_offset
        taken = [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]
        self.waiting_bytes -= sum(found.serialized_value_size for found in taken)
        self.next_offset = taken[-1].offset + 1 if self.waiting else self.fetched_to
        stored = tuple(_stored(found) for found in taken if found.value is not None)
        jumped, self.jumped = self.jumped, None
        skipped = {
            SkipReason.NOT_A_RECORD: len(taken) - len(stored),
            jumped or SkipReason.MISSING: self.next_offset - offset - len(taken),
        }
        return Batch(stored, self.next_offset, {reason: count for reason, count in skipped.items() if count})


def _stored(found: Any) -> Stored:
    headers = tuple((name, value or b"") for name, value in found.headers)
    record = WireRecord(found.key or b"", found.value, headers)
    return Stored(Position(found.partition, found.offset), record, found.timestamp * NS_PER_MS)
