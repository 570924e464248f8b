"""Health and numbers of a controller: judged, and of a real one."""

import threading
from dataclasses import replace

import pytest
from command_runs import run, until
from escalation_examples import config, escalation
from service_runs import asked, running, value

from paritas.agent.health import Health
from paritas.clock import ManualClock, SystemClock
from paritas.commands.control_health import (
    ControlNote,
    ControlReading,
    ControlTrouble,
    FeedReading,
    control_families,
    judge,
)
from paritas.commands.control_page import ControlWatch, serving_page
from paritas.commands.exposition import exposition
from paritas.controller import background
from paritas.controller.census import Census, Promotions
from paritas.controller.client import EscalationClient
from paritas.controller.server import EscalationServer
from paritas.controller.vitals import RouterVitals, Vitals
from paritas.errors import TransientError

NS = 1_000_000_000
WELL = Vitals(True, Census(0, 0, {}, Promotions()))


@pytest.mark.parametrize(
    ("reading", "at_s", "said", "is_alive"),
    [
        (ControlReading(None, 0, has_started=False), 1, "not ready: starting", True),
        (ControlReading(None, 0), 1, "not ready: starting", True),
        (ControlReading(WELL, 0), 30, "ready", True),
        (ControlReading(WELL, 0), 31, "not ready: stalled", True),
        (ControlReading(WELL, 0), 121, "not ready: stalled", False),
        (ControlReading(None, 0, has_started=False), 121, "not ready: starting", False),
        (ControlReading(WELL, 0, is_draining=True), 500, "not ready: draining", True),
        (ControlReading(replace(WELL, is_writable=False), 0), 1, "not ready: store_refuses_writes", True),
        (ControlReading(WELL, 31 * NS, feed=FeedReading(0, 0, 0, 0)), 31, "ready, but: topic_waits", True),
        (ControlReading(WELL, 0, fails=True), 1, "ready, but: routing_fails", True),
    ],
)
def test_each_trouble_is_named_and_only_what_concerns_callers_makes_it_unready(reading, at_s, said, is_alive):
    found = judge(reading, at_s * NS)
    assert (found.text(), found.is_alive) == (said, is_alive)


def test_a_router_that_does_not_answer_is_told_and_makes_nobody_stay_away():
    routers = (
        RouterVitals("p", "envoy", False, False, False, {"applied": 2, "failed": 1}, 1, {"decided": 3}),
    )
    reading = ControlReading(replace(WELL, routers=routers), 0)
    health = judge(reading, 1)
    assert (health.is_ready, health.text()) == (True, "ready, but: router_unreachable")
    page = exposition(control_families(reading, health, started_s=0.0))
    for line in (
        'paritas_control_degraded{reason="router_unreachable"} 1',
        'paritas_control_router_reachable{policy="p",driver="envoy"} 0',
        'paritas_control_route_changes_total{policy="p",driver="envoy",outcome="failed"} 1',
        'paritas_control_route_decisions_total{policy="p",dry_run="false",kind="decided"} 3',
        'paritas_control_route_decisions_total{policy="p",dry_run="false",kind="withheld"} 0',
    ):
        assert line in page.splitlines()


def test_every_reason_stands_on_the_page_from_the_start():
    starting = ControlReading(None, 0, has_started=False)
    page = exposition(control_families(starting, judge(starting, 1), started_s=1.5)).splitlines()
    for reason in ControlTrouble:
        expected = int(reason is ControlTrouble.STARTING)
        assert f'paritas_control_not_ready{{reason="{reason}"}} {expected}' in page
    for note in ControlNote:
        assert f'paritas_control_degraded{{reason="{note}"}} 0' in page
    assert "paritas_control_process_start_time_seconds 1.5" in page


def test_the_page_is_what_prometheus_reads():
    parser = pytest.importorskip("prometheus_client.parser")
    told = exposition(control_families(ControlReading(WELL, 0), Health(True, ()), started_s=0.0))
    families = {f.name: f for f in parser.text_string_to_metric_families(told)}
    assert families["paritas_control_open_incidents"].samples[0].labels == {"severity": "info"}
    assert all(f.documentation for f in families.values())


