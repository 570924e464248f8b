"""Five hundred subscribers: how soon each has an event, and whether anybody else notices.

A real controller in a process of its own; the subscribers are raw gRPC streams on one event loop, so
what is measured includes the time this process takes to read 500 messages.  Beside it, in the same
run: one subscriber alone, and unary calls with and without the crowd.

Run: python benchmarks/fanout.py [--subscribers 500] [--events 40] [--json]
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np

from paritas.controller.convert import escalation_to
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.proto.v1 import escalation_pb2_grpc as pb_grpc
from paritas.records import Action, Escalation, Phase, Reason, Severity, State, Verdict

GOAL_MS = 50.0
PAUSE_S = 0.2  # between events: escalations are rare; each is a burst of its own
SERVE = "import sys; from paritas.cli import main; sys.exit(main(sys.argv[1:]))"


@contextmanager
def controller(folder: Path):
    """Run `paritas control`; yields its address."""
    command = [sys.executable, "-c", SERVE, "control", "--listen", "127.0.0.1:0", "--data", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.wait(30)


def event(number: int) -> pb.Escalation:
    """One transition, about 500 bytes."""
    verdict = Verdict(
        clause="token-tv", slice="all", state=State.VIOLATED, reason=Reason.REFUTED, statistic="tv",
        family="numerical", estimate=0.031, lower=0.024, upper=0.04, limit=0.02, log10_e=4.5, log10_pass=-2.0,
        threshold_log10=3.1, units=800, tokens=400_000,
    )  # fmt: skip
    return escalation_to(
        Escalation(
            event_id=f"bench/{number}", incident_id=f"bench-{number}", transition=1, contract="qwen3-8b-rollout",
            contract_version="1.2.0", policy="qwen3-8b", clause="token-tv", slice="all", weights_version="17",
            before=Phase.PENDING, after=Phase.FIRING, severity=Severity.CRITICAL, level=0, verdict=verdict,
            diagnosis=(), actions=(Action("reroute", {"to": "reference", "share": 1.0}),), trace_ids=("ab" * 16,),
            issued_ns=1, valid_until_ns=2, summary="token-tv of slice all is violated",
        )
    )  # fmt: skip


class Crowd:
    """Streams that follow from now on, and when each of them had each event."""

    def __init__(self, stub, size: int, prefix: str) -> None:
        self._calls = [stub.Subscribe() for _ in range(size)]
        self._prefix, self._size, self.arrived, self._ready = prefix, size, {}, 0
        self._whole: dict[str, asyncio.Event] = {"created": asyncio.Event()}

    async def follow(self) -> None:
        """Read for ever."""
        await asyncio.gather(*(self._one(number, call) for number, call in enumerate(self._calls)))

    async def _one(self, number: int, call) -> None:
        start = pb.ClientMsg.Start(
            subscriber_id=f"{self._prefix}-{number}", protocol_version=1, now=pb.ClientMsg.Now()
        )
        await call.write(pb.ClientMsg(start=start))
        async for message in call:
            if message.HasField("event"):
                self._note(message.event.event_id)
            self._ready += message.HasField("created")
            if self._ready == self._size:
                self._whole["created"].set()

    def _note(self, event_id: str) -> None:
        times = self.arrived.setdefault(event_id, [])
        times.append(time.perf_counter())
        if len(times) == self._size:
            self._whole.setdefault(event_id, asyncio.Event()).set()

    async def whole(self, name: str = "created") -> None:
        """Wait until every stream has begun, or has the event `name`."""
        await self._whole.setdefault(name, asyncio.Event()).wait()

    def close(self) -> None:
        """End the streams."""
        for call in self._calls:
            call.cancel()


async def burst(stub, crowd: Crowd, numbers: Sequence[int]) -> np.ndarray:
    """Publish each event and wait until all have it; return latencies in ms, events x subscribers."""
    delays = []
    for number in numbers:
        sent = time.perf_counter()
        await stub.Publish(pb.PublishRequest(events=[event(number)]), timeout=30)
        await crowd.whole(f"bench/{number}")
        delays.append([1e3 * (t - sent) for t in crowd.arrived[f"bench/{number}"]])
        await asyncio.sleep(PAUSE_S)
    return np.asarray(delays)


async def unary(stub, stop: asyncio.Event) -> np.ndarray:
    """Call List again and again until `stop`; return latencies in ms."""
    delays = []
    while not stop.is_set():
        started = time.perf_counter()
        await stub.List(pb.ListIncidentsRequest(page_size=1), timeout=30)
        delays.append(1e3 * (time.perf_counter() - started))
        await asyncio.sleep(0.01)
    return np.asarray(delays)


async def measured(target: str, *, size: int, events: int, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Latencies of `events` events to `size` subscribers, and of unary calls meanwhile."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub = pb_grpc.EscalationServiceStub(channel)
        crowd = Crowd(stub, size, f"crowd-{size}-{first}")
        following = asyncio.ensure_future(crowd.follow())
        async with asyncio.timeout(120):
            await crowd.whole()
            stop = asyncio.Event()
            calls = asyncio.ensure_future(unary(stub, stop))
            delays = await burst(stub, crowd, range(first, first + events))
            stop.set()
            found = delays, await calls
        crowd.close()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        return found


@contextmanager
def deaf(target: str):
    """A subscriber that says Start and never reads, from a channel of its own."""
    with grpc.insecure_channel(target) as channel:
        start = pb.ClientMsg.Start(subscriber_id="deaf", protocol_version=1, now=pb.ClientMsg.Now())
        call = pb_grpc.EscalationServiceStub(channel).Subscribe(iter([pb.ClientMsg(start=start)]))
        try:
            yield call
        finally:
            call.cancel()


def figures(delays: np.ndarray) -> dict[str, float]:
    """Median and 99th percentile in ms."""
    return {"p50_ms": float(np.quantile(delays, 0.5)), "p99_ms": float(np.quantile(delays, 0.99))}


def run(size: int, events: int) -> dict[str, dict[str, float]]:
    """Measure alone, the crowd, and the crowd beside one that never reads."""
    with tempfile.TemporaryDirectory() as folder, controller(Path(folder)) as target:
        alone, quiet = asyncio.run(measured(target, size=1, events=events, first=0))
        crowd, busy = asyncio.run(measured(target, size=size, events=events, first=events))
        with deaf(target):
            beside, _ = asyncio.run(measured(target, size=size, events=events, first=2 * events))
    return {
        "one subscriber": figures(alone),
        f"{size} subscribers": figures(crowd),
        f"{size} and one that never reads": figures(beside),
        "List, one subscriber": figures(quiet),
        f"List, {size} subscribers": figures(busy),
    }


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscribers", type=int, default=500)
    parser.add_argument("--events", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = run(asked.subscribers, asked.events)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    for name, row in found.items():
        print(f"{name:<36}{row['p50_ms']:8.1f} ms{row['p99_ms']:9.1f} ms")
    crowd = found[f"{asked.subscribers} subscribers"]["p99_ms"]
    print(f"p99 of {asked.subscribers}: goal {GOAL_MS:g} ms {'held' if crowd <= GOAL_MS else 'missed'}")


if __name__ == "__main__":
    main()
