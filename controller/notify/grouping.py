"""From incidents to messages: groups that wait, repeat and never say the same twice; pure.

The rules are those people know from Alertmanager: wait, interval, repeat, and a record of what
each receiver was told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from paritas.clock import NS_PER_S
from paritas.controller.filters import wants
from paritas.controller.model import SEVERITY_RANK
from paritas.controller.notify.book import Book, field_of, inhibitor_of, is_silenced
from paritas.controller.notify.model import (
    Entry,
    Grouping,
    GroupKey,
    Inhibition,
    Notice,
    NoticeReason,
    Receiver,
)
from paritas.records import Severity

__all__ = ["Tells", "Told", "awaited", "due", "next_due_ns", "regrouped", "remember", "settled"]


@dataclass(frozen=True, slots=True)
class Told:
    """What one receiver knows of one group.

    Attributes
    ----------
    since_ns : int
        When the group first had something to tell.
    sent_ns : int
        When it was last told; 0 is never.
    firing : frozenset of (str, str)
        Incident and severity that were firing in the last notice; a worse severity is news.
    """

    since_ns: int
    sent_ns: int = 0
    firing: frozenset[tuple[str, str]] = frozenset()


Tells = Mapping[GroupKey, Told]
"""The notification log: what every receiver was told of every group that has not ended."""


@dataclass(frozen=True, slots=True)
class _Group:
    firing: tuple[Entry, ...] = ()
    resolved: tuple[Entry, ...] = ()
    inhibited: int = 0
    silenced: int = 0
    outgrown: tuple[Entry, ...] = ()


def regrouped(tells: Tells, book: Book, receivers: Sequence[Receiver]) -> Tells:
    """Return the log by the fields that receivers group by now: the plan may have changed since it was written."""
    fields = {receiver.name: receiver.grouping.by for receiver in receivers}
    after: dict[GroupKey, Told] = {}
    for (name, values), told in tells.items():
        if name not in fields or len(values) == len(fields[name]):
            after[name, values] = told
            continue
        for incident, severity in told.firing:
            if (entry := book.entries.get(incident)) is not None:
                key = (name, _values(entry, fields[name]))
                known = after.get(key, told)
                firing = (known.firing if key in after else frozenset()) | {(incident, severity)}
                after[key] = replace(known, sent_ns=max(known.sent_ns, told.sent_ns), firing=firing)
    return after


def settled(tells: Tells, book: Book, receivers: Sequence[Receiver], *, now_ns: int) -> Tells:
    """Open groups that have something to tell, and forget those that resolved before their first notice."""
    groups = {r.name: _groups(r, book, (), now_ns=now_ns) for r in receivers}
    kept = {
        key: told
        for key, told in tells.items()
        if told.sent_ns or groups.get(key[0], {}).get(key[1], _Group()).firing
    }
    opened = {
        (name, values): Told(now_ns)
        for name, found in groups.items()
        for values, group in found.items()
        if group.firing and (name, values) not in kept
    }
    return {**kept, **opened}


def due(
    tells: Tells, book: Book, receivers: Sequence[Receiver], rules: Sequence[Inhibition], *, now_ns: int
) -> list[tuple[GroupKey, Notice]]:
    """Return the notices to send now."""
    found = []
    for receiver in receivers:
        groups = _groups(receiver, book, rules, now_ns=now_ns)
        for key, told in tells.items():
            if key[0] == receiver.name:
                group = _since(groups.get(key[1], _Group()), told, book)
                reason = _reason(receiver, group, told, now_ns=now_ns)
                if reason is not None:
                    found.append((key, _notice(receiver, key, group, reason)))
    return found


def remember(tells: Tells, key: GroupKey, notice: Notice, *, now_ns: int) -> Tells:
    """Return the log after `notice` was delivered; a group that ended is forgotten."""
    if not notice.firing:
        return {k: told for k, told in tells.items() if k != key}
    firing = frozenset(_told_as(entry) for entry in notice.firing)
    return {**tells, key: replace(tells[key], sent_ns=now_ns, firing=firing)}


def awaited(tells: Tells) -> frozenset[str]:
    """Return the incidents somebody was told of, so that their end is told too."""
    return frozenset(incident for told in tells.values() for incident, _ in told.firing)


def next_due_ns(tells: Tells, receivers: Sequence[Receiver], *, after_ns: int = 0) -> int | None:
    """Return the next time after `after_ns` at which time alone makes `due` say something else; None if none does."""
    settings = {receiver.name: receiver.grouping for receiver in receivers}
    times = (
        time_ns
        for key, told in tells.items()
        if key[0] in settings
        for time_ns in _looks_ns(told, settings[key[0]])
        if time_ns > after_ns
    )
    return min(times, default=None)


def _looks_ns(told: Told, timing: Grouping) -> tuple[int, ...]:
    if not told.sent_ns:
        return (told.since_ns + _ns(timing.wait_s),)
    return told.sent_ns + _ns(timing.interval_s), told.sent_ns + _ns(timing.repeat_s)


def _groups(
    receiver: Receiver, book: Book, rules: Sequence[Inhibition], *, now_ns: int
) -> dict[tuple[str, ...], _Group]:
    groups: dict[tuple[str, ...], _Group] = {}
    for entry in book.entries.values():
        if not wants(receiver.only, entry.subject) or not entry.is_firing:
            continue
        values = _values(entry, receiver.grouping.by)
        groups[values] = _joined(groups.get(values, _Group()), entry, book, rules, now_ns=now_ns)
    return groups


def _values(entry: Entry, fields: Sequence[str]) -> tuple[str, ...]:
    return tuple(field_of(entry.current, name) for name in fields)


def _joined(group: _Group, entry: Entry, book: Book, rules: Sequence[Inhibition], *, now_ns: int) -> _Group:
    if is_silenced(entry, book, now_ns=now_ns):
        return replace(group, silenced=group.silenced + 1)
    if inhibitor_of(entry.current, book, rules):
        return replace(group, inhibited=group.inhibited + 1)
    return replace(group, firing=(*group.firing, entry))


def _since(group: _Group, told: Told, book: Book) -> _Group:
    """Add those that were told as firing and have ended, or got worse; one only silenced or inhibited has not."""
    known = [(book.entries[i], severity) for i, severity in sorted(told.firing) if i in book.entries]
    ended = tuple(entry for entry, _ in known if not entry.is_firing)
    as_told = (replace(entry, peak=Severity(severity)) for entry, severity in known if entry.peak != severity)
    return replace(group, resolved=ended, outgrown=tuple(as_told))


def _reason(receiver: Receiver, group: _Group, told: Told, *, now_ns: int) -> NoticeReason | None:
    timing = receiver.grouping
    if not told.sent_ns:
        waited = now_ns >= told.since_ns + _ns(timing.wait_s)
        return NoticeReason.FIRST if group.firing and waited else None
    if now_ns < told.sent_ns + _ns(timing.interval_s):
        return None
    firing = {_told_as(entry) for entry in group.firing}
    if firing - told.firing:
        return NoticeReason.NEW_INCIDENTS
    if group.resolved:
        return NoticeReason.SOME_RESOLVED if group.firing else NoticeReason.ALL_RESOLVED
    repeats = group.firing and now_ns >= told.sent_ns + _ns(timing.repeat_s)
    return NoticeReason.REPEAT if repeats else None


def _notice(receiver: Receiver, key: GroupKey, group: _Group, reason: NoticeReason) -> Notice:
    return Notice(
        receiver.name,
        tuple(zip(receiver.grouping.by, key[1], strict=True)),
        reason,
        _worst_first(group.firing),
        _worst_first(group.resolved),
        group.inhibited,
        group.silenced,
        group.outgrown,
    )


def _worst_first(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda e: (-SEVERITY_RANK[e.peak], e.current.incident_id)))


def _told_as(entry: Entry) -> tuple[str, str]:
    return entry.current.incident_id, entry.peak.value


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)