def test_a_server_that_hangs_is_seen_and_the_page_still_answers(tmp_path):
    clock, blocked = SystemClock(), threading.Event()  # a manual one would let the watch ask without a pause
    server = EscalationServer(config(tmp_path))
    assert server.vitals(timeout_s=0.0) is None
    with background.running(server, name="test"), serving_page("127.0.0.1:0", clock=clock) as (watch, page):
        assert asked(f"http://{page}/readyz") == (503, "not ready: starting\n")
        watch.follow(server)
        until(lambda: asked(f"http://{page}/readyz") == (200, "ready\n"))
        server._loop.call_soon_threadsafe(blocked.wait)
        try:
            assert server.vitals(timeout_s=0.01) is None
        finally:
            blocked.set()
        assert server.vitals(timeout_s=30.0) is not None
        watch.is_draining = True
        assert asked(f"http://{page}/readyz") == (503, "not ready: draining\n")
    assert server.vitals(timeout_s=0.0) is None


def test_a_watch_that_hears_nothing_for_long_says_stalled(tmp_path):
    class Silent:
        def vitals(self, *, timeout_s):
            del timeout_s

    clock, server = ManualClock(), EscalationServer(config(tmp_path))
    watch = ControlWatch(clock=clock)
    with background.running(server, name="test"):
        watch.follow(server)
        until(lambda: watch.reading().vitals or watch.look())
    watch._server = Silent()
    clock.advance(seconds=31)
    watch.look()
    assert watch.health().text() == "not ready: stalled"
    assert watch.health().is_alive
    clock.advance(seconds=100)
    assert not watch.health().is_alive


def test_a_log_that_cannot_be_read_is_said_once_and_the_watch_goes_on(caplog):
    class Broken:
        """Stands for a server whose disk fails: none does on demand."""

        def __init__(self):
            self.answers = [TransientError("locked"), TransientError("locked"), OSError("gone"), WELL]

        def vitals(self, *, timeout_s):
            del timeout_s
            told = self.answers.pop(0)
            if isinstance(told, Exception):
                raise told
            return told

    watch = ControlWatch(clock=ManualClock())
    watch.follow(Broken())
    for _ in range(3):
        watch.look()
    assert [record.detail for record in caplog.records] == ["locked", "gone"]
    assert watch.health().text() == "ready"


def test_a_real_controller_tells_what_it_counts(tmp_path):
    where = ("--data", tmp_path / "d", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0")
    with running("control", *where, until="escalations:") as service:
        base = service.word("health:").removesuffix("/readyz")
        target = service.word("escalations:")
        until(lambda: asked(f"{base}/readyz") == (200, "ready\n"))
        assert asked(f"{base}/healthz") == (200, "alive\n")
        assert asked(f"{base}/nothing")[0] == 404
        with EscalationClient(target) as client, client.subscribe("router-1") as deliveries:
            client.publish([escalation(), escalation()])
            next(iter(deliveries))
            shown = lambda: asked(f"{base}/metrics")[1]  # noqa: E731
            until(lambda: value(shown(), "paritas_control_events_total") == 1)
            page = shown()
            assert value(page, "paritas_control_duplicates_total") == 1
            assert value(page, "paritas_control_subscribers") == 1
            assert value(page, "paritas_control_log_head") == 1
            assert value(page, "paritas_control_disk_free_bytes") > 0
            severity = escalation().severity.value
            assert value(page, f'paritas_control_open_incidents{{severity="{severity}"}}') == 1
            assert f'severity="{severity}",state="open"}} 1' in page
            client.acknowledge(escalation().incident_id, author="ana")
            until(lambda: f'severity="{severity}",state="acknowledged"}} 1' in shown())
        until(lambda: 'streams_ended_total{reason="stopped"} 1' in shown())
        code, _, err, _ = service.end()
    assert (code, err) == (0, "")


def test_calls_of_strangers_are_counted(tmp_path):
    access = tmp_path / "access.jsonl"
    assert run("access", "add", "reader", "--file", access).returncode == 0
    where = ("--data", tmp_path / "d", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0")
    with running("control", *where, "--access", access, until="escalations:") as service:
        base, target = service.word("health:").removesuffix("/readyz"), service.word("escalations:")
        refused = run("incidents", "list", "--target", target)
        assert refused.returncode == 1
        told = 'paritas_control_turned_away_total{reason="unknown"} 1'
        until(lambda: told in asked(f"{base}/metrics")[1])


def test_an_address_that_is_taken_is_an_error(tmp_path):
    with serving_page("127.0.0.1:0", clock=SystemClock()) as (_, address):
        done = run("control", "--data", tmp_path / "d", "--listen", "127.0.0.1:0", "--health", address)
    assert (done.returncode, done.stdout) == (64, "")
    assert (
        done.stderr
        == f"[usage] {address}: cannot listen: Address already in use\n  hint: choose another port; 0 picks a free one\n"
    )
