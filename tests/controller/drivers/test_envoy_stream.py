"""A gRPC client speaks Envoy's side here; `tests/system/test_driver_envoy.py` has the real one."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from fleets import ALL, GOLD, fleet_of, route
from google.protobuf import json_format

from paritas.clock import SystemClock
from paritas.controller.drivers.driver import Outcome
from paritas.controller.drivers.envoy import EnvoyDriver, EnvoySettings
from paritas.controller.drivers.envoy_stream import METHOD, TYPE_URL
from paritas.controller.routing.model import RouteKey
from paritas.errors import TransientError, UsageError
from paritas.proto.v1 import runtime_discovery_pb2 as pb

PATIENT = EnvoySettings("127.0.0.1:0", ack_s=60.0)
IMPATIENT = EnvoySettings("127.0.0.1:0", ack_s=0.05)


class Client:
    """One stream as Envoy holds it; `refuses` is what it says to every layer, "" to take it."""

    def __init__(self, call, refuses=""):
        self.call, self.refuses, self.layers, self.version = call, refuses, [], ""

    async def follow(self, node="gateway"):
        await self.call.write(pb.RuntimeRequest(node=pb.RuntimeNode(id=node), type_url=TYPE_URL))
        while (response := await self.call.read()) is not grpc.aio.EOF:
            await self.call.write(self.answer(response))

    def answer(self, response):
        layer = pb.RuntimeLayer.FromString(response.resources[0].value)
        self.layers.append(json_format.MessageToDict(layer.layer))
        request = pb.RuntimeRequest(type_url=TYPE_URL, response_nonce=response.nonce)
        if self.refuses:
            request.error_detail.message = self.refuses
        else:
            self.version = response.version_info
        request.version_info = self.version
        return request


@asynccontextmanager
async def following(driver, *, refuses="", node="gateway"):
    async with grpc.aio.insecure_channel(driver.target) as channel:
        stream = channel.stream_stream(
            METHOD, pb.RuntimeRequest.SerializeToString, pb.RuntimeResponse.FromString
        )
        client = Client(stream(), refuses)
        task = asyncio.create_task(client.follow(node))
        await driver.connected(timeout_s=60.0)
        yield client
        client.call.cancel()
        await asyncio.gather(task, return_exceptions=True)


def run(scene, settings=PATIENT):
    """Open a driver and play `scene` with it."""

    async def opened():
        async with EnvoyDriver(settings, fleet_of(), SystemClock()) as driver:
            return await scene(driver)

    return asyncio.run(opened())


async def applied_until(driver, state, holds):
    """Apply a state until all answered who will: how long that takes is the machine's to say."""
    async with asyncio.timeout(60):
        while not holds(applied := (await driver.apply([state]))[0]):
            pass
    return applied


def test_a_layer_counts_when_it_was_acknowledged():
    async def scene(driver):
        async with following(driver) as client:
            (applied,) = await driver.apply([route(inference=0.5)])
            return applied, await driver.observe(), client.layers[-1]

    applied, observed, layer = run(scene)
    assert (applied.outcome, applied.detail) == (Outcome.APPLIED, "held by gateway")
    assert observed.weights[ALL] == {"inference": 0.5, "reference": 0.5}
    assert layer["paritas.qwen3-8b.all.ref"] == 5_000.0


def test_the_newest_layer_waits_for_an_envoy_that_comes_later():
    async def scene(driver):
        (early,) = await driver.apply([route(inference=0.0)])
        async with following(driver) as client:
            late = await applied_until(
                driver, route(inference=0.0), lambda one: one.outcome is not Outcome.ACCEPTED
            )
            return early, late, client.layers

    early, late, layers = run(scene, IMPATIENT)
    assert (early.outcome, late.outcome) == (Outcome.FAILED, Outcome.APPLIED)
    assert early.detail.startswith("no Envoy is connected to 127.0.0.1:")
    assert len(layers) == 1, "equal routes are no new version"


def test_a_refusal_is_a_failure_with_envoys_own_words():
    async def scene(driver):
        async with following(driver, refuses="no such layer"):
            (applied,) = await driver.apply([route()])
            with pytest.raises(TransientError, match=r"^envoy: gateway refused: no such layer$"):
                await driver.observe()
            return applied

    applied = run(scene)
    assert (applied.outcome, applied.detail) == (Outcome.FAILED, "gateway refused: no such layer")


def test_one_of_two_that_says_nothing_keeps_it_from_being_applied():
    async def scene(driver):
        async with following(driver), grpc.aio.insecure_channel(driver.target) as channel:
            silent = channel.stream_stream(METHOD, pb.RuntimeRequest.SerializeToString, None)()
            await silent.write(pb.RuntimeRequest(node=pb.RuntimeNode(id="silent")))
            await silent.read()  # the empty-handed one is there: it was sent what there is
            said = "not yet acknowledged by silent"
            return await applied_until(driver, route(inference=0.25), lambda one: one.detail == said)

    async def with_a_first_layer(driver):
        await driver.apply([route()])
        return await scene(driver)

    assert run(with_a_first_layer, IMPATIENT).outcome is Outcome.ACCEPTED


def test_a_slice_without_a_header_is_unsupported_and_the_others_are_applied():
    async def scene(driver):
        async with following(driver):
            return await driver.apply([route(RouteKey("qwen3-8b", "lang=fr")), route(GOLD, inference=0.0)])

    strange, gold = run(scene)
    assert (strange.outcome, strange.detail) == (
        Outcome.UNSUPPORTED,
        "no header is declared for slice 'lang=fr'",
    )
    assert gold.outcome is Outcome.APPLIED


def test_an_address_in_use_is_one_clear_error(capfd):
    async def scene(driver):
        with pytest.raises(UsageError) as refused:
            async with EnvoyDriver(EnvoySettings(driver.target), fleet_of(), SystemClock()):
                pass
        return str(refused.value), f"envoy: cannot bind {driver.target!r}: Address already in use"

    said, expected = run(scene)
    assert said == expected
    assert capfd.readouterr().err == ""


def test_a_driver_closes_in_silence_under_an_envoy_that_follows(capfd):
    """Before handlers were waited for, two of three such ends printed gRPC's traceback."""

    async def closed_first():
        async with EnvoyDriver(PATIENT, fleet_of(), SystemClock()) as driver:
            channel = grpc.aio.insecure_channel(driver.target)
            stream = channel.stream_stream(METHOD, pb.RuntimeRequest.SerializeToString, None)()
            await stream.write(pb.RuntimeRequest())
            await driver.connected(timeout_s=60.0)
        await channel.close()

    for _ in range(20):
        asyncio.run(closed_first())
    assert "Traceback" not in capfd.readouterr().err
