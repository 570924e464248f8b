"""The whole agent in one process: from a socket to an event log."""

import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import replace

import pytest
from agent_scenes import AGENT, DOWN, Place, recorded, requests_of
from command_runs import until

from paritas.agent.agent import Agent
from paritas.agent.config import (
    AgentConfig,
    EmbeddedTarget,
    HealthSettings,
    ReceiverSettings,
    ShippingSettings,
    SpoolSettings,
)
from paritas.agent.eventlog import EmbeddedReader
from paritas.agent.reload import FileWatch
from paritas.agent.retry import Backoff
from paritas.clock import SystemClock
from paritas.errors import UsageError
from paritas.wire import WireRecord, origin_of
from paritas.wire.sender import Sender

ONE = bytes([1]) * 16


def config(path, **changes):
    told = AgentConfig(
        AGENT,
        SpoolSettings(path / "spool"),
        EmbeddedTarget(path / "log", partitions=2),
        ReceiverSettings(unix_path=path / "s"),
        ShippingSettings(backoff=Backoff(0.01, 0.05)),
        HealthSettings("127.0.0.1:0", stall_s=0.2, report_s=0.0),
        grace_s=60.0,
    )
    return replace(told, **changes)


@contextmanager
def running(told, **options):
    with Agent(told, clock=SystemClock(), **options) as agent:
        yield agent


def send(path, *bodies):
    with Sender(path / "s") as sender:
        for body in bodies:
            sender.send(WireRecord(b"", body))


def get(agent, path):
    try:
        with urllib.request.urlopen(f"http://{agent.addresses.health}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def records(path):
    with EmbeddedReader(path / "log") as log:
        return [stored.record for n in range(2) for stored in log.read(n, 0, limit=1000)]


def test_what_comes_in_is_in_the_log_after_the_drain(tmp_path):
    with running(config(tmp_path)) as agent:
        send(tmp_path, *recorded())
        agent.drain()
        told = agent.spool.counters().records
    assert (told.accepted, told.delivered, told.queued) == (8, 8, 0)
    found = records(tmp_path)
    assert sorted(origin_of(record.headers).seq for record in found) == list(range(8))
    assert sum(len(record.value) for record in found) > sum(map(len, recorded())) / 2


def test_health_and_metrics_are_served(tmp_path):
    with running(config(tmp_path)) as agent:
        assert get(agent, "/healthz") == (200, "alive\n")
        assert get(agent, "/readyz") == (200, "ready\n")
        assert "paritas_agent_records_accepted_total 0\n" in get(agent, "/metrics")[1]
        assert get(agent, "/")[0] == 404


def test_alive_but_not_shipping_is_not_ready(tmp_path):
    place = Place(failing=DOWN)
    with running(config(tmp_path), opener=lambda *_, **__: place) as agent:
        send(tmp_path, requests_of(ONE))
        until(lambda: get(agent, "/readyz") == (503, "not ready: not_shipping\n"))
        assert get(agent, "/healthz")[0] == 200
        place.failing = None
        until(lambda: get(agent, "/readyz") == (200, "ready\n"))


def test_the_drain_ends_within_the_grace_and_leaves_the_rest_on_disk(tmp_path):
    place = Place(failing=DOWN)
    with running(config(tmp_path, grace_s=0.2), opener=lambda *_, **__: place) as agent:
        send(tmp_path, requests_of(ONE))
        stop = threading.Event()
        stop.set()
        agent.run(stop)
        assert agent.spool.counters().records.queued == 1
    with running(config(tmp_path)) as agent:
        agent.drain()
    assert [origin_of(record.headers).seq for record in records(tmp_path)] == [0]


class Hanging(Place):
    """A destination that answers only when it is closed."""

    def __init__(self):
        super().__init__()
        self.release = threading.Event()

    def ship(self, records):
        self.release.wait(30)
        self.failing = DOWN
        return super().ship(records)

    def close(self):
        self.release.set()


def test_a_destination_that_hangs_does_not_keep_the_agent_from_ending(tmp_path):
    place = Hanging()
    with running(config(tmp_path, grace_s=0.1), opener=lambda *_, **__: place) as agent:
        send(tmp_path, requests_of(ONE))
        agent.drain()
    assert agent.spool.counters().records.queued == 1


def test_an_unexpected_error_is_counted_and_survived(tmp_path):
    calls = []

    def opener(*_, **__):
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError
        return Place()

    with running(config(tmp_path), opener=opener) as agent:
        send(tmp_path, requests_of(ONE))
        until(lambda: agent.spool.counters().records.delivered == 1)
        assert agent.crashes == 1


def test_a_new_configuration_moves_the_stream_to_another_destination(tmp_path):
    with running(config(tmp_path)) as agent:
        send(tmp_path, requests_of(ONE))
        until(lambda: agent.spool.counters().records.delivered == 1)
        other = EmbeddedTarget(tmp_path / "other", partitions=1)
        assert agent.reconfigure(lambda: config(tmp_path, target=other)) is None
        until(lambda: agent.config.target == other)
        send(tmp_path, requests_of(ONE))
        until(lambda: agent.spool.counters().records.delivered == 2)
    with EmbeddedReader(tmp_path / "other") as log:
        assert len(log.read(0, 0, limit=9)) == 1


def test_a_bad_configuration_leaves_the_old_one(tmp_path):
    def broken():
        raise UsageError("agent.yaml:1:1: nonsense")

    with running(config(tmp_path)) as agent:
        before = agent.config
        assert str(agent.reconfigure(broken)) == "agent.yaml:1:1: nonsense"
        moved = config(tmp_path, name="pod-8", spool=SpoolSettings(tmp_path / "elsewhere"))
        error = agent.reconfigure(lambda: moved)
        assert str(error) == "name, spool.path cannot change while the agent runs"
        assert (
            error.hint
            == "restart the agent, or put the old value back; until then the old configuration holds"
        )
        assert (agent.config, agent.reloads) == (before, {"refused": 2})


def test_it_tells_the_destination_how_it_is(tmp_path):
    place = Place()
    told = config(tmp_path, health=HealthSettings("", report_s=60.0))
    with running(told, opener=lambda *_, **__: place) as agent:
        agent.tick()
        until(lambda: place.records)
    assert b"paritas.agent.health" in place.records[0].value


def test_a_file_that_is_replaced_is_noticed_and_one_that_is_gone_is_not(tmp_path):
    path = tmp_path / "agent.yaml"
    path.write_text("a")
    watch = FileWatch(path)
    assert not watch.has_changed()
    path.unlink()
    assert not watch.has_changed()
    path.write_text("ab")
    assert watch.has_changed()
    assert not watch.has_changed()


@pytest.mark.parametrize(
    ("receivers", "text"),
    [
        (ReceiverSettings(), "no receiver: nothing could come in"),
        (
            ReceiverSettings(http_listen="0.0.0.0:4318"),
            "0.0.0.0:4318: spans are taken on loopback addresses only",
        ),
        (ReceiverSettings(grpc_listen="host:1"), "host:1: spans are taken on loopback addresses only"),
        (ReceiverSettings(grpc_listen="4317"), "'4317' is not HOST:PORT"),
    ],
)
def test_a_configuration_checks_what_its_shape_cannot_say(tmp_path, receivers, text):
    with pytest.raises(UsageError) as raised:
        config(tmp_path, receivers=receivers)
    assert str(raised.value) == text
