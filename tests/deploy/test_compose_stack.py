"""The stack really runs: its commands as processes, a real broker, and a real Prometheus that scrapes them.

The producer sends healthy recordings, then some with a stale replica. Prometheus must be quiet in the first act and
alert in the second, every panel must have an answer, and every metric that is scraped must be one that is told of.
"""

import json
import re
import shutil
import sys
import tempfile
import urllib.parse
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from deploy.compose_processes import broker_properties, stack
from deploy.parts import why_not
from deploy.tools_setup import WEB, tool
from free_ports import free_port
from system.kafka_broker import KafkaBroker
from system.otel_parts import running, wait_until
from system.parts import why_not as why_no_part

from paritas.client import EscalationClient
from paritas.controller.config import TlsFiles

MISSING = why_no_part("kafka") or why_not("tools")
pytestmark = [pytest.mark.thorough, pytest.mark.skipif(bool(MISSING), reason=str(MISSING))]

ROOT = Path(__file__).parents[2]
BOARDS = ROOT / "deploy" / "grafana"
JOBS = {"agent": "paritas-agent", "controller": "paritas-controller", "detectors": "paritas-detectors"}
SEQUENCES = 48  # of one pass
PASSES = 15  # of one act, two seconds each: long enough to look into the healthy one
ACT_S = 300.0  # in which an act is over however busy the machine: its passes take longer then
# Nothing of this kind runs here, or happens in a stack that is well: their panels may be empty.
ABSENT = re.compile(
    r"paritas_((proxy|refit|roster|operator)_|control_(router_|route_changes|route_decisions|topic_))"
)
NEVER_HERE = re.compile(r"paritas_detect_records_(refused|skipped|lost)_total")


