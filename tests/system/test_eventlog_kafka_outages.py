"""A real Kafka broker that is stopped, killed or frozen, a fork, and the bound on memory."""

import os
import threading
from contextlib import suppress
from dataclasses import replace

import pytest

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")

from system.kafka_topics import CLOCK, fresh_topic, numbered, origins, read_topic

from paritas.agent.eventlog.kafka_errors import KafkaProblem
from paritas.agent.eventlog.kafka_reader import KafkaReader
from paritas.agent.eventlog.kafka_shipper import KafkaShipper
from paritas.errors import TransientError
from paritas.wire import Origin


@pytest.fixture
def settings(serving_broker, request):
    """A new topic of two partitions."""
    return fresh_topic(serving_broker, request)


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.thorough), "kill"])
def test_nothing_is_lost_or_doubled_when_the_broker_goes_away(how, settings, serving_broker):
    """A broker that ends in the middle, and comes back: settled records are there, the rest is shipped again."""
    impatient = replace(settings, connect_timeout_s=1, request_timeout_s=1, delivery_timeout_s=2)
    acknowledged, faults, has_ended = 0, [], False
    with KafkaShipper(impatient) as shipper:
        ender = threading.Thread(target=getattr(serving_broker, how))
        while acknowledged < 400 or not has_ended:  # how long a broker takes to end is its own to say
            if acknowledged >= 100 and ender.ident is None:
                ender.start()
            numbers = range(acknowledged, max(400, acknowledged + 20))[:20]
            shipped = shipper.ship([numbered(n, size=20_000) for n in numbers])
            assert shipped.refused == {}
            acknowledged += shipped.settled
            if shipped.fault is not None:
                faults.append(shipped.fault.problem)
            if shipped.fault is not None and ender.ident is not None:
                ender.join()
                serving_broker.start()
                has_ended = True
    found = origins(read_topic(settings)[0])
    assert set(found) == {Origin("agent-1", 1, n) for n in range(acknowledged)}
    assert sum(found.values()) <= acknowledged + 20 * len(faults)


def test_a_frozen_broker_bounds_the_call_and_loses_nothing(settings, serving_broker):
    impatient = replace(settings, connect_timeout_s=1, request_timeout_s=1, delivery_timeout_s=2)
    with KafkaShipper(impatient) as shipper:
        while shipper.ship([numbered(0)]).settled < 1:  # a second may be short for the first of a new topic
            pass
        serving_broker.pause()
        try:
            shipped = shipper.ship([numbered(1), numbered(2)])
        finally:
            serving_broker.resume()
        assert (shipped.settled, shipped.fault.problem) == (0, KafkaProblem.TIMEOUT)
        while shipper.ship([numbered(1), numbered(2)]).settled < 2:
            pass
    assert set(origins(read_topic(settings)[0])) == {Origin("agent-1", 1, n) for n in range(3)}


def test_closing_ends_a_call_that_waits(settings, serving_broker):
    results = []
    with KafkaShipper(settings) as shipper:
        assert shipper.ship([numbered(0)]).acknowledged == 1
        serving_broker.pause()
        try:
            waiting = threading.Thread(target=lambda: results.append(shipper.ship([numbered(1)])))
            waiting.start()
            while not shipper._producing._session.producer._accumulator.has_incomplete:
                CLOCK.wait(threading.Event(), timeout_s=0.01)
            shipper.close(timeout_s=0)
            waiting.join(timeout=20)
        finally:
            serving_broker.resume()
    assert [(r.settled, r.fault.problem) for r in results] == [(0, KafkaProblem.CLOSED)]


def sweep(reader, offsets, seen):
    """One read of each partition, as the detectors do it."""
    for partition, offset in list(offsets.items()):
        batch = reader.read(partition, offset, limit=3)
        seen += [stored.record for stored in batch]
        offsets[partition] = batch.next_offset


def sweep_for_ever(reader, offsets, seen):
    while True:
        sweep(reader, offsets, seen)


def test_a_reader_goes_on_after_the_broker_came_back(settings, serving_broker):
    seen, offsets = [], {0: 0, 1: 0}
    with (
        KafkaShipper(settings) as shipper,
        KafkaReader(replace(settings, request_timeout_s=2), clock=CLOCK) as reader,
    ):
        assert shipper.ship([numbered(n) for n in range(20)]).acknowledged == 20
        sweep(reader, offsets, seen)
        serving_broker.kill()
        with pytest.raises(TransientError):  # what was fetched before is still given
            sweep_for_ever(reader, offsets, seen)
        serving_broker.start()
        done = 0
        while done < 20:
            done += shipper.ship([numbered(n) for n in range(20 + done, 40)]).settled
        while len(origins(seen)) < 40:
            with suppress(TransientError):  # a reader keeps its place until it is connected again
                sweep(reader, offsets, seen)
    found = origins(read_topic(settings)[0])  # a record shipped again may be there twice
    assert set(found) == set(origins(seen)) == {Origin("agent-1", 1, n) for n in range(40)}
    assert origins(seen) <= found


def test_a_forked_process_ships_with_a_producer_of_its_own(settings):
    with KafkaShipper(settings) as shipper:
        assert shipper.ship([numbered(0)]).acknowledged == 1
        child = os.fork()
        if child == 0:
            os._exit(shipper.ship([numbered(1)]).acknowledged)  # 1 is success here
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 1
        assert shipper.ship([numbered(2)]).acknowledged == 1
    assert set(origins(read_topic(settings)[0])) == {Origin("agent-1", 1, n) for n in range(3)}


def test_in_flight_bytes_are_bounded(settings):
    """Never more than the limit is handed to the library at once."""
    small = replace(settings, in_flight_bytes=100_000, record_limit_bytes=50_000)
    most = 0
    with KafkaShipper(small) as shipper:
        wait = shipper._producing.wait

        def measured(future):
            nonlocal most
            most = max(most, len(shipper._producing._session.producer._accumulator._incomplete.all()))
            return wait(future)

        shipper._producing.wait = measured
        assert shipper.ship([numbered(n, size=40_000) for n in range(30)]).acknowledged == 30
    assert 1 <= most <= 2
