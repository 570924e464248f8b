"""Which events a subscriber wants; pure."""

from dataclasses import dataclass

from paritas.controller.model import SEVERITY_RANK, Subject
from paritas.records import Severity

__all__ = ["Filter", "wants"]


@dataclass(frozen=True, slots=True)
class Filter:
    """Empty sets match everything; `min_severity` looks at the worst the incident has reached."""

    contracts: frozenset[str] = frozenset()
    clauses: frozenset[str] = frozenset()
    slices: frozenset[str] = frozenset()
    policies: frozenset[str] = frozenset()
    min_severity: Severity = Severity.INFO


def wants(only: Filter, subject: Subject) -> bool:
    """Tell whether `subject` passes.

    Examples
    --------
    >>> only = Filter(clauses=frozenset({"token-tv"}), min_severity=Severity.WARNING)
    >>> wants(only, Subject(clause="token-tv", severity=Severity.CRITICAL))
    True
    >>> wants(only, Subject(clause="token-tv", severity=Severity.INFO))
    False
    """
    lists = (
        (only.contracts, subject.contract),
        (only.clauses, subject.clause),
        (only.slices, subject.slice),
        (only.policies, subject.policy),
    )
    severe = SEVERITY_RANK[subject.severity] >= SEVERITY_RANK[only.min_severity]
    return severe and all(not allowed or value in allowed for allowed, value in lists)
