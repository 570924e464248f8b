"""What a read of the spool is worth: records ready to go, and numbers that are lost and why.  Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from paritas.agent.eventlog import Frames
from paritas.agent.eventlog.records import unpack
from paritas.agent.reasons import DropReason
from paritas.errors import RecordError
from paritas.wire import Origin, WireRecord

__all__ = ["Batch", "Entry", "Lost", "claim"]


class Entry(NamedTuple):
    """One record that is ready to go, and the identity it goes under (a tuple: there is one a record)."""

    seq: int
    origin: Origin
    record: WireRecord


class Lost(NamedTuple):
    """Numbers that gave no record."""

    seqs: range
    reason: DropReason


@dataclass(frozen=True, slots=True)
class Batch:
    """Records taken together; they are settled up to a number, in one go or in several.

    Attributes
    ----------
    entries : tuple of Entry
        In order of their numbers.
    end_seq : int
        One more than the last number the batch accounts for.
    lost : tuple of Lost
        The numbers in between that have no entry.
    """

    entries: tuple[Entry, ...]
    end_seq: int
    lost: tuple[Lost, ...] = ()


def claim(frames: Frames, *, start_seq: int, agent: str, born_after_ns: int) -> Batch:
    """Return the batch of what was read from `start_seq` on.

    Parameters
    ----------
    frames : Frames
        What the reader gave; frames below `start_seq` were dropped while it read.
    born_after_ns : int
        Unix ns; what was appended before waited too long.
    """
    entries: list[Entry] = []
    lost: list[Lost] = []
    expected = start_seq
    for epoch, frame in frames.frames:
        if frame.seq < expected:
            continue
        if frame.seq > expected:
            lost.append(Lost(range(expected, frame.seq), DropReason.CORRUPT))
        expected = frame.seq + 1
        reason = DropReason.EXPIRED if frame.wall_ns < born_after_ns else None
        found = reason or _record(frame.payload)
        if isinstance(found, DropReason):
            lost.append(Lost(range(frame.seq, expected), found))
        else:
            entries.append(Entry(frame.seq, Origin(agent, epoch, frame.seq), found))
    if frames.next_seq > expected:
        lost.append(Lost(range(expected, frames.next_seq), DropReason.CORRUPT))
    return Batch(tuple(entries), max(expected, frames.next_seq), tuple(_joined(lost)))


def _record(payload: bytes) -> WireRecord | DropReason:
    try:
        return unpack(payload)
    except RecordError:
        return DropReason.ENCODE_ERROR


def _joined(lost: list[Lost]) -> Iterator[Lost]:
    """Yield the ranges with neighbours of one reason made one: a gap record a run, not a record."""
    held: Lost | None = None
    for one in lost:
        if held and held.reason is one.reason and held.seqs.stop == one.seqs.start:
            held = Lost(range(held.seqs.start, one.seqs.stop), one.reason)
            continue
        if held:
            yield held
        held = one
    if held:
        yield held
