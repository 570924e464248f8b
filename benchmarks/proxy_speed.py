"""What the proxy costs a request: the same answers straight, through it unobserved, and observed.

The upstream is a process of its own that replays an answer of 256 tokens, whole or as a stream of
256 events; no engine runs.  One client, one request at a time, median of many, all in one run.
The peer is the proxy itself with nothing to observe (``--share 0``): bytes in, bytes out.

Run: python benchmarks/proxy_speed.py
"""

import asyncio
import json
import multiprocessing
import statistics
import time

import aiohttp
from aiohttp import web

from paritas.clock import SystemClock
from paritas.collectors.emitter import Emitter
from paritas.collectors.openai.engines import Engine
from paritas.collectors.openai.proxy import Proxy, ProxySettings
from paritas.otlp_http import Target
from paritas.tokens import TokenHasher

TOKENS, REQUESTS = 256, 60


def choice(ids, **more):
    content = [{"token": f"token_id:{n}", "logprob": -0.5, "bytes": [97], "top_logprobs": []} for n in ids]
    return {
        "index": 0,
        "logprobs": {"content": content},
        "token_ids": list(ids),
        "finish_reason": None,
        **more,
    }


def answers():
    whole = choice(
        range(TOKENS), message={"role": "assistant", "content": "a" * TOKENS}, finish_reason="stop"
    )
    parts = [choice([n], delta={"content": "a"}) for n in range(TOKENS)]
    parts[-1]["finish_reason"] = "stop"
    events = [b"data: %s\n\n" % json.dumps({"id": "c", "choices": [one]}).encode() for one in parts]
    return json.dumps({"id": "c", "choices": [whole]}).encode(), [*events, b"data: [DONE]\n\n"]


def serve(port_into):
    whole, events = answers()

    async def answer(request):
        if not json.loads(await request.read()).get("stream"):
            return web.Response(body=whole, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(event)
        return response

    async def run():
        application = web.Application()
        application.router.add_post("/{path:.*}", answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port_into.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


def proxy(port, port_into, share):
    settings = ProxySettings(f"http://127.0.0.1:{port}", share=share, engine=Engine.VLLM)
    clock = SystemClock()

    async def run(emitter):
        runner = Proxy(settings, clock=clock, emitter=emitter, hasher=TokenHasher(bytes(16))).runner()
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port_into.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    with Emitter(Target(host="127.0.0.1", port=1), clock=clock) as emitter:  # nobody listens there
        asyncio.run(run(emitter))


def started(work, *arguments):
    out, into = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=work, args=(*arguments, into), daemon=True)
    process.start()
    return process, out.recv()


def start_proxy(port, share):
    out, into = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=proxy, args=(port, into, share), daemon=True
    )
    process.start()
    return process, out.recv()


async def milliseconds(ports, asked):
    """Median of each port, asked in turns."""
    spent = {name: [] for name in ports}
    async with aiohttp.ClientSession() as session:
        for _ in range(REQUESTS):
            for name, port in ports.items():
                began = time.perf_counter_ns()
                async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=asked) as answer:
                    await answer.read()
                spent[name].append((time.perf_counter_ns() - began) / 1e6)
    return {name: statistics.median(values) for name, values in spent.items()}


def main():
    upstream, port = started(serve)
    plain, plain_port = start_proxy(port, 0.0)
    observing, observing_port = start_proxy(port, 1.0)
    ports = {"straight": port, "unobserved": plain_port, "observed": observing_port}
    print(f"milliseconds a request of {TOKENS} tokens, median of {REQUESTS}")
    for name, asked in (("one document", {"messages": []}), ("a stream", {"messages": [], "stream": True})):
        told = asyncio.run(milliseconds(ports, asked))
        cells = "  ".join(f"{one} {value:7.2f}" for one, value in told.items())
        extra_us = (told["observed"] - told["unobserved"]) / TOKENS * 1000
        print(f"  {name:13} {cells}   observing: {extra_us:5.1f} µs a token")
    for process in (upstream, plain, observing):
        process.terminate()
        process.join()


if __name__ == "__main__":
    main()
