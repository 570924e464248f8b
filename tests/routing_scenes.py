"""Fleets, incidents and random streams of verdicts for the routing tests."""

from dataclasses import dataclass, replace
from random import Random

from escalation_examples import escalation
from hypothesis import strategies as st

from paritas.controller.model import Suppression
from paritas.controller.routing.asks import Seen
from paritas.controller.routing.desired import Round, decide
from paritas.controller.routing.memory import Memory, memory_from, memory_text
from paritas.controller.routing.model import FailMode, Fleet, Replica, SafetyLimits
from paritas.records import Action, Phase

START_NS = 1_700_000_000_000_000_000
S = 1_000_000_000
SILENCE = Suppression("s1", "ana", "known", START_NS * 2)
LIMITS = SafetyLimits(ejection_s=20.0, ejection_at_most_s=100.0, dwell_s=30.0, lease_s=60.0)


def fleet(inference=4, reference=1, **changes):
    """Return a fleet of policy qwen3-8b: r1.. serve inference, f1.. the reference kernel."""
    replicas = [Replica(f"r{i}", "inference") for i in range(1, inference + 1)]
    replicas += [Replica(f"f{i}", "reference") for i in range(1, reference + 1)]
    values = {"slices": {"task=math": {"x-task": "math"}}, "limits": LIMITS, "dry_run": False}
    return Fleet("qwen3-8b", tuple(replicas), **{**values, **changes})


def reroute(share=1.0):
    return Action("reroute", {"to": "reference", "share": share})


DRAIN = Action("drain", {"slice": "replica"})


def seen(incident_id="i1", number=1, *, silenced=False, at_ns=START_NS, valid_s=600.0, **changes):
    """Return an incident as the controller sees it; firing unless told otherwise."""
    values = {"incident_id": incident_id, "issued_ns": at_ns, "valid_until_ns": at_ns + round(valid_s * S)}
    return Seen(escalation(number, **{**values, **changes}), SILENCE if silenced else None)


def over(incident, phase=Phase.RESOLVED):
    """Return the incident's next transition: over, or recovering."""
    event = incident.escalation
    after = replace(event, transition=event.transition + 1, after=phase, actions=())
    return replace(incident, escalation=after)


class Story:
    """A routing loop without its loop: memory, a fleet, and time that is told."""

    def __init__(self, of=None):
        self.fleet, self.memory, self.now_ns, self.audit = of or fleet(), Memory(), START_NS, []

    def at(self, seconds, *incidents, overrides=()):
        """Decide `seconds` after the start; return the routes by slice."""
        self.now_ns = START_NS + round(seconds * S)
        decision = decide(self.memory, Round(self.fleet, self.now_ns, incidents, overrides))
        self.memory, self.audit = memory_from(memory_text(decision.memory)), list(decision.audit)
        assert self.memory == decision.memory
        return {route.key.slice: route for route in decision.routes}

    def all(self, seconds, *incidents, **given):
        return self.at(seconds, *incidents, **given)["all"]


# Random streams: each step is a time step and what happens to some incident.

SLICES = ("all", "task=math", "replica=r1", "replica=r2", "replica=r3", "replica=r4", "replica=f1", "turn=2")
ACTIONS = (
    reroute(),
    reroute(0.25),
    DRAIN,
    Action("hold_refit"),
    Action("set_cap", {"cap": 1.5}),
    Action("block_promotion"),
    Action("notify", {"channel": "x"}),
    Action("reroute", {"to": "inference"}),
)
LIVES = ("fire", "fire", "fire", "rise", "recover", "resolve", "supersede", "silence", "speak", "nothing")
FLEETS = st.builds(
    fleet,
    inference=st.sampled_from((1, 2, 3, 4, 5)),
    reference=st.sampled_from((0, 1, 1, 2)),
    fail_mode=st.sampled_from(FailMode),
    limits=st.builds(
        SafetyLimits,
        minimum_healthy=st.integers(1, 3),
        share_moved_at_most=st.sampled_from((0.0, 0.3, 1.0, 1.0)),
        drained_at_most=st.sampled_from((0.0, 0.3, 0.5, 1.0)),
        ejection_s=st.just(20.0),
        ejection_at_most_s=st.just(100.0),
        dwell_s=st.just(30.0),
        lease_s=st.just(60.0),
    ),
)


@dataclass(frozen=True)
class Step:
    seconds: float
    key: int
    life: str
    actions: tuple
    valid_s: float


_random = Random(7)  # a pool of steps in which every life meets every slice, drawn once
STEP_POOL = [
    Step(
        seconds=_random.choice((0.0, 0.001, 1.0, 7.0, 31.0, 400.0, -5.0)),
        key=_random.choice((0, 0, 1, 2, 2, 3, 3, 4, 5, 6, 7)),
        life=_random.choice(LIVES),
        actions=tuple(_random.choices(ACTIONS, weights=(4, 2, 3, 1, 1, 1, 1, 0.3), k=_random.randint(1, 2))),
        valid_s=_random.choice((5.0, 600.0, 100_000.0, 100_000.0)),
    )
    for _ in range(600)
]
STEPS = st.lists(st.sampled_from(STEP_POOL), min_size=20, max_size=40)


class Incidents:
    """What detectors and people would have told: for each slice one incident after the other."""

    def __init__(self):
        self.current, self.silenced, self.ordinals, self.closed = {}, set(), {}, []

    def take(self, step, now_ns):
        """Let one step happen; a life that does not fit the phase is nothing."""
        life, known = step.life, self.current.get(step.key)
        if life == "silence":
            self.silenced.add(step.key)
        elif life == "speak":
            self.silenced.discard(step.key)
        elif life in ("fire", "rise"):
            self.current[step.key] = self._fire(step, known, now_ns)
        elif known is not None and life == "recover":
            self.current[step.key] = over(known, Phase.RECOVERING)
        elif known is not None and life in ("resolve", "supersede"):
            phase = Phase.RESOLVED if life == "resolve" else Phase.SUPERSEDED
            self.closed.append(over(self.current.pop(step.key), phase))

    def _fire(self, step, known, now_ns):
        if known is None:
            self.ordinals[step.key] = self.ordinals.get(step.key, 0) + 1
        number = known.escalation.transition + 1 if known else 1
        name = f"{step.key}/{self.ordinals[step.key]}"
        where = SLICES[step.key]
        return seen(name, number, at_ns=now_ns, valid_s=step.valid_s, slice=where, actions=step.actions)

    def told(self):
        """Return all incidents as the controller's store would, silences as they are."""
        open_ones = [
            replace(one, suppression=SILENCE if key in self.silenced else None)
            for key, one in self.current.items()
        ]
        return (*open_ones, *self.closed)
