"""RouteService and its clients against a real server."""

import asyncio
import threading

import grpc
import pytest
from escalation_examples import DEADLINE_S, config, deadline, escalation
from routing_scenes import DRAIN, fleet, reroute

from paritas.clock import NS_PER_S, ManualClock, SystemClock
from paritas.controller.client import EscalationClient
from paritas.controller.refusals import RefusalError
from paritas.controller.route_admin import RouteAdmin
from paritas.controller.route_client import AsyncRouteClient, RouteClient
from paritas.controller.route_wire import entry_of
from paritas.controller.routing.declared import Declared
from paritas.controller.routing.model import FailMode, Hold, RouteKey, SafetyLimits
from paritas.controller.routing.override import Override
from paritas.controller.server import EscalationServer, serving
from paritas.proto.v1 import route_pb2 as pb
from paritas.proto.v1 import route_pb2_grpc as pb_grpc
from paritas.records import Action

POLICY = "qwen3-8b"
CLOCK = SystemClock()


def routed(folder, *, of=None, **changes):
    return config(folder, routes=(Declared(of or fleet()),), **changes)


def incident(**changes):
    now_ns = CLOCK.now_ns()
    times = {"issued_ns": now_ns, "valid_until_ns": now_ns + 600 * NS_PER_S}
    return escalation(**{**times, "actions": (reroute(),), **changes})


@pytest.fixture
def target(tmp_path):
    with serving(routed(tmp_path)) as target:
        yield target


@pytest.fixture
def admin(target):
    with RouteAdmin(target) as admin:
        yield admin


@pytest.fixture
def watch(target):
    """Open a watch; read messages one by one."""
    with grpc.insecure_channel(target) as channel:
        calls = []

        def begin(revision=0):
            request = pb.WatchRoutesRequest(policy=POLICY, revision=revision)
            calls.append(pb_grpc.RouteServiceStub(channel).Watch(request, timeout=DEADLINE_S))
            return calls[-1]

        yield begin
        for call in calls:
            call.cancel()


def publish(target, *events):
    with EscalationClient(target) as client:
        client.publish(events)


def next_table(call, revision):
    """Read until a table of at least `revision`."""
    for message in call:
        if message.WhichOneof("body") == "table" and message.table.revision >= revision:
            return message.table
    raise AssertionError("the watch ended")


def order(**changes):
    now_ns = CLOCK.now_ns()
    values = {"override_id": "", "key": RouteKey(POLICY), "author": "ana", "reason": "swap", "starts_ns": 0}
    return Override(**{**values, "ends_ns": now_ns + 600 * NS_PER_S, "drain": frozenset({"r1"}), **changes})


