"""Whoever stops a server waits for the handlers of its calls: a loop that closes before them prints tracebacks."""

import asyncio

import grpc
import pytest

from paritas.controller.calls import Calls

METHOD = "/test.Lingering/Stay"
STEPS = 50  # of the loop that a cancelled handler still takes


class Lingering:
    """A stream that stays until it is cancelled, and then takes some steps to end."""

    def __init__(self):
        self.entered, self.ended = asyncio.Event(), False

    async def stay(self, _requests, _context):
        try:
            self.entered.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(STEPS):
                await asyncio.sleep(0)
            self.ended = True

    def handler(self):
        method = grpc.stream_stream_rpc_method_handler(self.stay)
        return grpc.method_handlers_generic_handler("test.Lingering", {"Stay": method})


async def stopped_under_a_caller(*, grace_s):
    """Stop a server while somebody is still connected; return whether the handler has ended by then."""
    calls, lingering = Calls(), Lingering()
    server = grpc.aio.server(interceptors=(calls,))
    server.add_generic_rpc_handlers((lingering.handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream(METHOD)()
        await call.write(b"")
        await lingering.entered.wait()
        await calls.stop(server, grace_s)
        return lingering.ended


@pytest.mark.parametrize("grace_s", [0.0, 0.01])
def test_a_stopped_server_has_no_handler_left(grace_s, capfd):
    assert asyncio.run(stopped_under_a_caller(grace_s=grace_s))
    assert "Traceback" not in capfd.readouterr().err  # the client may tell that it was cut off


def test_a_server_without_a_call_stops_at_once():
    async def stopped():
        calls = Calls()
        server = grpc.aio.server(interceptors=(calls,))
        await server.start()
        await calls.stop(server, 60.0)

    asyncio.run(asyncio.wait_for(stopped(), 30.0))
