"""From the deciding record to the router: how soon Envoy acknowledges a route, and a request obeys it.

One process holds detectors, controller, routing loop and driver, as `paritas up` does; Envoy is real, and the
servers behind it answer with their name.  Each round streams a recorded pair whose replica r2 is stale, its
sequences in a random order, to a detection loop of its own.  The clock starts when the record that makes the
loop escalate is handed to it.  It is read when the driver has Envoy's acknowledgement (as the audit log says)
and when the first request was answered by the reference kernel.  Then the incident is resolved by hand.

Beside it in the same run: the same weights set over Envoy's admin page, ``/runtime_modify``, which knows
nothing of incidents, keeps nothing and is told by whoever reaches it.

Run: python benchmarks/route_latency.py [--rounds 100] [--seed 0] [--json]
"""

import argparse
import http.client
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from system.parts import why_not
from system.router_process import Workers, envoy, free_port

from paritas.agent.eventlog import Cursor, EmbeddedLog, LogSettings
from paritas.clock import SystemClock
from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.commands.detecting import DetectionLoop, LoopSettings
from paritas.contracts.load import load_text
from paritas.controller.client import EscalationClient
from paritas.controller.config import ServerConfig
from paritas.controller.drivers.envoy_config import Addresses
from paritas.controller.drivers.envoy_keys import cluster_name, prefix_of
from paritas.controller.drivers.weights import TOTAL_WEIGHT
from paritas.controller.route_admin import RouteAdmin
from paritas.controller.routing.declared import Declared
from paritas.controller.routing.model import Fleet, Replica, RouteKey, SafetyLimits
from paritas.controller.server import serving
from paritas.records import Escalation, Phase
from paritas.tokens import TokenHasher
from paritas.wire import encode
from paritas.wire.records import WireRecord

GOAL_MS, ENVOY_GOAL_MS = 50.0, 10.0
DEADLINE_S = 30.0
POLICY = "qwen3-8b"
REPLICAS = (("r0", "inference"), ("r1", "inference"), ("ref", "reference"))
FLEET = Fleet(
    POLICY,
    tuple(Replica(*pair) for pair in REPLICAS),
    limits=SafetyLimits(dwell_s=0.001, lease_s=600.0),
    dry_run=False,
)
CONTRACT = """
apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: routed, version: 1.0.0}
spec:
  policy: qwen3-8b
  compare: {weights: equal, unit: sequence, pair_within: 10m}
  slices: [{name: all}, {name: replica, by: [replica], at_most: 16}]
  clauses:
    statistical: [{id: mean-ratio, statistic: mean_ratio, cap: 2.0, at_most: 1.02}]
  escalation:
    - when: {clause: mean-ratio, slice: all, state: violated}
      levels: [{severity: critical, actions: [{reroute: {to: reference, share: 1.0}}]}]
"""
COLUMNS = ("decided_ms", "acknowledged_ms", "envoy_ms", "obeyed_ms")


@dataclass(frozen=True, slots=True)
class Stand:
    """What every round uses."""

    target: str
    folder: Path
    client: EscalationClient
    admin: RouteAdmin
    gateway: http.client.HTTPConnection


# ---- the place -------------------------------------------------------------------------------------------


def recorded(run: str, order: random.Random) -> list[WireRecord]:
    """Records of the stale pair, its sequences in a random order, both kernels in turn."""
    now_ns = SystemClock().now_ns()
    sides = []
    for name in ("healthy.serve", "stale.train"):
        with as_file(files("paritas") / "data" / f"{name}.jsonl.gz") as path:
            sides.append(list(read_dump(path, ReadOptions(TokenHasher(bytes(32)), run_id=run))))
    pairs = list(zip(*sides, strict=True))
    order.shuffle(pairs)
    # A second between two sequences: each is judged when the next one begins.
    traces = [replace(t, event_ns=now_ns + n * 10**9) for n, pair in enumerate(pairs) for t in pair]
    return [record for t in traces for record in encode([t], resource={"service.name": "recorded"})]