def refused(call, *args, **kwargs):
    with pytest.raises(RefusalError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def test_a_watch_gets_the_table_then_each_newer_one(target, watch):
    call = watch()
    first = next_table(call, 1)
    assert [(r.slice, dict(r.weights), dict(r.headers), r.why) for r in first.routes] == [
        ("all", {"inference": 1.0}, {}, "conforming"),
        ("task=math", {"inference": 1.0}, {"x-task": "math"}, "conforming"),
    ]
    assert 0 < first.valid_for_s <= 60
    publish(target, incident())
    second = next_table(call, 2)
    assert dict(second.routes[0].weights) == {"reference": 1.0}
    assert (second.routes[0].why, list(second.routes[0].incidents)) == ("incident", ["incident-1"])


def test_a_watch_resumes_by_revision(watch, target):
    known = next_table(watch(), 1).revision
    message = next(watch(known))
    assert message.WhichOneof("body") == "renewal"
    assert (message.renewal.revision, 0 < message.renewal.valid_for_s <= 60) == (known, True)
    publish(target, incident())
    assert next_table(watch(known), known + 1).revision == known + 1


def test_a_watch_that_resumes_after_a_restart_learns_what_the_file_says_now(tmp_path):
    """The revision is the same, as no route has changed; the replicas and the dry run have."""
    listen = f"unix:{tmp_path}/c.sock"

    def first(of, known):
        with serving(routed(tmp_path, of=of, listen=listen)), grpc.insecure_channel(listen) as channel:
            request = pb.WatchRoutesRequest(policy=POLICY, revision=known)
            call = pb_grpc.RouteServiceStub(channel).Watch(request, timeout=DEADLINE_S)
            message = next(call)
            call.cancel()
            return message

    before = first(fleet(dry_run=True), 0).table
    after = first(fleet(inference=5), before.revision).table
    assert (before.dry_run, after.dry_run, after.revision) == (True, False, before.revision)
    assert [len(t.replicas) for t in (before, after)] == [5, 6]


def test_a_watch_of_a_policy_that_is_not_routed(target):
    with grpc.insecure_channel(target) as channel, pytest.raises(grpc.RpcError) as caught:
        next(pb_grpc.RouteServiceStub(channel).Watch(pb.WatchRoutesRequest(policy="x"), timeout=DEADLINE_S))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "policy 'x' is not routed here (routed here: qwen3-8b)"


def test_watches_end_when_the_server_closes(tmp_path):
    """Neither the drain nor the farewell is waited for."""
    listen = f"unix:{tmp_path}/c.sock"
    with grpc.insecure_channel(listen) as channel:
        with serving(routed(tmp_path, listen=listen, drain_s=1000.0, farewell_s=1000.0)):
            request = pb.WatchRoutesRequest(policy=POLICY)
            call = pb_grpc.RouteServiceStub(channel).Watch(request, timeout=DEADLINE_S)
            next_table(call, 1)
        assert list(call) == []


def test_resolve_splits_by_the_sticky_key(target, admin, watch):
    call = watch()
    publish(target, incident(slice="task=math", actions=(reroute(0.25),)))
    next_table(call, 2)
    math = [admin.resolve(POLICY, {"x-task": "math"}, f"s{n}") for n in range(400)]
    again = [admin.resolve(POLICY, {"x-task": "math"}, f"s{n}").kernel for n in range(400)]
    assert [r.kernel for r in math] == again
    assert 70 <= sum(r.kernel == "reference" for r in math) <= 130
    assert {(r.slice, r.revision, r.why) for r in math} == {("task=math", 2, "incident")}
    other = admin.resolve(POLICY, {"x-task": "code"}, "s1")
    assert (other.kernel, other.slice, other.why) == ("inference", "all", "conforming")
    assert {r.name for r in other.replicas} == {"r1", "r2", "r3", "r4"}


def test_a_dry_run_resolves_as_if_nothing_had_happened(tmp_path):
    with serving(routed(tmp_path, of=fleet(dry_run=True))) as target, RouteAdmin(target) as admin:
        publish(target, incident(actions=(reroute(), Action("hold_refit"))))
        until(lambda a: a.states(POLICY)[0].table.revision == 2, admin)
        answer = admin.resolve(POLICY, {}, "s1")
        assert (answer.kernel, answer.dry_run) == ("inference", True)
        assert answer.detail.startswith("dry run, would be reference: ")
        with RouteClient(target, POLICY) as routes:
            assert routes.wait(timeout_s=DEADLINE_S)
            assert routes.holds == {}
            assert routes.resolve({}).kernel == "inference"


def test_an_override_holds_at_once_and_ends(admin):
    made = admin.override(order())
    state = admin.states()[0]
    assert [r.name for r in state.table.replicas if r.drained] == ["r1"]
    assert admin.overrides() == [made]
    ended = admin.expire(made.override_id, author="bea")
    assert (ended.expired_by, admin.expire(made.override_id, author="eve").expired_by) == ("bea", "bea")
    assert [r.name for r in admin.states(POLICY)[0].table.replicas if r.drained] == []
    assert admin.overrides() == []
    assert [o.override_id for o in admin.overrides(include_ended=True)] == [made.override_id]
    said = [e.detail for e in admin.audit() if e.kind.value == "overridden"]
    assert said == [f"override {made.override_id} ended by bea", f"override {made.override_id} by ana: swap"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"author": " "}, "author: must not be empty"),
        ({"reason": ""}, "reason: must not be empty (whoever meets the override wants to know)"),
        ({"ends_ns": 1}, "ends_ns: must be later than now (an override always ends; say when)"),
        (
            {"ends_ns": 2**62},
            "ends_ns: an override lasts at most 7d (renew it when it ends)",
        ),
        (
            {"key": RouteKey(POLICY, "turn=2")},
            "slice: the router cannot tell 'turn=2' apart (one of all, task=math)",
        ),
        (
            {"drain": frozenset()},
            "override: asks for nothing (give weights, shadow, drain, admit or release)",
        ),
        ({"drain": frozenset({"r9"})}, "drain: 'r9' is not of the fleet (one of f1, r1, r2, r3, r4)"),
        ({"admit": frozenset({"r1"})}, "drain: 'r1' is also in admit (say one of them)"),
        ({"weights": {"fp8": 1.0}}, "weights: 'fp8' is not of the fleet (one of inference, reference)"),
        (
            {"weights": {"inference": 0.5}},
            "weights: must sum to 1, got 0.5 (name every kernel that gets a share)",
        ),
        (
            {"weights": {"inference": -1.0, "reference": 2.0}},
            "weights: inference must be between 0 and 1, got -1.0",
        ),
        ({"reason": "x" * 4097}, "reason: 4097 bytes, at most 4096 are taken"),
    ],
)
def test_overrides_that_are_refused(admin, changes, text):
    assert refused(admin.override, order(**changes)) == text
    assert admin.overrides(include_ended=True) == []


