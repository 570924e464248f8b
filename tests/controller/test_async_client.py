"""The client on an event loop, against a real server."""

import asyncio

import pytest
from escalation_examples import DEADLINE_S, config, escalation

from paritas.client import (
    AsyncEscalationClient,
    AsyncSubscription,
    RefusalError,
    StartAt,
    SubscriptionOptions,
)
from paritas.contracts.model import Operator, Requirement
from paritas.controller.server import serving
from paritas.errors import TransientError

SNAPSHOT = SubscriptionOptions(start=StartAt.SNAPSHOT)


def played(tmp_path, scene):
    """Play `scene` with a client of a server that is really there."""

    async def opened(target):
        async with asyncio.timeout(DEADLINE_S), AsyncEscalationClient(target) as client:
            return await scene(client)

    with serving(config(tmp_path)) as target:
        return asyncio.run(opened(target))


async def events(deliveries, count):
    """The ids of the next `count` transitions."""
    found = []
    async for delivery in deliveries:
        if delivery.escalation:
            found.append(delivery.event_id)
            deliveries.ack(delivery)
        if len(found) == count:
            return found
    return found


def test_what_is_published_is_delivered_in_order(tmp_path):
    async def scene(client):
        async with client.subscribe("x", SubscriptionOptions(start=StartAt.SNAPSHOT)) as deliveries:
            await anext(deliveries)
            await client.publish([escalation(n) for n in (1, 2, 3)])
            return await events(deliveries, 3)

    assert played(tmp_path, scene) == ["incident-1/1", "incident-1/2", "incident-1/3"]


def test_a_wait_that_is_cancelled_loses_nothing(tmp_path):
    async def scene(client):
        async with client.subscribe("x", SNAPSHOT) as deliveries:
            await anext(deliveries)  # the start of the snapshot
            await anext(deliveries)  # its end
            waiting = asyncio.create_task(anext(deliveries))
            await asyncio.sleep(0)  # it is waiting now
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await client.publish([escalation(1), escalation(2)])
            return await events(deliveries, 2)

    assert played(tmp_path, scene) == ["incident-1/1", "incident-1/2"]


def test_every_call_is_there(tmp_path):
    async def scene(client):
        matcher = Requirement("clause", Operator.IN, ("token-tv",))
        published = await client.publish([escalation()])
        incident = (await client.incidents())[0].current.incident_id
        await client.acknowledge(incident, author="ana")
        silence = await client.silence([matcher], author="ana", comment="swap", duration_s=60)
        before = await client.silences()
        await client.expire_silence(silence.silence_id, author="ana")
        history = await client.history(incident)
        with pytest.raises(RefusalError):
            await client.history("no such incident")
        return published.accepted, len(before), await client.silences(), len(history.acknowledgements)

    assert played(tmp_path, scene) == (1, 1, [], 1)


def test_a_server_that_is_away_is_an_error_worth_trying_again():
    async def scene():
        async with AsyncEscalationClient("127.0.0.1:1", timeout_s=0.5) as client:
            with pytest.raises(TransientError):
                await client.silences()

    asyncio.run(scene())


def test_leaving_ends_a_wait(tmp_path):
    async def scene(client):
        deliveries = client.subscribe("x", SNAPSHOT)
        async with deliveries:
            waiting = asyncio.create_task(events(deliveries, 99))
            await asyncio.sleep(0)
        return await waiting

    assert played(tmp_path, scene) == []


def test_leaving_leaves_the_loop_free_for_the_farewell():
    """A server on the same loop must be able to answer; this one stands for it, and waits without end for the loop."""

    async def scene():
        loop = asyncio.get_running_loop()

        class Farewell:
            def close(self):
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(DEADLINE_S)

        async with AsyncSubscription(Farewell()):
            pass

    asyncio.run(scene())
