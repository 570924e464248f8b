"""Escalate: from changes of verdict to incidents, a pure state machine (docs/escalations.md).

    inactive → pending → firing(level) → recovering → resolved
                              └────────→ superseded (new weights)

Time is the start time of the deciding sequence, or the clock's while nothing arrives; dwell
times end exactly at their deadline, so cutting or replaying the input changes no transition
and no id.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from paritas.contracts.model import Contract
from paritas.contracts.model import Escalation as Rule
from paritas.detectors.evaluate import Change, Crossing
from paritas.records import Action, Escalation, Finding, Phase, Severity, State, Verdict

__all__ = ["Escalator", "Report", "rule_for"]

NS = 1_000_000_000
# What an incident is about; the usual one is empty: it leaves ids as short as they can be.
LIMIT, NO_DATA, REFIT = "", "no_data", "refit"
HOLD_REFIT = Action("hold_refit")
VALID_NS = 600 * NS  # a subscriber that hears nothing for ten minutes should not act on old news
LASTING = (Phase.FIRING, Phase.RECOVERING)
Key = tuple[str, str, str]  # clause, slice, and what it is about: a limit, missing data, rejected weights


@dataclass(frozen=True, slots=True)
class Report:
    """What an escalation says besides its state: computed when a transition is sent."""

    verdict: Verdict
    diagnosis: tuple[Finding, ...]
    trace_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Incident:
    """State of one (clause, slice).

    Attributes
    ----------
    ordinal : int
        Number of the incident of this key, from 1.
    transition : int
        Number of the last transition sent.
    since_ns, fired_ns : int
        When the phase began; when the incident fired.
    """

    rule: int
    phase: Phase = Phase.INACTIVE
    level: int = -1
    ordinal: int = 0
    transition: int = 0
    since_ns: int = 0
    fired_ns: int = 0
    weights_version: str = ""
    report: Report | None = None


def rule_for(contract: Contract, crossing: Crossing) -> int | None:
    """Return the index of the first rule that answers what the crossing says of its clause and slice.

    A recovery or supersession belongs to whichever state opened the incident.
    """
    state = _state_of(crossing)
    for index, rule in enumerate(contract.escalation):
        when = rule.when
        fits = (
            (not when.family or crossing.clause.family in when.family)
            and (not when.clause or crossing.clause.id in when.clause)
            and (not when.slice or crossing.slice in when.slice or crossing.declared in when.slice)
            and state in when.state
        )
        if fits:
            return index
    return None


def _state_of(crossing: Crossing) -> State:
    """What a crossing says: only a declared limit can be violated, a derived one loses its certificate."""
    if crossing.no_data:
        return State.NO_DATA
    return State.UNDECIDED if crossing.clause.derived else State.VIOLATED


class Escalator:
    """Incidents of one contract.

    Parameters
    ----------
    contract : Contract
    deployment : str
        Part of every id: tells two deployments of one contract apart.
    """

    def __init__(self, contract: Contract, *, deployment: str = "") -> None:
        self._contract = contract
        self._deployment = deployment
        self._incidents: dict[Key, Incident] = {}
        self._now_ns = 0

    def cross(self, crossing: Crossing, report: Callable[[], Report]) -> Iterator[Escalation]:
        """Take one change of a row and yield the transitions it causes, dwell times first."""
        yield from self.advance(crossing.event_ns)
        rule = rule_for(self._contract, crossing)
        if rule is None:
            return
        about = NO_DATA if crossing.no_data else REFIT if crossing.refit else LIMIT
        key = (crossing.clause.id, crossing.slice, about)
        incident = self._incidents.get(key, Incident(rule))
        match crossing.change:
            case Change.VIOLATED:
                yield from self._violated(key, incident, crossing, report())
            case Change.RECOVERED:
                yield from self._recovered(key, replace(incident, report=report()))
            case Change.SUPERSEDED:
                yield from self._superseded(key, incident)

    def advance(self, now_ns: int) -> Iterator[Escalation]:
        """Let time pass: hold times end, levels rise, recoveries complete, each at its own deadline."""
        while (due := self._next_due(now_ns)) is not None:
            deadline_ns, key = due
            self._now_ns = max(self._now_ns, deadline_ns)
            yield from self._expire(key, self._incidents[key])
        self._now_ns = max(self._now_ns, now_ns)

    def renewals(self, now_ns: int) -> Iterator[Escalation]:
        """Tell again what fires or recovers, so that it stays valid; no transition, no change of state.

        For a caller that has judged all there is: whoever acts on old news would act now.
        """
        for key, incident in sorted(self._incidents.items()):
            if incident.phase in LASTING:
                told = self._event(key, incident.phase, incident)
                yield replace(
                    told,
                    event_id=self._digest(told.event_id, "renewed", str(now_ns)),
                    issued_ns=now_ns,
                    valid_until_ns=now_ns + VALID_NS,
                )

    def active(self) -> tuple[tuple[str, str], ...]:
        """(clause, slice) of incidents that are pending, firing or recovering."""
        live = (Phase.PENDING, Phase.FIRING, Phase.RECOVERING)
        found = sorted({k[:2] for k, i in self._incidents.items() if i.phase in live})
        return tuple(found)

    def _next_due(self, now_ns: int) -> tuple[int, Key] | None:
        dues = ((self._deadline(i), k) for k, i in self._incidents.items())
        ready = [(d, k) for d, k in dues if d is not None and d <= now_ns]
        return min(ready, default=None)

    def _deadline(self, incident: Incident) -> int | None:
        """When the next dwell time of an incident ends; None if it waits for nothing."""
        rule = self._rule(incident)
        if incident.phase is Phase.PENDING:
            return incident.since_ns + round(rule.for_s * NS)
        if incident.phase is Phase.RECOVERING:
            return incident.since_ns + round(rule.keep_firing_for_s * NS)
        if incident.phase is Phase.FIRING and incident.level + 1 < len(rule.levels):
            return incident.fired_ns + round(rule.levels[incident.level + 1].after_s * NS)
        return None

    def _expire(self, key: Key, incident: Incident) -> Iterator[Escalation]:
        match incident.phase:
            case Phase.PENDING:
                yield from self._fire(key, incident)
            case Phase.FIRING:
                yield self._send(key, incident, replace(incident, level=incident.level + 1))
            case _:
                yield self._send(key, incident, replace(incident, phase=Phase.RESOLVED))

    def _violated(
        self, key: Key, incident: Incident, crossing: Crossing, report: Report
    ) -> Iterator[Escalation]:
        told = replace(incident, report=report)
        if incident.phase is Phase.RECOVERING:
            yield self._send(key, incident, replace(told, phase=Phase.FIRING))
            return
        fresh = replace(
            told,
            phase=Phase.PENDING,
            level=-1,
            ordinal=incident.ordinal + 1,
            transition=0,
            since_ns=self._now_ns,
            weights_version=crossing.weights_version,
        )
        self._incidents[key] = fresh
        yield from self.advance(self._now_ns)  # a hold time of zero ends at once

    def _fire(self, key: Key, incident: Incident) -> Iterator[Escalation]:
        levels = self._rule(incident).levels
        first = max((i for i, level in enumerate(levels) if level.after_s == 0), default=0)
        yield self._send(
            key, incident, replace(incident, phase=Phase.FIRING, level=first, fired_ns=self._now_ns)
        )

    def _recovered(self, key: Key, incident: Incident) -> Iterator[Escalation]:
        if incident.phase is Phase.PENDING:
            self._incidents[key] = replace(incident, phase=Phase.INACTIVE)
        elif incident.phase is Phase.FIRING:
            yield self._send(key, incident, replace(incident, phase=Phase.RECOVERING, since_ns=self._now_ns))

    def _superseded(self, key: Key, incident: Incident) -> Iterator[Escalation]:
        if incident.phase is Phase.PENDING:
            self._incidents[key] = replace(incident, phase=Phase.INACTIVE)
        elif incident.phase in (Phase.FIRING, Phase.RECOVERING):
            yield self._send(key, incident, replace(incident, phase=Phase.SUPERSEDED))

    def _rule(self, incident: Incident) -> Rule:
        return self._contract.escalation[incident.rule]

    def _send(self, key: Key, before: Incident, after: Incident) -> Escalation:
        """Record the transition and make its event."""
        after = replace(after, transition=before.transition + 1)
        self._incidents[key] = after
        return self._event(key, before.phase, after)

    def _event(self, key: Key, before: Phase, incident: Incident) -> Escalation:
        assert incident.report is not None  # every incident starts with a report
        contract, level = self._contract, self._rule(incident).levels[max(incident.level, 0)]
        incident_id = self._digest(*key, incident.weights_version, str(incident.ordinal))
        acting = incident.phase is Phase.FIRING
        return Escalation(
            event_id=self._digest(incident_id, str(incident.transition), incident.phase.value),
            incident_id=incident_id,
            transition=incident.transition,
            contract=contract.name,
            contract_version=contract.version,
            policy=contract.policy,
            clause=key[0],
            slice=key[1],
            weights_version=incident.weights_version,
            before=before,
            after=incident.phase,
            severity=level.severity if acting else Severity.INFO,
            level=max(incident.level, 0),
            verdict=incident.report.verdict,
            diagnosis=incident.report.diagnosis,
            actions=_actions(_asked(level.actions, key[2]), key[1]) if acting else (),
            trace_ids=incident.report.trace_ids,
            issued_ns=self._now_ns,
            valid_until_ns=self._now_ns + VALID_NS,
            summary=_summary(key, incident),
        )

    def _digest(self, *parts: str) -> str:
        """32 hex characters over the contract's identity and `parts`: equal inputs, equal ids."""
        text = "\x1f".join((self._contract.digest, self._contract.policy, self._deployment, *parts))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _asked(actions: tuple[Action, ...], about: str) -> tuple[Action, ...]:
    """Rejected weights always ask to hold refits, whatever else the level asks for."""
    is_missing = about == REFIT and all(action.kind != HOLD_REFIT.kind for action in actions)
    return (*actions, HOLD_REFIT) if is_missing else actions


def _actions(actions: tuple[Action, ...], name: str) -> tuple[Action, ...]:
    """Actions with the affected slice written in, so that an actor need not parse the summary."""
    return tuple(Action(a.kind, {"where": name, **a.arguments}) for a in actions)


def _summary(key: Key, incident: Incident) -> str:
    """One sentence for people: what, where, how much, why."""
    clause, name, about = key
    assert incident.report is not None
    v, causes = incident.report.verdict, incident.report.diagnosis
    head = f"{clause} {incident.phase.value} in {name}"
    if incident.phase is not Phase.FIRING:
        return head
    if about == NO_DATA:
        return f"{head}: no data"
    if about == REFIT:
        head += f": weights {incident.weights_version} rejected"
    size = f": {v.estimate:.3g} against a limit of {v.limit:.3g}" if v.estimate == v.estimate else ""
    cause = f"; looks like {causes[0].cause} ({causes[0].confidence:.0%})" if causes else ""
    return head + size + cause
