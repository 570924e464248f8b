"""Crossings, rules and what the escalation stage made of them, in a few words."""

from dataclasses import replace

from pair_factory import NS, clause, contract

from paritas.contracts.model import Escalation as Rule
from paritas.contracts.model import Family, Level, When
from paritas.detectors.escalate import Escalator, Report
from paritas.detectors.evaluate import Change, Crossing
from paritas.records import Finding, Reason, Severity, State, Verdict

TV, TAIL, IDENTITY = (
    clause("tv", 0.02),
    clause("ratio_tail", 1e-4, Family.STATISTICAL),
    clause("kernel_identity", family=Family.RUNTIME),
)
NAN = float("nan")


def verdict(estimate=0.05, **more):
    known = Verdict(
        "tv",
        "all",
        State.VIOLATED,
        Reason.REFUTED,
        "tv",
        "numerical",
        estimate,
        0.03,
        0.07,
        0.02,
        9.0,
        -3.0,
        4.0,
        40,
        900,
    )
    return replace(known, **more)


def report(estimate=0.05, causes=()):
    findings = tuple(Finding(c, "all", 0.9, {}, "look") for c in causes)
    return Report(verdict(estimate), findings, ("t1", "t2"))


def crossing(change, second, *, asked=TV, place="all", declared=None, version=""):
    event_ns = round(second * NS)
    return Crossing(Change(change), asked, place, declared or place, 0, event_ns, version)


def escalator(*rules, **more):
    return Escalator(contract(TV, TAIL, IDENTITY, escalation=rules), **more)


def rule(*levels, for_s=0.0, keep=300.0, when=None):
    return Rule(when or When(), levels or (Level(Severity.CRITICAL),), for_s=for_s, keep_firing_for_s=keep)


def run(machine, *steps):
    """Feed crossings, and seconds to advance to; return the events."""
    events = []
    for step in steps:
        if isinstance(step, Crossing):
            events += machine.cross(step, report)
        else:
            events += machine.advance(round(step * NS))
    return events


def told(events):
    """What happened and when: (seconds, before, after, level)."""
    return [(e.issued_ns / NS, e.before.value, e.after.value, e.level) for e in events]


VIOLATED, RECOVERED, SUPERSEDED = "violated", "recovered", "superseded"
TWO_LEVELS = (Level(Severity.WARNING), Level(Severity.CRITICAL, after_s=60.0))
