"""How a running server does, in numbers: one reading of everything it counts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from paritas.controller.census import Census
from paritas.controller.core import Core
from paritas.controller.drivers.driver import Outcome
from paritas.controller.routing.loop import RoutingLoop
from paritas.controller.routing.place import Place

__all__ = ["RouterVitals", "Vitals", "vitals_of"]


@dataclass(frozen=True, slots=True)
class RouterVitals:
    """One fleet and its router.

    Attributes
    ----------
    driver : str
        Empty where routes are only decided and told.
    is_dry_run : bool
    is_reachable, is_confirmed : bool
        Whether the router answered the last question; whether everything it can do was read back.
    changes : mapping of str to int
        Changes of routes told to it, by what became of them.
    drifts : int
        Times it showed something else than what it had confirmed.
    decided : mapping of str to int
        Lines of the audit log about this policy, by kind.
    """

    policy: str
    driver: str
    is_dry_run: bool
    is_reachable: bool
    is_confirmed: bool
    changes: Mapping[str, int] = field(default_factory=dict)
    drifts: int = 0
    decided: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Vitals:
    """The server, at one moment.

    Attributes
    ----------
    is_writable : bool
        Whether the last write to the log went well.
    census : Census
        What is kept.
    appended, duplicates, refused : int
        Entries added, entries known already, batches not admitted: since the start.
    turned_away : mapping of str to int
        Calls that access control refused.
    subscribers : tuple of int
        Events that wait to be sent, for each stream that is open.
    ended : mapping of str to int
        Streams ended, by reason.
    failed_rounds : int
        Rounds of the routing loop that failed.
    routers : tuple of RouterVitals
    """

    is_writable: bool
    census: Census
    appended: int = 0
    duplicates: int = 0
    refused: int = 0
    turned_away: Mapping[str, int] = field(default_factory=dict)
    subscribers: tuple[int, ...] = ()
    ended: Mapping[str, int] = field(default_factory=dict)
    failed_rounds: int = 0
    routers: tuple[RouterVitals, ...] = ()


def vitals_of(core: Core, routes: RoutingLoop, found: Census, *, turned_away: Counter[str]) -> Vitals:
    """Read the parts of a server, on its event loop."""
    counts = core.journal.counts
    return Vitals(
        is_writable=core.journal.is_writable,
        census=found,
        appended=counts["appended"],
        duplicates=counts["duplicates"],
        refused=counts["refused"],
        turned_away=dict(turned_away),
        subscribers=tuple(core.hub.waiting()),
        ended=dict(core.hub.counts),
        failed_rounds=routes.counts["failed"] + routes.counts["faults"],
        routers=tuple(_router(place, routes) for place in routes.places.values()),
    )


def _router(place: Place, routes: RoutingLoop) -> RouterVitals:
    drive, policy = place.drive, place.fleet.policy
    decided = {kind.value: n for (name, kind), n in routes.decided.items() if name == policy}
    if drive is None:
        return RouterVitals(policy, "", place.fleet.dry_run, True, True, decided=decided)
    return RouterVitals(
        policy,
        drive.name,
        place.fleet.dry_run,
        is_reachable=not drive.shown.fault,
        is_confirmed=drive.shown.is_confirmed,
        changes={outcome.value: drive.told[outcome] for outcome in Outcome},
        drifts=drive.counts["drifts"],
        decided=decided,
    )
