"""kill -9 in mid-stream, twice: nothing that was accepted is lost, doubled or out of order."""

import threading

import pytest
from escalation_examples import deadline, escalation
from killed_process import KilledProcess

from paritas.controller.backoff import Backoff
from paritas.controller.client import DeliveryKind, EscalationClient

SERVER = """
import sys
from pathlib import Path
from paritas.controller.config import ServerConfig
from paritas.controller.server import serving
with serving(ServerConfig(database=Path(sys.argv[1]), listen=sys.argv[2], heartbeat_s=0.1)) as target:
    print(target, flush=True)
    sys.stdin.read()
"""
TOTAL = 400
KILL_AT = {100, 250}
PATIENT = Backoff(first_s=0.01, most_s=0.1, tries=10_000)


def started(folder, listen):
    return KilledProcess(SERVER, folder / "log.db", listen, listen=listen)


def publish_all(listen, failed):
    """Publish one after the other, each until it is accepted, whatever happens to the server."""
    try:
        with EscalationClient(listen, backoff=PATIENT) as client:
            for number in range(1, TOTAL + 1):
                client.publish([escalation(number)])
    except Exception as error:  # noqa: BLE001  # the thread's top: shown by the test
        failed.append(error)


@pytest.mark.slow
def test_a_subscriber_ends_with_the_same_ordered_events(tmp_path):
    listen = f"unix:{tmp_path}/c.sock"
    server = started(tmp_path, listen)
    received, failed = [], []
    with EscalationClient(listen, backoff=PATIENT) as client, client.subscribe("router") as stream:
        publisher = threading.Thread(target=publish_all, args=(listen, failed))
        with deadline(stream.close, seconds=100):
            for delivery in stream:
                if delivery.kind is DeliveryKind.SNAPSHOT_END:
                    publisher.start()
                if delivery.kind is DeliveryKind.ESCALATION:
                    received.append(delivery.event_id)
                    stream.ack(delivery)
                    if len(received) in KILL_AT:
                        server.kill()
                        server = started(tmp_path, listen)
                if len(received) == TOTAL:
                    break
        publisher.join()
        logged = [event.event_id for event in client.history("incident-1").transitions]
    server.stop()
    assert failed == []
    assert received == [f"incident-1/{n}" for n in range(1, TOTAL + 1)]
    assert logged == received
    assert stream.connections >= 3