def opened(stack: ExitStack) -> Stand:
    """Start workers, controller and Envoy."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    names = [name for name, _ in REPLICAS]
    workers = Workers(*names)
    stack.callback(workers.close)
    listen, page, control = (f"127.0.0.1:{free_port()}" for _ in range(3))
    declared = Declared(FLEET, "envoy", {"listen": control})
    config = ServerConfig(folder / "log.sqlite", listen="127.0.0.1:0", routes=(declared,))
    target = stack.enter_context(serving(config))
    places = Addresses(listen, page, control, {name: workers.address(name) for name in names})
    stack.enter_context(envoy(folder, FLEET, places))
    gateway = http.client.HTTPConnection(listen, timeout=DEADLINE_S)
    stack.callback(gateway.close)
    client = stack.enter_context(EscalationClient(target))
    stand = Stand(page, folder, client, stack.enter_context(RouteAdmin(target)), gateway)
    until(lambda: is_shown(stand, "inference"))
    return stand


def until(holds: Callable[[], object]) -> None:
    """Ask again and again, at most `DEADLINE_S`."""
    end = time.perf_counter() + DEADLINE_S
    while not holds():
        if time.perf_counter() > end:
            raise SystemExit("a round did not end in time")
        time.sleep(0.001)


def is_shown(stand: Stand, kernel: str) -> bool:
    """Whether all requests should go to `kernel`, and Envoy has acknowledged it."""
    state = stand.admin.states(POLICY)[0]
    route, shown = state.table.routes[0], list(state.shown)
    confirmed = bool(shown) and (shown[0].revision, shown[0].outcome) == (route.revision, "applied")
    return confirmed and route.weights.get(kernel) == 1.0


def answered(stand: Stand) -> str:
    """Ask once through Envoy; return who answered."""
    stand.gateway.request("POST", "/v1/completions", b"{}", {"content-type": "application/json"})
    return str(json.loads(stand.gateway.getresponse().read())["id"])


# ---- one round -------------------------------------------------------------------------------------------


def played(stand: Stand, number: int, order: random.Random) -> list[float]:
    """Stream until the loop escalates, measure, and lead back; return the columns in ms."""
    fired: list[Escalation] = []
    with judging(stand, f"round-{number}") as (log, loop):
        loop.on_published = fired.extend
        begun_ns, started, decided = stream(log, loop, recorded(f"round-{number}", order), fired)
        until(lambda: answered(stand) == "ref")
        obeyed = time.perf_counter()
    until(lambda: is_shown(stand, "reference"))
    acknowledged_ms, envoy_ms = told(stand, begun_ns)
    back(stand, fired)
    return [1e3 * (decided - started), acknowledged_ms, envoy_ms, 1e3 * (obeyed - started)]


@contextmanager
def judging(stand: Stand, name: str) -> Iterator[tuple[EmbeddedLog, DetectionLoop]]:
    """A log and a detection loop of its own, whose incidents no other round shares."""
    folder, clock = stand.folder / name, SystemClock()
    settings = LoopSettings(deployment=name, save_s=3600.0)
    contract, publish = load_text(CONTRACT, "contract.yaml"), stand.client.publish
    with ExitStack() as stack:
        log = stack.enter_context(EmbeddedLog(folder, LogSettings(partitions=1), clock=clock))
        loop = DetectionLoop(
            contract, log, Cursor(folder / "state"), publish=publish, clock=clock, settings=settings
        )
        yield log, stack.enter_context(loop)


def stream(
    log: EmbeddedLog, loop: DetectionLoop, records: list[WireRecord], fired: list[Escalation]
) -> tuple[int, float, float]:
    """Hand records over until one makes the loop escalate; when that one was handed over, and when it was told."""
    for record in records:
        begun_ns, started = time.time_ns(), time.perf_counter()
        log.append(record, partition_key=record.key)
        loop.step()
        if any(e.actions for e in fired):
            return begun_ns, started, time.perf_counter()
    raise SystemExit("the recording was not found faulty")


def told(stand: Stand, begun_ns: int) -> tuple[float, float]:
    """What the audit log says of the newest move: ms until its acknowledgement, of which at Envoy."""
    line = next(e for e in stand.admin.audit(limit=20) if e.kind.value == "applied")
    took_ms = float(line.detail.partition("applied in ")[2].partition(" ms")[0])
    return (line.at_ns - begun_ns) / 1e6, took_ms


def back(stand: Stand, fired: list[Escalation]) -> None:
    """Resolve what the round has opened, and wait until Envoy has it."""
    moved = [e for e in fired if e.after is Phase.FIRING]
    over = [
        replace(e, event_id=f"{e.event_id}/over", transition=99, after=Phase.RESOLVED, actions=())
        for e in moved
    ]
    stand.client.publish(over)
    until(lambda: is_shown(stand, "inference"))


# ---- the peer --------------------------------------------------------------------------------------------


def by_hand(stand: Stand, rounds: int) -> np.ndarray:
    """The same move over the admin page: ms until it answers, and until a request obeys."""
    page = http.client.HTTPConnection(stand.target, timeout=DEADLINE_S)
    found = []
    for _ in range(rounds):
        started = time.perf_counter()
        modify(page, {"ref": TOTAL_WEIGHT, "r0": 0, "r1": 0})
        taken = time.perf_counter()
        until(lambda: answered(stand) == "ref")
        found.append([1e3 * (taken - started), 1e3 * (time.perf_counter() - started)])
        modify(page, {"ref": 0, "r0": TOTAL_WEIGHT // 2, "r1": TOTAL_WEIGHT // 2})
        until(lambda: answered(stand) != "ref")
    page.close()
    return np.asarray(found)


def modify(page: http.client.HTTPConnection, weights: dict[str, int]) -> None:
    """Set the runtime keys of one route."""
    keys = {f"{prefix_of(RouteKey(POLICY))}.{cluster_name(Replica(n, ''))}": w for n, w in weights.items()}
    page.request("POST", "/runtime_modify?" + "&".join(f"{key}={w}" for key, w in keys.items()))
    answer = page.getresponse()
    if answer.status != http.client.OK:
        raise SystemExit(f"Envoy's admin page: {answer.read().decode()}")
    answer.read()


# ---- the table -------------------------------------------------------------------------------------------


def measured(rounds: int, seed: int) -> dict[str, dict[str, float]]:
    """Play all rounds; p50, p99 and worst of each column in ms."""
    order = random.Random(seed)
    with ExitStack() as stack:
        stand = opened(stack)
        played(stand, 0, order)  # the first one imports and connects
        ours = np.asarray([played(stand, n, order) for n in range(1, rounds + 1)])
        peer = by_hand(stand, rounds)
    rows = {name: ours[:, n] for n, name in enumerate(COLUMNS)}
    rows |= {"peer_answered_ms": peer[:, 0], "peer_obeyed_ms": peer[:, 1]}
    return {name: figures(values) for name, values in rows.items()}


def figures(values: np.ndarray) -> dict[str, float]:
    """Median, 99th percentile and worst."""
    return {
        "p50": float(np.quantile(values, 0.5)),
        "p99": float(np.quantile(values, 0.99)),
        "worst": float(values.max()),
    }


def lines(found: dict[str, dict[str, float]], rounds: int) -> Iterator[str]:
    """The table, and whether the goals were held."""
    names = {
        "decided_ms": "record -> escalation is in the log",
        "acknowledged_ms": "record -> acknowledged by Envoy",
        "envoy_ms": "  of which Envoy",
        "obeyed_ms": "record -> first request that obeys",
        "peer_answered_ms": "/runtime_modify -> answer",
        "peer_obeyed_ms": "/runtime_modify -> first request that obeys",
    }
    yield f"{rounds} rounds, load average {os.getloadavg()[0]:.1f}"
    for name, text in names.items():
        row = found[name]
        yield f"{text:<46}p50 {row['p50']:6.1f} ms  p99 {row['p99']:6.1f} ms  worst {row['worst']:6.1f} ms"
    for name, goal in (("acknowledged_ms", GOAL_MS), ("envoy_ms", ENVOY_GOAL_MS)):
        is_held = found[name]["p99"] <= goal
        yield f"p99 of {names[name].strip()!r}: goal {goal:g} ms {'held' if is_held else 'missed'}"


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if reason := why_not("routers"):
        raise SystemExit(f"no Envoy here: {reason}")
    found = measured(asked.rounds, asked.seed)
    print(json.dumps(found, indent=2) if asked.json else "\n".join(lines(found, asked.rounds)))


if __name__ == "__main__":
    main()
