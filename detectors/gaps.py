"""Gaps: agents say which records they lost; until the log is whole again nothing passes."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from paritas.wire import Gap

__all__ = ["GapBook"]

REMEMBERED = 4096  # gaps told, so that one told twice counts once; streams by name


@dataclass(slots=True)
class GapBook:
    """What was lost, and until when that may still be missed.

    A lost record may be half of a sequence whose other half comes within `pair_within`, and it is
    judged with its cohort, so the log counts as whole again that long after the news of the last loss.

    Attributes
    ----------
    within_ns : int
        The contract's `pair_within`, and the width of a cohort.
    until_ns : int
        When the log is whole again; 0 while it is.
    lost : dict
        Records lost, by reason.
    streams : dict
        Records lost, by stream; the first `REMEMBERED` of them, and `others`.

    Examples
    --------
    >>> book = GapBook(within_ns=10)
    >>> book.note([Gap("pod-7", 3, 8, "overflow")], now_ns=100), book.is_open
    (True, True)
    >>> book.close(109), book.close(110), book.is_open, book.lost
    (False, True, False, {'overflow': 6})
    """

    within_ns: int
    until_ns: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    others: int = 0
    _told: dict[tuple[str, int, int, str], None] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether something may be missing now."""
        return self.until_ns > 0

    def note(self, gaps: Iterable[Gap], now_ns: int) -> bool:
        """Count gaps; return whether one is new."""
        fresh = [gap for gap in gaps if self._is_new(gap)]
        for gap in fresh:
            self.lost[gap.reason] = self.lost.get(gap.reason, 0) + gap.lost
            self._count(gap)
        if fresh:
            self.until_ns = max(self.until_ns, now_ns + max(self.within_ns, 1))
        return bool(fresh)

    def close(self, now_ns: int) -> bool:
        """Return whether the log has become whole by `now_ns`."""
        if not self.is_open or now_ns < self.until_ns:
            return False
        self.until_ns = 0
        return True

    def _is_new(self, gap: Gap) -> bool:
        key = (gap.stream, gap.first_seq, gap.last_seq, gap.reason)
        is_new = key not in self._told
        self._told[key] = None
        if len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]
        return is_new

    def _count(self, gap: Gap) -> None:
        if gap.stream in self.streams or len(self.streams) < REMEMBERED:
            self.streams[gap.stream] = self.streams.get(gap.stream, 0) + gap.lost
        else:
            self.others += gap.lost
