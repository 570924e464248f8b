"""Kernel identity: does what reported itself match what the contract declares?"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paritas.records import KernelIdentity, Reason, Role, State

__all__ = ["IdentityLog"]


@dataclass(slots=True)
class IdentityLog:
    """Every value seen of every declared identity field.

    Attributes
    ----------
    declared : mapping of Role to fields
        From the contract.
    seen : dict
        (role, field) → values seen, empty string for "not reported".
    """

    declared: Mapping[Role, Mapping[str, object]]
    seen: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def note(self, kernel: KernelIdentity) -> None:
        """Remember the declared fields of one reported identity."""
        told = kernel.fields()
        for name in self.declared.get(kernel.role, {}):
            self.seen.setdefault((kernel.role.value, name), set()).add(_text(told.get(name)))

    def verdict(self) -> tuple[State, Reason, str]:
        """Return the state, why, and the first difference in words."""
        if not self.seen:
            return State.NO_DATA, Reason.NOT_REPORTED, ""
        for (role, name), values in sorted(self.seen.items()):
            wanted = _text(self.declared[Role(role)][name])
            other = sorted(v for v in values if v not in ("", wanted))
            if other:
                return State.VIOLATED, Reason.DIFFERS, f"{role}.{name} is {other[0]!r}, declared {wanted!r}"
        if any("" in values for values in self.seen.values()):
            return State.UNDECIDED, Reason.NOT_REPORTED, ""
        return State.CONFORMING, Reason.MATCHED, ""


def _text(value: object) -> str:
    """Canonical text of an identity field; booleans as in YAML."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