def test_what_else_is_refused(admin):
    assert (
        refused(admin.expire, "x", author="ana") == "override 'x' is not known (it may be over and forgotten)"
    )
    assert refused(admin.resolve, "x", {}) == "policy 'x' is not routed here (routed here: qwen3-8b)"


def test_without_routes_it_says_how(tmp_path):
    with serving(config(tmp_path)) as target, RouteAdmin(target) as admin:
        assert admin.states() == []
        assert refused(admin.states, POLICY) == (
            "policy 'qwen3-8b' is not routed here (start the controller with --routes)"
        )


def test_the_audit_comes_in_pages_newest_first(admin):
    for _ in range(3):
        admin.expire(admin.override(order()).override_id, author="ana")
    whole = list(admin.audit(POLICY))
    assert [e.entry for e in whole] == list(range(len(whole), 0, -1))
    assert list(admin.audit(POLICY, limit=2)) == whole[:2]
    assert list(admin.audit("other")) == []
    asked = pb.AuditRequest(before=2**64 - 1, page_size=2)  # more than the log could ever count to
    newest = admin._stub.Audit(asked, timeout=DEADLINE_S)
    assert [entry_of(e) for e in newest.entries] == whole[:2]


# The clients that decide by themselves.


def until(holds, client):
    """Wait until `holds`, reading memory only."""
    timer = threading.Event()
    with deadline(timer.set):
        while not holds(client):
            assert not timer.wait(0.002), "it never came"


def test_a_client_follows_and_decides_like_the_controller(target, admin):
    with RouteClient(target, POLICY) as routes:
        assert routes.wait(timeout_s=DEADLINE_S)
        hold = Action("set_cap", {"cap": 1.5})
        publish(
            target,
            incident(slice="task=math", actions=(reroute(0.5), hold)),
            incident(incident_id="i2", slice="replica=r2", actions=(DRAIN,)),
        )
        until(lambda r: r.table.drained and r.holds, routes)
        assert routes.holds == {Hold.CAP: "1.5"}
        for n in range(50):
            mine = routes.resolve({"x-task": "math"}, f"s{n}")
            theirs = admin.resolve(POLICY, {"x-task": "math"}, f"s{n}")
            assert (mine.kernel, mine.slice, mine.revision, mine.why, mine.replicas) == (
                theirs.kernel,
                theirs.slice,
                theirs.revision,
                theirs.why,
                theirs.replicas,
            )


