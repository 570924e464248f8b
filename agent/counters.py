"""One consistent reading of everything a spool counts."""

from dataclasses import dataclass, field

from paritas.agent.account import Totals

__all__ = ["SpoolCounters", "SyncTimes"]


@dataclass(slots=True)
class SyncTimes:
    """How long making appends durable took, seconds."""

    count: int = 0
    failures: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    is_failing: bool = False

    def note(self, seconds: float) -> None:
        """Count one sync that worked."""
        self.count += 1
        self.is_failing = False
        self.total_s += seconds
        self.longest_s = max(self.longest_s, seconds)

    def note_failure(self) -> None:
        """Count one that did not."""
        self.failures += 1
        self.is_failing = True


@dataclass(frozen=True, slots=True)
class SpoolCounters:
    """What a spool holds and did; `records` keeps the invariant within one reading.

    Attributes
    ----------
    records : Totals
        Of everything that came in.
    own : Totals
        Of the agent's own gap and health records.
    disk_bytes, memory_bytes, quarantined_bytes : int
        Bytes kept.
    oldest_age_s : float
        Seconds that the oldest record has waited.
    is_memory_only : bool
        Whether the disk refuses and what is accepted now would not survive a crash.
    degradations, commit_failures, cursor_resets, gaps_forgotten, dead_letters : int
        Times the disk refused; saves that failed; damaged positions; gap records that did not
        fit anywhere; records among the dead letters.
    sync : SyncTimes
        Of group syncs.
    """

    records: Totals = field(default_factory=Totals)
    own: Totals = field(default_factory=Totals)
    disk_bytes: int = 0
    memory_bytes: int = 0
    quarantined_bytes: int = 0
    oldest_age_s: float = 0.0
    is_memory_only: bool = False
    degradations: int = 0
    commit_failures: int = 0
    cursor_resets: int = 0
    gaps_forgotten: int = 0
    dead_letters: int = 0
    sync: SyncTimes = field(default_factory=SyncTimes)