class Prometheus:
    """A running Prometheus, asked over its API."""

    def __init__(self, port):
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def get(self, path, **query):
        with urllib.request.urlopen(
            f"{self._url}{path}?{urllib.parse.urlencode(query)}", timeout=60
        ) as answer:
            return json.loads(answer.read())["data"]

    def query(self, expr):
        return self.get("query", query=expr)["result"]

    def alerts(self, *states):
        found = self.get("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in found if alert["state"] in states}


@contextmanager
def prometheus(folder, made):
    """Prometheus on the shipped configuration and rules: other addresses, and a second instead of fifteen."""
    told = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    told["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    told["rule_files"] = [str(ROOT / "deploy/prometheus/rules/*.yaml")]
    for job in told["scrape_configs"]:
        for group in job["static_configs"]:
            group["targets"] = [made.placed("prometheus", target) for target in group["targets"]]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(told))
    port = free_port()
    command = [
        tool("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.console.libraries={WEB}",
    ]
    with running(command, folder / "prometheus.log", environment={}, ports={}) as part:
        api = Prometheus(port)
        wait_until(lambda: is_up(api), "prometheus scrapes all three", alive=part)
        yield api


def is_up(api):
    try:
        return len(api.query("up == 1")) == len(JOBS)
    except OSError:
        return False


@pytest.fixture(scope="module")
def folder():
    path = Path(tempfile.mkdtemp(prefix="paritas-compose-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def broker(folder):
    with KafkaBroker(folder / "kafka", properties=broker_properties()) as made:
        yield made


@pytest.fixture(scope="module")
def made(folder, broker):
    with stack(
        folder,
        broker.bootstrap,
        without=["producer"],
        variables={"PASSES": str(PASSES)},
        edits={"--every=10s": "--every=2s"},
    ) as told:
        yield told


@pytest.fixture(scope="module")
def api(folder, made):
    """Prometheus, and then the producer: however long one takes to start, the other has not begun its acts."""
    with prometheus(folder, made) as told, ExitStack() as held:
        made.start(held, "producer")
        yield told


def judged(api):
    found = api.query('sum(paritas_detect_sequences_total{outcome="paired"})')
    return float(found[0]["value"][1]) if found else 0.0


def violated(api):
    """Clauses of which Prometheus fires an alert."""
    asked = 'ALERTS{alertname="ParitasClauseViolated",alertstate="firing"}'
    return {found["metric"]["clause"] for found in api.query(asked)}


def incidents(made):
    """Slices of every incident, as a person of the stack sees them: over TLS, with a token."""
    volume = made.volumes("detectors")["/etc/paritas/secrets"]
    tls = TlsFiles(None, None, volume / "tls.crt")
    target = f"localhost:{made.port('controller', 4320)}"
    with EscalationClient(target, tls=tls, token_file=volume / "people.token", timeout_s=60.0) as client:
        return {incident.current.slice for incident in client.incidents(include_closed=True)}


def panels():
    """Board, question and query of every panel."""
    boards = [json.loads(path.read_text()) for path in sorted((BOARDS / "dashboards").glob("*.json"))]
    return [
        (b["uid"], p["title"], t["expr"]) for b in boards for p in b["panels"] for t in p.get("targets", ())
    ]


def filled(expr):
    """A panel's query with its variables filled in, over a window that this stack has lived through."""
    expr = re.sub(r"\$(contract|agent|peer)\b", ".*", expr).replace("$__rate_interval", "15s")
    return re.sub(r"\[(5m|1h)\]", "[30s]", expr)


def unanswered(api):
    """Panels that say nothing of what this stack has lived through."""
    asked = (p for p in panels() if not ABSENT.search(p[2]) and not NEVER_HERE.search(p[2]))
    return [panel for panel in asked if not api.query(filled(panel[2]))]


@dataclass
class Walk:
    """What was seen on the way: healthy, at fault, and without its controller."""

    healthy: tuple = ()
    judged: float = 0.0
    fault: list = field(default_factory=list)
    slices: set = field(default_factory=set)
    empty: list = field(default_factory=list)
    names: list = field(default_factory=list)
    away: set = field(default_factory=set)


@pytest.fixture(scope="module")
def walk(api, made):
    """Let the acts pass; the controller is killed last."""
    seen = Walk()
    wait_until(lambda: judged(api) >= 3 * SEQUENCES, "three healthy passes are judged", deadline_s=ACT_S)
    seen.healthy, seen.judged = (api.alerts("firing"), api.alerts("pending")), judged(api)
    wait_until(lambda: {"mean-ratio", "ratio-tail"} <= violated(api), "the fault alerts", deadline_s=ACT_S)
    wait_until(lambda: "replica=r2" in incidents(made), "a person sees the replica")
    seen.fault, seen.slices = api.get("alerts")["alerts"], incidents(made)
    wait_until(lambda: api.query("paritas_control_incidents"), "the page shows the incidents")
    # A rate needs two scrapes of what the fault has begun; if one has none for good, its own test says which.
    with suppress(AssertionError):
        wait_until(lambda: not unanswered(api), "every panel has an answer")
    seen.empty = unanswered(api)
    seen.names = api.get("label/__name__/values")
    made.parts["controller"].process.kill()
    made.parts["controller"].process.wait()
    expected = {"ParitasControllerAway", "ParitasDown"}
    wait_until(lambda: expected <= api.alerts("pending", "firing"), "the controller's absence is seen")
    seen.away = api.alerts("pending", "firing")
    return seen


def test_the_healthy_act_is_quiet(walk):
    assert 3 * SEQUENCES <= walk.judged < PASSES * SEQUENCES, "the machine was too slow to look into this act"
    firing, pending = walk.healthy
    assert firing == set()
    # The first as long as every sample that was scraped is the same, the second until a clause has its first window,
    # the third after one scrape that took a second.
    assert pending <= {"ParitasNothingJudged", "ParitasNoData", "ParitasDown"}


def test_the_fault_alerts_and_says_where_to_look(walk):
    firing = [alert for alert in walk.fault if alert["state"] == "firing"]
    assert {alert["labels"]["alertname"] for alert in firing} == {"ParitasClauseViolated"}
    clauses = {alert["labels"]["clause"]: alert["annotations"]["summary"] for alert in firing}
    assert set(clauses) >= {"mean-ratio", "ratio-tail"}
    said = clauses["ratio-tail"]
    assert re.fullmatch(r"clause ratio-tail of contract demo is violated in \d+ slices", said), said


def test_a_person_of_the_stack_is_told_the_replica(walk):
    assert "replica=r2" in walk.slices
    assert not {"replica=r0", "replica=r1", "replica=r3"} & walk.slices


def test_every_panel_has_an_answer(walk):
    assert len(panels()) > 100
    assert walk.empty == []


def test_what_is_scraped_is_what_is_told_of(walk):
    sys.path.insert(0, str(BOARDS))
    try:
        from exported_metrics import metrics_in, registry
    finally:
        sys.path.remove(str(BOARDS))
    found = {n for name in walk.names for n in metrics_in(name) if n.startswith("paritas_")}
    expected = {name for name in registry() if not ABSENT.search(name) and not NEVER_HERE.search(name)}
    assert expected - found == set(), "told of, not exported"
    assert found - set(registry()) == set(), "exported, not told of"


def test_a_controller_that_goes_away_is_missed(walk):
    assert walk.away >= {"ParitasControllerAway", "ParitasDown"}
