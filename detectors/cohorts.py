"""Cohorts: outcomes leave together with those of sequences that started at the same time.

Early finishers do not bias what is tested.  This is the half of pairing that needs the whole
stream in the order of the log; what it is told is small, however long the sequences are.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from paritas.detectors.pairs import PairOutcome
from paritas.detectors.sequences import Key, Step, Taken

__all__ = ["Cohorts"]

NS = 1_000_000_000
HELD_BACK = 10_000  # decided sequences that wait for their groups; beyond it the oldest group goes as it is


@dataclass(slots=True)
class _Cohort:
    """Sequences that started in the same interval."""

    first_seen_ns: int
    undecided: int = 0
    decided: list[PairOutcome] = field(default_factory=list)


@dataclass(slots=True)
class _Group:
    """A prompt group of which some known members are undecided."""

    cohort: int
    undecided: int = 0


class Cohorts:
    """Closes start-time cohorts.

    Parameters
    ----------
    width_s : float, seconds
        Width of a cohort.
    grace_s : float, seconds
        A cohort with undecided members lets its decided ones go after this long.
    remembered : int
        Groups whose cohort is remembered.
    by_group : bool
        Groups are units: a decided member waits for those of its group that are known and undecided.
    """

    def __init__(self, *, width_s: float, grace_s: float, remembered: int, by_group: bool = False) -> None:
        self._width_ns = max(round(width_s * NS), 1)
        self._grace_ns = round(grace_s * NS)
        self._remembered = remembered
        self._cohorts: dict[int, _Cohort] = {}  # in order of first sight
        self._places: dict[Key, int] = {}  # cohort of each sequence that waits
        self._whole: set[int] = set()  # cohorts without an undecided member
        self._groups: OrderedDict[Key, int] = OrderedDict()
        self._watermark_ns = -1
        self._by_group = by_group
        self._members: dict[Key, Key] = {}  # group of each sequence that waits
        self._open: dict[Key, _Group] = {}
        self._held: dict[Key, list[PairOutcome]] = {}  # decided members of open groups
        self._held_back = 0

    def take(self, taken: Taken, now_ns: int) -> Iterator[PairOutcome]:
        """Learn what a trace did; yield what it cannot be used for, then the cohorts that are over."""
        self._watermark_ns = max(self._watermark_ns, taken.event_ns)
        for step in taken.steps:
            if step.first is not None and step.key not in self._places:
                self._admit(step.key, self._cohort_of(taken), now_ns)
                self._expect(step.key, taken)
            if step.outcome is not None and step.extra:
                yield step.outcome
            elif step.outcome is not None:
                self._decide(step.key, step.outcome)
        yield from self._close(now_ns, self._watermark_ns // self._width_ns)

    def end(self, steps: Iterable[Step]) -> None:
        """Learn of sequences that ended without a trace: their time was over."""
        for step in steps:
            assert step.outcome is not None  # only an outcome ends a sequence
            self._decide(step.key, step.outcome)

    def tick(self, now_ns: int) -> Iterator[PairOutcome]:
        """Nothing arrived for a while: the newest cohort is over too."""
        yield from self._close(now_ns, self._watermark_ns // self._width_ns + 1)

    def __len__(self) -> int:
        """Cohorts that were not closed yet."""
        return len(self._cohorts)

    def _admit(self, key: Key, number: int, now_ns: int) -> None:
        self._places[key] = number
        self._cohorts.setdefault(number, _Cohort(now_ns)).undecided += 1
        self._whole.discard(number)

    def _expect(self, key: Key, taken: Taken) -> None:
        """Its group, if it is a unit, is not whole before this sequence is decided."""
        if self._by_group and taken.group_id:
            group = self._members[key] = taken.run_id, taken.group_id
            self._open.setdefault(group, _Group(self._places[key])).undecided += 1

    def _cohort_of(self, taken: Taken) -> int:
        """Number of the start-time cohort; a group stays together in its first member's."""
        number = taken.event_ns // self._width_ns
        if not taken.group_id:
            return number
        group = taken.run_id, taken.group_id
        if group in self._open:
            return self._open[group].cohort
        found = self._groups.setdefault(group, number)
        while len(self._groups) > self._remembered:
            self._groups.popitem(last=False)
        return found

    def _decide(self, key: Key, outcome: PairOutcome) -> None:
        number = self._places.pop(key)
        cohort = self._cohorts[number]
        cohort.undecided -= 1
        self._hold(key, cohort, outcome)
        if cohort.undecided == 0:
            self._whole.add(number)

    def _hold(self, key: Key, cohort: _Cohort, outcome: PairOutcome) -> None:
        """Let an outcome go into its cohort, or hold it back until its group is whole."""
        group = self._members.pop(key, None)
        if group is None:
            cohort.decided.append(outcome)
            return
        self._held.setdefault(group, []).append(outcome)
        self._held_back += 1
        self._open[group].undecided -= 1
        if self._open[group].undecided == 0:
            cohort.decided += self._let_go(group)
            del self._open[group]
        while self._held_back > HELD_BACK:
            oldest = next(iter(self._held))
            self._cohorts[self._open[oldest].cohort].decided += self._let_go(oldest)

    def _let_go(self, group: Key) -> list[PairOutcome]:
        """Return what is held back of a group, no longer."""
        outcomes = self._held.pop(group)
        self._held_back -= len(outcomes)
        return outcomes

    def _close(self, now_ns: int, open_from: int) -> Iterator[PairOutcome]:
        """Yield cohorts that ended before `open_from` and are decided, or whose grace is over."""
        ready = self._whole.union(self._overdue(now_ns))
        for number in sorted(n for n in ready if n < open_from):
            cohort = self._cohorts[number]
            yield from sorted(cohort.decided, key=_canonical)
            cohort.decided.clear()
            if cohort.undecided == 0:
                del self._cohorts[number]
                self._whole.remove(number)

    def _overdue(self, now_ns: int) -> Iterator[int]:
        """Cohorts whose grace is over; the first seen come first, so a healthy stream looks at one."""
        for number, cohort in self._cohorts.items():
            if now_ns - cohort.first_seen_ns <= self._grace_ns:
                return
            if cohort.decided:
                yield number


def _canonical(outcome: PairOutcome) -> tuple[str, str, int, str]:
    """Order inside a cohort: groups together, then start time, then id."""
    return outcome.run_id, outcome.group_id, outcome.event_ns, outcome.sequence_id
