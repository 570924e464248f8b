"""Silences: who stopped which actions until when.  Pure matching, and the book of active ones.

A silence stops actions, never state: the event is delivered all the same, marked.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from paritas.contracts.durations import duration_text
from paritas.contracts.model import Operator, Requirement
from paritas.controller.model import Subject, Suppression
from paritas.controller.refusals import invalid

__all__ = ["FIELDS", "OPERATORS", "Silence", "SilenceBook", "check", "covers", "suppression"]

FIELDS = (
    "contract",
    "contract_version",
    "policy",
    "clause",
    "slice",
    "weights_version",
    "severity",
    "incident_id",
)
OPERATORS = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Silence:
    """All `matchers` must hold, from `starts_ns` until before `ends_ns` (Unix ns).

    `expired_by` names who ended it early; then `ends_ns` is when that happened.
    """

    silence_id: str
    matchers: tuple[Requirement, ...]
    starts_ns: int
    ends_ns: int
    author: str
    comment: str
    created_ns: int = 0
    expired_by: str = ""


def check(silence: Silence, *, now_ns: int, max_silence_s: float) -> None:
    """Refuse a silence that is unbounded, over, anonymous or about nothing.

    Raises
    ------
    RefusalError
        INVALID, naming the field.
    """
    for name in ("author", "comment"):
        if not getattr(silence, name).strip():
            raise invalid(f"{name}: must not be empty", "whoever meets the silence wants to know who and why")
    _check_times(silence, now_ns=now_ns, max_silence_s=max_silence_s)
    if not silence.matchers:
        raise invalid("matchers: must not be empty", f"match on one of {', '.join(FIELDS)}")
    for index, matcher in enumerate(silence.matchers):
        _check_matcher(matcher, place=f"matchers[{index}]")


def _check_times(silence: Silence, *, now_ns: int, max_silence_s: float) -> None:
    if silence.ends_ns <= max(silence.starts_ns, now_ns):
        raise invalid("ends_ns: must be later than starts_ns and now", "a silence always ends; say when")
    if silence.ends_ns - max(silence.starts_ns, now_ns) > max_silence_s * NS_PER_S:
        raise invalid(
            f"ends_ns: a silence lasts at most {duration_text(max_silence_s)}", "renew it when it ends"
        )


def _check_matcher(matcher: Requirement, *, place: str) -> None:
    if matcher.field not in FIELDS:
        raise invalid(f"{place}.field: unknown field {matcher.field!r}", f"one of {', '.join(FIELDS)}")
    listed = matcher.op in (Operator.IN, Operator.NOT_IN)
    if listed != bool(matcher.values):
        need = "at least one value" if listed else "no values"
        raise invalid(f"{place}.values: {matcher.op} takes {need}")


def covers(silence: Silence, subject: Subject, *, now_ns: int) -> bool:
    """Tell whether `silence` is active at `now_ns` and matches `subject`.

    Examples
    --------
    >>> matcher = Requirement("slice", Operator.IN, ("replica=r2",))
    >>> silence = Silence("s", (matcher,), starts_ns=10, ends_ns=20, author="ana", comment="swap")
    >>> [covers(silence, Subject(slice="replica=r2"), now_ns=now) for now in (9, 10, 19, 20)]
    [False, True, True, False]
    """
    return silence.starts_ns <= now_ns < silence.ends_ns and all(_holds(m, subject) for m in silence.matchers)


def _holds(matcher: Requirement, subject: Subject) -> bool:
    value = str(getattr(subject, matcher.field))
    match matcher.op:
        case Operator.IN:
            return value in matcher.values
        case Operator.NOT_IN:
            return value not in matcher.values
        case Operator.EXISTS:
            return bool(value)
        case Operator.DOES_NOT_EXIST:
            return not value
        case _:
            return False  # comparisons are refused by `check`


def suppression(silences: Iterable[Silence], subject: Subject, *, now_ns: int) -> Suppression | None:
    """Return the matching silence that ends last, or None."""
    found = [s for s in silences if covers(s, subject, now_ns=now_ns)]
    if not found:
        return None
    last = max(found, key=lambda s: (s.ends_ns, s.silence_id))
    return Suppression(last.silence_id, last.author, last.comment, last.ends_ns)


class SilenceBook:
    """The silences that have not ended, by identity."""

    def __init__(self, silences: Iterable[Silence] = ()) -> None:
        self._silences = {s.silence_id: s for s in silences}

    def __len__(self) -> int:
        return len(self._silences)

    def put(self, silence: Silence) -> None:
        """Add it, or replace the one with its identity."""
        self._silences[silence.silence_id] = silence

    def forget_ended(self, *, now_ns: int) -> None:
        """Drop what ended at or before `now_ns`."""
        self._silences = {k: s for k, s in self._silences.items() if s.ends_ns > now_ns}

    def suppression(self, subject: Subject, *, now_ns: int) -> Suppression | None:
        """Return the matching silence that ends last, or None."""
        return suppression(self._silences.values(), subject, now_ns=now_ns)
