"""What is open: the newest transition of every incident, whether a silence holds it, and what inhibits it; pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paritas.controller.deliveries import Delivery, DeliveryKind
from paritas.controller.model import SEVERITY_RANK
from paritas.controller.notify.model import Entry, Inhibition
from paritas.controller.silences import Silence, suppression
from paritas.records import Escalation, Phase

__all__ = ["Book", "field_of", "inhibitor_of", "is_silenced", "noted", "pruned"]


@dataclass(frozen=True, slots=True)
class Book:
    """Incidents and silences by id; `snapshot` collects the incidents of one while it is being sent."""

    entries: Mapping[str, Entry]
    snapshot: Mapping[str, Entry] | None = None
    silences: Mapping[str, Silence] = field(default_factory=dict)


def noted(book: Book, delivery: Delivery) -> Book:
    """Return the book after one delivery; a snapshot replaces everything, and what it lacks has ended."""
    match delivery.kind:
        case DeliveryKind.SNAPSHOT_START:
            return replace(book, snapshot={})
        case DeliveryKind.INCIDENT if delivery.incident is not None:
            return replace(book, snapshot=_with(book.snapshot or {}, delivery.incident.current, delivery))
        case DeliveryKind.SNAPSHOT_END:
            gone = {key: _ended(entry) for key, entry in book.entries.items()}
            return replace(book, entries={**gone, **(book.snapshot or {})}, snapshot=None)
        case DeliveryKind.ESCALATION if delivery.escalation is not None:
            return replace(book, entries=_with(book.entries, delivery.escalation, delivery))
        case DeliveryKind.SILENCE if delivery.silence is not None:
            return _silenced(book, delivery.silence)
        case _:
            return book


def _with(entries: Mapping[str, Entry], current: Escalation, delivery: Delivery) -> Mapping[str, Entry]:
    """A transition that is older than the one known is a repeat."""
    known = entries.get(current.incident_id)
    if known is not None and known.current.transition > current.transition:
        return entries
    severities = [current.severity, *([known.peak] if known else [])]
    if delivery.incident is not None:
        severities.append(delivery.incident.peak)
    peak = max(severities, key=SEVERITY_RANK.__getitem__)
    entry = Entry(current, peak, delivery.suppression, _opened_ns(known, delivery))
    return {**entries, current.incident_id: entry}


def _opened_ns(known: Entry | None, delivery: Delivery) -> int:
    if delivery.incident is not None:
        return delivery.incident.opened_ns
    return known.opened_ns if known is not None else delivery.received_ns


def _silenced(book: Book, silence: Silence) -> Book:
    """From now on the silence itself says until when, not what came with an incident: it may end early."""
    entries = {
        key: replace(entry, suppression=None)
        if entry.suppression and entry.suppression.silence_id == silence.silence_id
        else entry
        for key, entry in book.entries.items()
    }
    return replace(book, entries=entries, silences={**book.silences, silence.silence_id: silence})


def pruned(book: Book, needed: Collection[str], *, now_ns: int) -> Book:
    """Forget silences that have ended, and incidents that have and are not in `needed`."""
    kept = {key: entry for key, entry in book.entries.items() if entry.is_open or key in needed}
    return replace(
        book, entries=kept, silences={k: s for k, s in book.silences.items() if s.ends_ns > now_ns}
    )


def is_silenced(entry: Entry, book: Book, *, now_ns: int) -> bool:
    """Tell whether a silence holds the notices of `entry` now."""
    came_with = entry.suppression is not None and entry.suppression.ends_ns > now_ns
    return came_with or suppression(book.silences.values(), entry.subject, now_ns=now_ns) is not None


def _ended(entry: Entry) -> Entry:
    if not entry.is_open:
        return entry
    ended = replace(entry.current, before=entry.current.after, after=Phase.RESOLVED)
    return replace(entry, current=ended)


def inhibitor_of(current: Escalation, book: Book, rules: Sequence[Inhibition]) -> str:
    """Return the id of an open incident that makes `current` not worth telling, or ""."""
    for rule in rules:
        if not _matches(current, rule.target):
            continue
        for incident_id, entry in book.entries.items():
            other = entry.current
            if incident_id != current.incident_id and entry.is_firing and _inhibits(other, current, rule):
                return incident_id
    return ""


def _inhibits(source: Escalation, target: Escalation, rule: Inhibition) -> bool:
    """Two that would inhibit each other do not: a rule that matches both would hide both."""
    if not _matches(source, rule.source) or _matches(source, rule.target) & _matches(target, rule.source):
        return False
    return all(field_of(source, name) == field_of(target, name) for name in rule.equal)


def _matches(current: Escalation, wanted: Mapping[str, frozenset[str]]) -> bool:
    return all(field_of(current, name) in values for name, values in wanted.items())


def field_of(current: Escalation, name: str) -> str:
    """Return a field by its name as text."""
    return str(getattr(current, name))
