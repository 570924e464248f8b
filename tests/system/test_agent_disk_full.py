"""A real volume that is full: the agent goes on in memory, says so, and comes back by itself."""

import os
from contextlib import contextmanager
from random import Random

import pytest
from system.agent_faults import Load
from system.agent_process import AgentProcess, until
from system.fault_places import EmbeddedPlace, arrived
from system.fault_volume import volume

from paritas.wire.sender import Sender

SMALL = 600_000  # bytes of the spool once what was delivered is deleted
FEW = 51  # records: they fit beside it, however late they are delivered
# More fill the disk; those that come while that is being noticed must not fill the memory too.
MANY = 600
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small volume needs root")


@contextmanager
def small_volume(path):
    """A volume of few bytes, or a skip that says why there is none."""
    with volume(path, size="2m") as why_not:
        if why_not:
            pytest.skip(f"cannot mount a tmpfs: {why_not}")
        yield path


def sent(load, agent, condition, what):
    """Load the agent until a scrape fulfils a condition."""
    with load.running():
        until(lambda: condition(agent.metrics()), what)


@NEEDS_ROOT
def test_a_full_disk_costs_nothing_that_was_acknowledged(tmp_path):
    place = EmbeddedPlace(tmp_path / "log")
    with small_volume(tmp_path / "volume") as small:
        agent = AgentProcess(tmp_path, place, spool=small / "spool", extra="grace: 30s\n")
        load = Load(agent.socket, Random(1), hurry_until=MANY)
        try:
            with place.outage():
                agent.start()
                sent(load, agent, lambda told: told.all["memory_queue_bytes", ""] > 1e6, "the disk is full")
                assert agent.metrics().all["memory_only", ""] == 1
                troubles = lambda: set(agent.ready().removeprefix("not ready: ").split(", "))  # noqa: E731
                until(lambda: troubles() >= {"memory_only", "target_refuses"}, "both are said")
            told = agent.drained()
            until(lambda: agent.ready() == "ready", "the disk is used again")
            until(lambda: agent.metrics().all["spool_bytes", ""] < SMALL, "what was delivered is deleted")
            before = told.accepted
            with Sender(agent.socket) as sender:
                for _ in range(FEW):
                    load.send(sender)
            assert agent.metrics().accepted == before + FEW
            assert agent.metrics().all["memory_only", ""] == 0
            told = agent.drained()
            agent.stop()
        finally:
            agent.end()
    found = arrived(place)
    assert told.dropped == {}
    assert set(found.numbers) == load.acknowledged
    assert set(found.numbers.values()) == {1}
    assert told.accepted == len(found.bulk()) + len(found.in_memory())


@NEEDS_ROOT
def test_killed_with_a_full_disk_it_starts_again_and_keeps_what_was_on_disk(tmp_path):
    place = EmbeddedPlace(tmp_path / "log")
    with small_volume(tmp_path / "volume") as small:
        agent = AgentProcess(tmp_path, place, spool=small / "spool")
        load = Load(agent.socket, Random(2), hurry_until=MANY)
        try:
            with place.outage():
                agent.start()
                sent(load, agent, lambda told: told.all["memory_queue_bytes", ""] > 0, "the disk is full")
                on_disk = set(load.acknowledged)
                in_memory = agent.metrics().all["memory_queue_bytes", ""]
                agent.kill()
            agent.start()
            told = agent.drained()
            agent.stop()
        finally:
            agent.end()
    found = arrived(place)
    assert in_memory > 0
    assert len(found.numbers) > 50
    assert set(found.numbers) <= on_disk | set(range(load.tried))
    assert told.accepted == len(found.bulk()) + sum(told.dropped.values())
    assert told.dropped == {}
