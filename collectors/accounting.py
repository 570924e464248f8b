"""Where every token and every line went: the counts that must add up before any statistic."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.dumps.problem import Problem, ProblemReason
from paritas.records import Role, TokenStatus, TokenTrace

__all__ = ["Accounting", "RoleAccount"]


@dataclass(slots=True)
class RoleAccount:
    """Counts of one kernel.

    Attributes
    ----------
    sequences : int
        Traces seen.
    tokens : int
        Their lengths, summed; equals the sum of `by_status`.
    by_status : shape (7,), int64
        Tokens by `TokenStatus`.
    """

    sequences: int = 0
    tokens: int = 0
    by_status: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(TokenStatus), np.int64))

    @property
    def balanced(self) -> bool:
        """Return whether each token ended in exactly one status."""
        return int(self.by_status.sum()) == self.tokens

    def as_dict(self) -> dict[str, object]:
        """Return plain JSON-ready values."""
        status = {status.name.lower(): int(self.by_status[status]) for status in TokenStatus}
        return {"sequences": self.sequences, "tokens": self.tokens, "status": status}


class Accounting:
    """Counts traces and problems as they pass; adding costs a fraction of reading.

    Not for several threads at once: give each its own and `merge`.

    Examples
    --------
    >>> accounting = Accounting()
    >>> accounting.add(Problem("a.jsonl", 3, ProblemReason.BAD_JSON, "not JSON"))
    >>> accounting.as_dict()
    {'kernels': {}, 'problems': {'bad_json': 1}}
    """

    def __init__(self) -> None:
        self._roles: dict[Role, RoleAccount] = {}
        self._problems: Counter[ProblemReason] = Counter()

    @property
    def roles(self) -> Mapping[Role, RoleAccount]:
        """Counts of each kernel that was seen."""
        return self._roles

    @property
    def problems(self) -> Mapping[ProblemReason, int]:
        """Problems by reason."""
        return self._problems

    @property
    def balanced(self) -> bool:
        """Return whether the counts add up for every kernel."""
        return all(account.balanced for account in self._roles.values())

    def add(self, item: TokenTrace | Problem) -> None:
        """Count one item that a reader gave."""
        if isinstance(item, Problem):
            self._problems[item.reason] += 1
            return
        account = self._roles.setdefault(item.kernel.role, RoleAccount())
        account.sequences += 1
        account.tokens += len(item)
        account.by_status += np.bincount(item.status, minlength=len(TokenStatus))

    def merge(self, other: "Accounting") -> None:
        """Add the counts of another."""
        for role, account in other.roles.items():
            mine = self._roles.setdefault(role, RoleAccount())
            mine.sequences += account.sequences
            mine.tokens += account.tokens
            mine.by_status += account.by_status
        self._problems.update(other.problems)

    def as_dict(self) -> dict[str, object]:
        """Return plain JSON-ready values, in a fixed order."""
        return {
            "kernels": {role.value: self._roles[role].as_dict() for role in Role if role in self._roles},
            "problems": {reason.value: self._problems[reason] for reason in sorted(self._problems)},
        }
