"""`paritas up` with routes, a real Envoy behind it, and recordings streamed in: what the acceptance tests play on."""

import json
from contextlib import ExitStack, suppress
from importlib.resources import as_file, files

from free_ports import free_ports
from system.control_process import Command
from system.flink_cluster import until
from system.router_process import Workers, ask, envoy

from paritas.clock import SystemClock
from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.commands.ingest import alternate
from paritas.commands.places import DataFolder
from paritas.controller.drivers.envoy_config import Addresses
from paritas.controller.route_admin import RouteAdmin
from paritas.controller.routing.model import Fleet, Replica
from paritas.errors import TransientError
from paritas.tokens import TokenHasher
from paritas.wire import encode
from paritas.wire.sender import Sender

CLOCK = SystemClock()
POLICY = "qwen3-8b"
INFERENCE = ("r0", "r1", "r2", "r3")  # as the recordings name them; r2 is the stale one
NAMES = (*INFERENCE, "ref")
DEADLINE_S = 150
CALL_S = 30.0  # of one answer: a controller that judges as well may be slow, one that is away is told at once
REQUESTS = 80  # chance that one of four replicas gets none of them: 4e-10
PAIRS = {"healthy": ("healthy.serve", "healthy.train"), "stale": ("healthy.serve", "stale.train")}

# The clause is judged in two slices, each with an action of its own.  1.03 is the limit under which
# a recovery is certified within a few hundred healthy sequences.
CONTRACT = """
apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: routed, version: 1.0.0}
spec:
  policy: qwen3-8b
  compare: {weights: equal, unit: sequence, pair_within: 10m}
  slices:
    - {name: all}
    - {name: replica, by: [replica], at_most: 16}
  clauses:
    statistical:
      - {id: mean-ratio, statistic: mean_ratio, cap: 2.0, at_most: 1.03}
  escalation:
    - when: {clause: mean-ratio, slice: all, state: violated}
      keep_firing_for: 1s
      levels: [{severity: critical, actions: [{reroute: {to: reference, share: 1.0}}]}]
    - when: {clause: mean-ratio, slice: replica, state: violated}
      keep_firing_for: 1s
      levels: [{severity: critical, actions: [{drain: {slice: replica}}]}]
"""


def recorded(pair, run, only=None):
    """Traces of one pair of recordings, both kernels in turn, as of now; of one replica if told."""
    options = ReadOptions(TokenHasher(bytes(32)), run_id=run, base_ns=CLOCK.now_ns(), step_ns=10_000_000)
    with ExitStack() as stack:
        held = [as_file(files("paritas") / "data" / f"{name}.jsonl.gz") for name in PAIRS[pair]]
        paths = [stack.enter_context(one) for one in held]
        traces = list(alternate([read_dump(path, options) for path in paths]))
    wanted = {t.sequence_id for t in traces if only in (None, t.attributes.get("replica"))}
    return [t for t in traces if t.sequence_id in wanted]


class Scene:
    """One place: a data folder, fixed addresses, workers and Envoy; `up` starts the controller on it."""

    def __init__(self, folder, *, limits="", fail_mode="hold"):
        self.folder, self.data = folder, DataFolder(folder / "d")
        self._limits, self._fail_mode = limits, fail_mode
        listen, control, gateway, admin = (f"127.0.0.1:{port}" for port in free_ports(4))
        self.target, self._control = listen, control
        self.workers = Workers(*NAMES)
        replicas = {name: self.workers.address(name) for name in NAMES}
        self._places = Addresses(gateway, admin, control, replicas)
        fleet = tuple(Replica(n, "reference" if n == "ref" else "inference") for n in NAMES)
        self._fleet = Fleet(POLICY, fleet)
        (folder / "contract.yaml").write_text(CONTRACT)
        self._copies = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.workers.close()

    def envoy(self):
        """Run Envoy; it takes requests once a controller has spoken."""
        return envoy(self.folder, self._fleet, self._places)

    def up(self, *, dry_run=False):
        """Run `paritas up` on the folder; a context manager, ready when `ready` says so."""
        (self.folder / "routes.yaml").write_text(self._routes(dry_run))
        words = ("--contract", self.folder / "contract.yaml", "--routes", self.folder / "routes.yaml")
        return Command("up", *words, "--data", self.data.root, "--listen", self.target)

    def _routes(self, dry_run):
        replicas = [{"name": r.name, "kernel": r.kernel} for r in self._fleet.replicas]
        limits = f"{{dwell: 100ms, ejection: 100ms, ejection_at_most: 200ms{self._limits}}}"
        return (
            f"routes:\n  - policy: {POLICY}\n    replicas: {json.dumps(replicas)}\n    limits: {limits}\n"
            f"    fail_mode: {self._fail_mode}\n    dry_run: {json.dumps(dry_run)}\n"
            f"    driver: {{envoy: {{listen: '{self._control}'}}}}\n"
        )

    def ready(self, up):
        """Wait until it takes traces."""
        up.says("  traces:")

    def ask(self, times=REQUESTS):
        """Count who answers so many requests through Envoy."""
        return ask(f"http://{self._places.listen}", times)

    def records(self, pair, *, copies=1, only=None):
        """Records of a pair of recordings, each copy a run of its own."""
        for _ in range(copies):
            self._copies += 1
            for trace in recorded(pair, f"{pair}-{self._copies}", only):
                yield from encode([trace], resource={"service.name": "recorded"})

    def stream(self, pair, *, copies=1, only=None):
        """Send recordings to the running instance."""
        with Sender(self.data.socket) as sender:
            for record in self.records(pair, copies=copies, only=only):
                sender.send(record)

    def state(self):
        """What is wanted and what is so, now."""
        with RouteAdmin(self.target, timeout_s=CALL_S) as admin:
            return admin.states(POLICY)[0]

    def until_routes(self, holds, *, shown=True):
        """Wait until what is wanted is `holds` and, if `shown`, the router has confirmed it; return the state."""
        seen = [None]

        def there():
            with suppress(TransientError):
                seen[0] = state = self.state()
                newest = [(route.revision, "applied") for route in state.table.routes]
                is_shown = [(one.revision, one.outcome) for one in state.shown] == newest
                return state if holds(state) and (is_shown or not shown) else None
            return None

        return until(there, timeout_s=DEADLINE_S, what=lambda: str(seen[0]))

    def audit(self, kind=None):
        """All lines of the audit log, oldest first."""
        with RouteAdmin(self.target, timeout_s=CALL_S) as admin:
            lines = list(admin.audit(limit=10_000))[::-1]
        return [line for line in lines if kind in (None, line.kind.value)]

    def until_audit(self, holds):
        """Wait for a line of the audit log; return it."""
        return until(
            lambda: next((line for line in self.audit() if holds(line)), None),
            timeout_s=DEADLINE_S,
            what=lambda: str(self.audit()),
        )


def weights(state):
    """Shares of all requests, by kernel."""
    return {kernel: share for kernel, share in state.table.routes[0].weights.items() if share}


def out(state):
    """Replicas that take no new request."""
    return {replica.name for replica in state.table.replicas if replica.drained}
