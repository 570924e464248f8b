"""Overrides: what a person wants of one route, why, and until when; checked against the fleet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum, isclose

from paritas.clock import NS_PER_S
from paritas.contracts.durations import duration_text
from paritas.controller.refusals import invalid
from paritas.controller.routing.model import ALL, Fleet, Hold, RouteKey

__all__ = ["Override", "active", "check_override", "chosen"]

LASTS_AT_MOST_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Override:
    """What `author` wants of a route, from `starts_ns` until before `ends_ns` (Unix ns).

    It wins over every incident, within the fleet's safety limits.

    Attributes
    ----------
    weights, shadow : mapping of str to float
        Share of each kernel, and share copied to it; empty leaves them as they would be.
    drain, admit : frozenset of str
        Replicas that must be out, and those that must be in; of the whole policy.
    release : frozenset of Hold
        Holds that are lifted.
    yields : bool
        An incident may move requests away all the same: a plan, not an order.
    expired_by : str
        Who ended it early; then `ends_ns` is when that happened.
    """

    override_id: str
    key: RouteKey
    author: str
    reason: str
    starts_ns: int
    ends_ns: int
    weights: Mapping[str, float] = field(default_factory=dict)
    shadow: Mapping[str, float] = field(default_factory=dict)
    drain: frozenset[str] = frozenset()
    admit: frozenset[str] = frozenset()
    release: frozenset[Hold] = frozenset()
    yields: bool = False
    expired_by: str = ""


def active(overrides: Iterable[Override], policy: str, *, now_ns: int) -> tuple[Override, ...]:
    """Return those of `policy` that hold at `now_ns`, the newest first."""
    found = [o for o in overrides if o.key.policy == policy and o.starts_ns <= now_ns < o.ends_ns]
    return tuple(sorted(found, key=lambda o: (-o.starts_ns, o.override_id)))


def chosen(overrides: Iterable[Override], name: str, *, yields: bool) -> Override | None:
    """Return the newest that speaks of the shares of slice `name`; one of all requests speaks of each."""
    own: dict[str, Override] = {}
    for override in overrides:
        if override.yields is yields and (override.weights or override.shadow):
            own.setdefault(override.key.slice, override)
    return own.get(name, own.get(ALL))


def check_override(override: Override, fleet: Fleet, *, now_ns: int) -> None:
    """Refuse what is anonymous, endless, empty or not of this fleet.

    Raises
    ------
    RefusalError
        INVALID, naming the field.
    """
    for name in ("author", "reason"):
        if not getattr(override, name).strip():
            raise invalid(f"{name}: must not be empty", "whoever meets the override wants to know")
    _check_times(override, now_ns=now_ns)
    if override.key.slice not in {ALL, *fleet.slices}:
        known = ", ".join((ALL, *sorted(fleet.slices)))
        raise invalid(f"slice: the router cannot tell {override.key.slice!r} apart", f"one of {known}")
    if not (override.weights or override.shadow or override.drain or override.admit or override.release):
        raise invalid("override: asks for nothing", "give weights, shadow, drain, admit or release")
    _check_names(override, fleet)
    _check_shares(override)


def _check_times(override: Override, *, now_ns: int) -> None:
    if override.ends_ns <= max(override.starts_ns, now_ns):
        raise invalid("ends_ns: must be later than now", "an override always ends; say when")
    if override.ends_ns - now_ns > LASTS_AT_MOST_S * NS_PER_S:
        raise invalid(
            f"ends_ns: an override lasts at most {duration_text(LASTS_AT_MOST_S)}", "renew it when it ends"
        )


def _check_names(override: Override, fleet: Fleet) -> None:
    replicas = {replica.name for replica in fleet.replicas}
    kernels = {replica.kernel for replica in fleet.replicas}
    for name, given, known in (
        ("weights", set(override.weights), kernels),
        ("shadow", set(override.shadow), kernels),
        ("drain", set(override.drain), replicas),
        ("admit", set(override.admit), replicas),
    ):
        for strange in sorted(given - known):
            raise invalid(f"{name}: {strange!r} is not of the fleet", f"one of {', '.join(sorted(known))}")
    for both in sorted(override.drain & override.admit):
        raise invalid(f"drain: {both!r} is also in admit", "say one of them")


def _check_shares(override: Override) -> None:
    for name, shares in (("weights", override.weights), ("shadow", override.shadow)):
        for kernel, share in shares.items():
            if not 0.0 <= share <= 1.0:
                raise invalid(f"{name}: {kernel} must be between 0 and 1, got {share!r}")
    if override.weights and not isclose(fsum(override.weights.values()), 1.0, abs_tol=1e-9):
        total = fsum(override.weights.values())
        raise invalid(f"weights: must sum to 1, got {total:g}", "name every kernel that gets a share")
