"""From a recorded fault to the next request: detectors, controller, routing loop and a real Envoy."""

from dataclasses import replace
from importlib.resources import files

import pytest
from free_ports import free_port
from system.parts import why_not
from system.router_process import Workers, ask, envoy
from system.routes_scene import CALL_S, out

from paritas.clock import NS_PER_S, SystemClock
from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.commands.ingest import alternate
from paritas.contracts.load import load_preset
from paritas.controller.client import EscalationClient
from paritas.controller.config import ServerConfig
from paritas.controller.drivers.envoy_config import Addresses
from paritas.controller.route_admin import RouteAdmin
from paritas.controller.routing.declared import Declared
from paritas.controller.routing.model import Fleet, Replica, SafetyLimits
from paritas.controller.server import serving
from paritas.detectors.pipeline import Detector
from paritas.records import Phase
from paritas.tokens import TokenHasher

NAMES = ("r1", "r2", "ref")
LIMITS = SafetyLimits(dwell_s=0.5, ejection_s=0.5)
FLEET = Fleet(
    "qwen3-8b",
    tuple(Replica(name, "reference" if name == "ref" else "inference", name) for name in NAMES),
    limits=LIMITS,
    dry_run=False,
)
CLOCK = SystemClock()

pytestmark = pytest.mark.skipif(why_not("routers") is not None, reason=str(why_not("routers")))


@pytest.fixture
def workers():
    opened = Workers(*NAMES)
    yield opened
    opened.close()


def found():
    """What the detectors say of the recorded stale replica, issued now."""
    data, options = (
        files("paritas") / "data",
        ReadOptions(TokenHasher(b"a key for the test, not a secret one")),
    )
    detector = Detector(replace(load_preset("dense-bf16"), policy="qwen3-8b"))
    names = ("healthy.serve.jsonl.gz", "stale.train.jsonl.gz")
    traces = alternate([read_dump(data / name, options) for name in names])
    now_ns = CLOCK.now_ns()
    events = [*detector.process(traces, now_ns=0), *detector.flush(now_ns=0)]
    return [replace(e, issued_ns=now_ns, valid_until_ns=now_ns + 600 * NS_PER_S) for e in events]


def over(event):
    return replace(event, event_id=event.event_id + "/over", transition=999, after=Phase.RESOLVED, actions=())


def until(admin, holds):
    """Wait until the routes are as wanted and Envoy has acknowledged them; return them."""
    end_ns = CLOCK.monotonic_ns() + 60 * NS_PER_S
    while True:
        state = admin.states("qwen3-8b")[0]
        newest = [(route.revision, "applied") for route in state.table.routes]
        if holds(state) and [(one.revision, one.outcome) for one in state.shown] == newest:
            return state
        assert CLOCK.monotonic_ns() < end_ns, state


def test_a_recorded_fault_moves_the_next_request_and_the_recovery_leads_back(tmp_path, workers):
    control = f"127.0.0.1:{free_port()}"
    declared = Declared(FLEET, "envoy", {"listen": control})
    ports = (f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}")
    places = Addresses(*ports, control, {name: workers.address(name) for name in NAMES})
    events = found()
    stale = next(e for e in events if e.slice == "replica=r2" and e.after is Phase.FIRING)
    config = ServerConfig(tmp_path / "log.db", listen="127.0.0.1:0", routes=(declared,))
    with (
        serving(config) as target,
        envoy(tmp_path, FLEET, places) as url,
        EscalationClient(target, timeout_s=CALL_S) as client,
        RouteAdmin(target, timeout_s=CALL_S) as admin,
    ):
        until(admin, lambda state: not out(state))
        assert set(ask(url, 50)) == {"r1", "r2"}
        client.publish([stale])
        state = until(admin, lambda state: out(state) == {"r2"})
        assert ask(url, 50) == {"r1": 50}
        assert list(state.serving) == ["r1"]
        client.publish([over(stale)])
        until(admin, lambda state: not out(state))
        assert set(ask(url, 50)) == {"r1", "r2"}
        said = [e.detail for e in admin.audit() if e.kind.value == "applied" and e.key.slice == "all"]
        assert said[0].startswith("envoy: applied in ")