def test_a_client_survives_the_controller_and_falls_to_the_fail_mode(tmp_path):
    clock = ManualClock()
    of = fleet(fail_mode=FailMode.FALLBACK)
    listen = f"unix:{tmp_path}/c.sock"
    with serving(routed(tmp_path, of=of, listen=listen)), RouteClient(listen, POLICY, clock=clock) as routes:
        until(lambda r: r.table is not None, routes)
        routes.close()
        assert routes.resolve({}).kernel == "inference"
        clock.advance(seconds=61)
        lost = routes.resolve({}, "s1")
        assert (lost.kernel, lost.why, lost.valid_for_s) == ("reference", "lease_expired", 0.0)


def heard(routes):
    """How often a controller has told it something."""
    return routes.counts["tables"] + routes.counts["renewals"]


def test_a_client_resumes_after_the_controller_restarts(tmp_path):
    listen = f"unix:{tmp_path}/c.sock"
    with RouteClient(listen, POLICY) as routes:
        assert routes.resolve({}).detail == "no table has come yet"
        with serving(routed(tmp_path, listen=listen)):
            until(lambda r: r.table is not None, routes)
            publish(listen, incident())
            until(lambda r: r.resolve({}).kernel == "reference", routes)
        before = heard(routes)
        with serving(routed(tmp_path, listen=listen)):
            until(lambda r: heard(r) > before, routes)
            assert routes.resolve({}).kernel == "reference"


def test_a_client_keeps_its_lease_while_the_controller_renews_it(tmp_path):
    limits = SafetyLimits(lease_s=0.6)
    with serving(routed(tmp_path, of=fleet(limits=limits))) as target, RouteClient(target, POLICY) as routes:
        # The first lease has ended by then; a renewal that comes late on a busy machine is followed by one in time.
        until(lambda r: r.counts["renewals"] >= 4 and r.resolve({}).valid_for_s > 0.0, routes)
        assert routes.counts["tables"] == 1


def test_a_token_file_in_renewal_is_tried_again(tmp_path):
    token = tmp_path / "token"
    with serving(routed(tmp_path)) as target, RouteClient(target, POLICY, token_file=token) as routes:
        until(lambda r: r.counts["connection"] > 0, routes)
        assert routes.table is None
        token.write_text("0123456789")
        until(lambda r: r.table is not None, routes)


def test_an_asynchronous_client_tries_again_too(tmp_path):
    token = tmp_path / "token"

    async def scenario():
        async with (
            asyncio.timeout(DEADLINE_S),
            EscalationServer(routed(tmp_path)) as server,
            AsyncRouteClient(server.target, POLICY, token_file=token) as routes,
        ):
            while not routes.counts["connection"]:  # noqa: ASYNC110  # memory tells no one
                await asyncio.sleep(0)
            token.write_text("0123456789")
            assert await routes.wait(timeout_s=DEADLINE_S)

    asyncio.run(scenario())


def test_an_asynchronous_client_does_the_same(tmp_path):
    async def scenario():
        async with (
            asyncio.timeout(DEADLINE_S),
            EscalationServer(routed(tmp_path)) as server,
            AsyncRouteClient(server.target, POLICY) as routes,
        ):
            assert await routes.wait(timeout_s=DEADLINE_S)
            assert routes.resolve({}, "s1").kernel == "inference"
            await asyncio.to_thread(publish, server.target, incident())
            while routes.resolve({}, "s1").kernel != "reference":  # noqa: ASYNC110  # memory tells no one
                await asyncio.sleep(0)
            assert routes.holds == {}

    asyncio.run(scenario())
