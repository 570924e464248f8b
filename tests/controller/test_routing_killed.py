"""kill -9 of the controller while incidents come: no decision is lost or made twice, the router ends right."""

import json
from itertools import pairwise

import pytest
from escalation_examples import deadline, escalation
from killed_process import KilledProcess
from routing_scenes import DRAIN, reroute

from paritas.clock import NS_PER_S, SystemClock
from paritas.controller.backoff import Backoff
from paritas.controller.client import EscalationClient
from paritas.controller.route_admin import RouteAdmin
from paritas.controller.route_client import RouteClient
from paritas.records import Phase

SERVER = """
import sys
from pathlib import Path
from paritas.controller.config import ServerConfig
from paritas.controller.routing.declared import Declared
from paritas.controller.routing.model import Fleet, Replica, SafetyLimits
from paritas.controller.server import serving
names = [("r1", "inference"), ("r2", "inference"), ("r3", "inference"), ("f1", "reference")]
limits = SafetyLimits(dwell_s=0.001, ejection_s=0.001, ejection_at_most_s=0.002)
fleet = Fleet("qwen3-8b", tuple(Replica(*n, target=n[0]) for n in names), limits=limits, dry_run=False)
routes = (Declared(fleet, "file", {"path": sys.argv[3]}),)
with serving(ServerConfig(database=Path(sys.argv[1]), listen=sys.argv[2], routes=routes)) as target:
    print(target, flush=True)
    sys.stdin.read()
"""
TOTAL = 120
KILL_AT = {31, 74}
PATIENT = Backoff(first_s=0.01, most_s=0.1, tries=10_000)


def started(folder):
    """The controller, driving a file."""
    listen = f"unix:{folder}/c.sock"
    return KilledProcess(SERVER, folder / "log.db", listen, folder / "routes.json", listen=listen)


def transition(number):
    """Fire and resolve one incident after the other; the last one stays open."""
    ordinal, phase = divmod(number, 2)
    now_ns = SystemClock().now_ns()
    name, after = f"i{ordinal}", Phase.RESOLVED if phase else Phase.FIRING
    where = {"slice": "replica=r2", "actions": (DRAIN,)} if ordinal % 2 else {"actions": (reroute(0.5),)}
    where = {**where, "actions": ()} if phase else where
    times = {"issued_ns": now_ns, "valid_until_ns": now_ns + 600 * NS_PER_S}
    return escalation(phase + 1, incident_id=name, after=after, **{**times, **where})


@pytest.mark.slow
def test_the_routes_end_as_if_nobody_had_been_killed(tmp_path):
    server = started(tmp_path)
    with (
        EscalationClient(server.listen, backoff=PATIENT) as client,
        RouteClient(server.listen, "qwen3-8b") as routes,
        RouteAdmin(server.listen) as admin,
    ):
        with deadline(server.popen.kill, seconds=100):
            for number in range(TOTAL + 1):  # the last transition fires: half of the requests are moved
                client.publish([transition(number)])
                if number in KILL_AT:
                    server.kill()
                    server = started(tmp_path)
            wanted = {"inference": 0.5, "reference": 0.5}
            clock = SystemClock()
            gone = server.popen.poll
            while not routes.table or dict(routes.table.routes[0].weights) != wanted or routes.table.drained:
                assert gone() is None
                clock.wait(routes._closed, timeout_s=0.01)
            state = admin.states()[0]
            while state.shown[0].outcome != "applied" or dict(state.table.routes[0].weights) != wanted:
                clock.wait(routes._closed, timeout_s=0.01)
                state = admin.states()[0]
            decided = [e for e in admin.audit(limit=10_000) if e.kind.value == "decided"][::-1]
        server.stop()
    revisions = [e.revision for e in decided]
    assert revisions == sorted(set(revisions)), "a decision was written twice"
    parts = [e.detail.split(" -> ") for e in decided]
    for (*_, after), (before, *_) in pairwise(parts):
        assert after.startswith(before), "a decision does not begin where the one before ended"
    assert json.loads((tmp_path / "routes.json").read_text())
