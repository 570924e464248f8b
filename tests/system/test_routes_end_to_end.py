"""Issue to route: recordings streamed into `paritas up`, a real Envoy obeys, and what happens to both under faults."""

import random
import tempfile
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from system.flink_cluster import until
from system.listener import Listener
from system.parts import why_not
from system.routes_scene import CALL_S, DEADLINE_S, INFERENCE, POLICY, REQUESTS, Scene, out, weights

from paritas.contracts.model import Operator, Requirement
from paritas.controller.client import EscalationClient
from paritas.controller.route_client import RouteClient
from paritas.errors import ParitasError, TransientError
from paritas.wire.sender import Sender

pytestmark = [
    pytest.mark.skipif(why_not("routers") is not None, reason=str(why_not("routers"))),
    pytest.mark.timeout(600),
]

HEALTHY = {"inference": 1.0}
MOVED = {"reference": 1.0}


@pytest.fixture
def folder():
    """A folder with a short name: sockets are in it."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def is_healthy(state):
    return weights(state) == HEALTHY and not out(state)


def is_faulty(state):
    return weights(state) == MOVED and out(state) == {"r2"}


def is_back_without_r2(state):
    return weights(state) == HEALTHY and out(state) == {"r2"}


def recovered(scene, holds, only=None):
    """Stream healthy pairs until the certificates have led back; how many are needed is theirs to say."""

    def is_so():
        scene.stream("healthy", only=only)
        with suppress(TransientError):  # the channels of one process share how long they wait after a kill
            return holds(scene.state())
        return False

    until(is_so, timeout_s=DEADLINE_S, what=lambda: f"{scene.state()} {told(scene)}")
    scene.until_routes(holds)


def test_a_recorded_fault_moves_the_next_request_and_the_certificate_leads_back(folder):
    with Scene(folder) as scene, scene.up() as up, scene.envoy():
        scene.ready(up)
        scene.until_routes(is_healthy)
        assert set(scene.ask()) == set(INFERENCE)

        scene.stream("stale")
        state = scene.until_routes(is_faulty)
        assert scene.ask() == {"ref": REQUESTS}
        assert list(state.serving) == ["ref"]
        assert state.table.routes[0].why == "incident"

        recovered(scene, is_back_without_r2)
        assert set(scene.ask()) == {"r0", "r1", "r3"}

        recovered(scene, is_healthy, only="r2")
        assert set(scene.ask()) == set(INFERENCE)
        with EscalationClient(scene.target, timeout_s=CALL_S) as client:
            phases = {i.current.slice: i.current.after.value for i in client.incidents(include_closed=True)}
        assert phases == {"all": "resolved", "replica=r2": "resolved"}
        assert up.end() == 0
        assert up.errors == ""


def test_in_a_dry_run_nothing_moves_and_the_audit_says_what_would(folder):
    with Scene(folder) as scene, scene.envoy():
        with scene.up() as up:  # so that Envoy has heard a controller once
            scene.ready(up)
            scene.until_routes(is_healthy)
            assert up.end() == 0
        with scene.up(dry_run=True) as up:
            scene.ready(up)
            scene.stream("stale")
            line = scene.until_audit(lambda line: "out: r2" in line.detail and "reference 1" in line.detail)
            assert (line.kind.value, line.dry_run) == ("decided", True)
            assert set(scene.ask()) == set(INFERENCE)
            assert [e for e in scene.audit("applied") if e.dry_run] == []
            state = scene.until_routes(is_faulty, shown=False)
            assert state.table.dry_run
            with RouteClient(scene.target, POLICY) as routes:
                assert routes.wait(timeout_s=DEADLINE_S)
                answer = routes.resolve({})
            assert (answer.kernel, answer.dry_run) == ("inference", True)
            assert answer.detail.startswith("dry run, would be reference: ")


def test_a_silence_stops_the_move_and_its_end_lets_it_happen(folder):
    everything = [Requirement("policy", Operator.IN, (POLICY,))]
    with (
        Scene(folder, limits=", lease: 3s") as scene,
        scene.up() as up,
        scene.envoy(),
        EscalationClient(scene.target, timeout_s=CALL_S) as client,
    ):
        scene.ready(up)
        scene.until_routes(is_healthy)
        silence = client.silence(everything, author="ana", comment="known", duration_s=600)
        scene.stream("stale")
        line = scene.until_audit(lambda line: line.kind.value == "withheld")
        assert "is silenced by ana: nothing is done for it" in line.detail
        until(lambda: len(list(client.incidents())) == 2, timeout_s=DEADLINE_S, what=scene.audit)
        assert set(scene.ask()) == set(INFERENCE)
        assert scene.audit("decided") == scene.audit("decided")[:1]
        client.expire_silence(silence.silence_id, author="ana")
        scene.until_routes(is_faulty)
        assert scene.ask() == {"ref": REQUESTS}


def started(scene, stack):
    """An instance that takes traces; it ends with the stack."""
    up = stack.enter_context(scene.up())
    scene.ready(up)
    return up


def listening(scene, stack):
    """Two subscribers that have heard of everything there is."""
    both = [stack.enter_context(Listener(scene.target, name)) for name in ("trainer", "gateway")]
    for listener in both:
        assert listener.synced.wait(DEADLINE_S)
    return both


def told(scene):
    """Ids of all events that the controller holds, by incident, in their order."""
    with EscalationClient(scene.target, timeout_s=CALL_S) as client:
        names = {i.current.incident_id for i in client.incidents(include_closed=True)}
        return {name: [t.event_id for t in client.history(name).transitions] for name in names}


def hears_all(listener, scene):
    """Whether a subscriber has every event once, those of an incident in their order."""
    events = told(scene)
    ours = {name: [e for e in listener.events if e in set(ids)] for name, ids in events.items()}
    return ours == events and len(listener.events) == len(set(listener.events))


def agree(both, scene):
    """Wait until both have heard everything; then they have heard it in the same order."""
    for listener in both:
        until(
            lambda heard=listener: hears_all(heard, scene),
            timeout_s=DEADLINE_S,
            what=lambda heard=listener: str((heard.events, told(scene))),
        )
    assert both[0].events == both[1].events


def routes_of(state):
    return [(route.slice, route.revision, dict(route.weights)) for route in state.table.routes]


def test_killed_with_moved_routes_nothing_is_decided_twice(folder):
    with Scene(folder) as scene, scene.envoy(), ExitStack() as stack:
        up = started(scene, stack)
        both = listening(scene, stack)
        scene.stream("stale")
        before = scene.until_routes(is_faulty)
        audit = scene.audit()
        up.kill()
        assert scene.ask() == {"ref": REQUESTS}, "Envoy keeps what it was told"
        up = started(scene, stack)
        after = scene.until_routes(is_faulty)
        assert routes_of(after) == routes_of(before)
        again = scene.audit()
        assert again[: len(audit)] == audit
        assert again[len(audit) :] == again_told(again[len(audit) :], before)
        assert scene.ask() == {"ref": REQUESTS}
        agree(both, scene)
        assert up.end() == 0


def again_told(lines, state):
    """Of new lines, those that may be there: a router was told the known revision once more."""
    known = {(route.slice, route.revision) for route in state.table.routes}
    return [e for e in lines if e.kind.value == "applied" and (e.key.slice, e.revision) in known]


@pytest.mark.parametrize("seed", [pytest.param(7, marks=pytest.mark.thorough), 8])
def test_killed_anywhere_it_ends_as_if_nobody_had_been_killed(folder, seed):
    with Scene(folder) as scene, scene.envoy(), ExitStack() as stack:
        records = [*scene.records("stale"), *scene.records("healthy", copies=6)]
        kills = set(random.Random(seed).sample(range(len(records)), 3))
        up = started(scene, stack)
        both = listening(scene, stack)
        for number, record in enumerate(records):
            if number in kills:
                up.kill()
                up = started(scene, stack)
            send(scene, record)
        recovered(scene, is_back_without_r2)
        assert set(scene.ask()) == {"r0", "r1", "r3"}
        agree(both, scene)
        chained(scene.audit("decided"))
        assert up.end() == 0


def chained(decided):
    """Each decision begins where the one before ended, and none is there twice."""
    revisions = [line.revision for line in decided]
    assert revisions == sorted(set(revisions)), decided
    parts = [line.detail.split(" -> ") for line in decided]
    for (*_, after), (before, *_) in pairwise(parts):
        assert after.startswith(before), decided


def send(scene, record):
    """Hand one record over, again where the receiver is away."""

    def is_taken():
        with suppress(ParitasError, OSError), Sender(scene.data.socket) as sender:
            sender.send(record)
            return True
        return False

    until(is_taken, timeout_s=DEADLINE_S, what=lambda: "no record is taken")


@pytest.mark.parametrize(
    ("fail_mode", "is_moved", "kernel"),
    [("hold", False, "inference"), ("hold", True, "reference"), ("fallback", False, "reference")],
)
def test_a_lease_that_nobody_renews_gives_the_declared_fail_mode(folder, fail_mode, is_moved, kernel):
    with (
        Scene(folder, limits=", lease: 1s", fail_mode=fail_mode) as scene,
        ExitStack() as stack,
        RouteClient(scene.target, POLICY) as routes,
    ):
        up = started(scene, stack)
        if is_moved:
            scene.stream("stale")
        wanted = ("reference", "incident") if is_moved else ("inference", "conforming")
        answered(routes, *wanted)
        up.kill()
        answered(routes, kernel, "lease_expired")
        assert routes.resolve({}).valid_for_s == 0.0
        started(scene, stack)
        answered(routes, *wanted)


def answered(routes, kernel, why):
    """Wait until a gateway's requests get that kernel, for that reason."""

    def is_so():
        found = routes.resolve({}, "session")
        return (found.kernel, found.why) == (kernel, why)

    until(is_so, timeout_s=DEADLINE_S, what=lambda: str(routes.resolve({}, "session")))
