"""Our agent beside the OpenTelemetry Collector: the same requests over HTTP into the same real broker.

Both get the requests, one sequence each, over `SENDERS` connections and must have every record in the
topic, acknowledged by the broker, before the clock stops.  The sender is the same and not counted: what is
compared is the CPU time of the process between (all its threads) and its peak resident memory, read from
/proc.  The wall clock is printed too, but on a small machine broker and sender share it.

The agent writes its spool to disk on the way and survives a kill; the collector keeps its queue in memory.
Both compress with zstd and wait for all replicas.  The collector also carries the same columns in the two
encodings opentelemetry-python offers without packing (see sdk_encodings.py), fewer of them for time.

Both are also sent `PACE_PER_S` requests a second, at which neither is busy: there batching decides.

New processes each round, in turn, so that whatever else the machine does strikes all of them.  The table
holds each program's best round; a ratio is told for the best rounds, for the median round, and for the
worst and the best round, always of two programs in one round.  The agent runs as it is configured by
default, save for its addresses and a sync on an interval, which is the default too.  What encoding costs
the sender, in the same encodings, is printed first.

Run: python benchmarks/agent_vs_collector.py      (needs Java, Maven and Go; fetches and builds once)
"""

import http.client
import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic
from sdk_encodings import SEED, array_attribute, lines, span_a_token, tracer_and_spans
from sdk_encodings import measure as measure_encodings
from wire_speed import RESOURCE, traces

from paritas.wire import encode

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from system.kafka_broker import KafkaBroker
from system.otel_parts import OTEL, collector, free_port, running, wait_until

LENGTH = 1024  # tokens a sequence
ROUNDS = 5
RECORDS = 6000
UNPACKED_RECORDS = 120
PACED_RECORDS, PACE_PER_S = 2000, 500.0  # what a busy host sends, not what wears the program out
WARM_UP = 0.05  # of the requests come before the clock: Go grows its heap, Python imports
SENDERS = 4
PARTITIONS = 4
DEADLINE_S = 180.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Figures:
    """What one program took for the payload."""

    user_s: float
    system_s: float
    wall_s: float
    peak_mib: float
    sequences: int

    @property
    def cpu_s(self):
        return self.user_s + self.system_s

    @property
    def tokens_per_cpu_s(self):
        return self.sequences * LENGTH / self.cpu_s

    def line(self, name):
        return (
            f"{name:>26}: {self.tokens_per_cpu_s / 1e6:7.3f} M tokens/s a core, {self.cpu_s:5.2f} CPU s"
            f" (user {self.user_s:.2f}, system {self.system_s:.2f}) for {self.sequences} sequences, {self.sequences / self.wall_s:6.0f} a second, peak {self.peak_mib:4.0f} MiB"
        )


def cpu_s(pid):
    """Return the CPU time of a process and its threads, user and system, s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return np.array([int(fields[11]), int(fields[12])]) * TICK_S


def peak_mib(pid):
    """Return the most memory a process had resident, MiB."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def sequences(number, seed=SEED):
    """Return traces with a name each; the columns repeat after a while, only their bytes matter here."""
    batch = traces(np.random.default_rng(seed), LENGTH)
    return [replace(batch[index % len(batch)], sequence_id=f"sequence-{index}") for index in range(number)]


def packed():
    return [record.value for record in encode(sequences(RECORDS), resource=RESOURCE)]


def arrays():
    return array_attribute(*tracer_and_spans(), sequences(UNPACKED_RECORDS))


def spans_a_token():
    return span_a_token(*tracer_and_spans(), sequences(UNPACKED_RECORDS))


def paced():
    return packed()[:PACED_RECORDS]


def post_all(port, bodies, per_s=0.0):
    """Post the bodies over `SENDERS` connections, at most so many a second; every answer must be 200."""
    parts = [bodies[start::SENDERS] for start in range(SENDERS)]
    wrong = []
    threads = [threading.Thread(target=_post, args=(port, part, wrong, per_s / SENDERS)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]


def _post(port, bodies, wrong, per_s):
    never, start_s = threading.Event(), time.perf_counter()
    headers = {"Content-Type": "application/x-protobuf"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for number, body in enumerate(bodies):
            if per_s:
                never.wait(max(0.0, start_s + number / per_s - time.perf_counter()))
            connection.request("POST", "/v1/traces", body, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.client.OK:
                wrong.append((answer.status, answer.reason))


class Topic:
    """A new topic, and how many records it holds."""

    def __init__(self, bootstrap, name):
        self.name = name
        self._partitions = [TopicPartition(name, number) for number in range(PARTITIONS)]
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS, 1)])
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap)

    def records(self):
        return sum(self._consumer.end_offsets(self._partitions).values())

    def close(self):
        self._consumer.close()


def measure(part, topic, bodies, per_s=0.0):
    """Send warm-up and payload to the program and return what the payload took."""
    pid, first = part.process.pid, round(len(bodies) * WARM_UP)
    arrive(part, topic, bodies[:first], first)
    start_cpu_s, start_s = cpu_s(pid), time.perf_counter()
    arrive(part, topic, bodies[first:], len(bodies), per_s)
    wall_s = time.perf_counter() - start_s
    return Figures(*(cpu_s(pid) - start_cpu_s), wall_s, peak_mib(pid), len(bodies) - first)


def arrive(part, topic, bodies, wanted, per_s=0.0):
    """Post the bodies and wait until the broker holds `wanted` records."""
    post_all(part.ports["OTLP_HTTP_PORT"], bodies, per_s)
    wait_until(lambda: topic.records() >= wanted, f"{wanted} records", deadline_s=DEADLINE_S, alive=part)


@contextmanager
def the_collector(bootstrap, topic, folder):
    environment = {"KAFKA_BROKERS": bootstrap, "KAFKA_TOPIC": topic}
    with collector(OTEL / "gateway.yaml", folder / "collector.log", environment=environment) as part:
        yield part


AGENT = """name: bench
spool: {{path: {folder}/spool, sync: interval}}
receivers: {{http: {{listen: "127.0.0.1:{port}"}}}}
destination: {{kafka: {{bootstrap: ["{bootstrap}"], topic: {topic}, compression: zstd}}}}
health: {{listen: "127.0.0.1:{health}", report: 0s}}
"""


@contextmanager
def our_agent(bootstrap, topic, folder):
    ports = {"OTLP_HTTP_PORT": free_port(), "METRICS_PORT": free_port()}
    config = folder / "agent.yaml"
    config.write_text(
        AGENT.format(
            folder=folder,
            port=ports["OTLP_HTTP_PORT"],
            health=ports["METRICS_PORT"],
            bootstrap=bootstrap,
            topic=topic,
        )
    )
    command = [Path(sys.executable).with_name("paritas"), "agent", f"--config={config}"]
    with running(command, folder / "agent.log", environment={}, ports=ports) as part:
        wait_until(lambda: "\nready\n" in part.text(), "agent ready", alive=part)
        yield part


RUNS = {
    "agent": (our_agent, packed, 0.0),
    "collector": (the_collector, packed, 0.0),
    "agent, paced": (our_agent, paced, PACE_PER_S),
    "collector, paced": (the_collector, paced, PACE_PER_S),
    "collector, array attribute": (the_collector, arrays, 0.0),
    "collector, span a token": (the_collector, spans_a_token, 0.0),
}


def compare():
    """Return the figures of each run by round; every one has a new process and a new topic on one broker."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bootstrap = stack.enter_context(KafkaBroker(folder / "kafka")).bootstrap
        bodies = {payload: payload() for _, payload, _ in RUNS.values()}
        return [
            {
                name: _run(program, bodies[payload], bootstrap, folder, per_s)
                for name, (program, payload, per_s) in RUNS.items()
            }
            for _ in range(ROUNDS)
        ]


def _run(program, bodies, bootstrap, folder, per_s):
    with ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        topic = stack.enter_context(closing(Topic(bootstrap, own.name)))
        return measure(stack.enter_context(program(bootstrap, topic.name, own)), topic, bodies, per_s)


def ratio_line(name, rounds):
    """Say how many times the tokens of another run the agent carries for the same CPU time."""
    ours = "agent, paced" if name.endswith("paced") else "agent"
    best = _best(ours, rounds).tokens_per_cpu_s / _best(name, rounds).tokens_per_cpu_s
    each = sorted(found[ours].tokens_per_cpu_s / found[name].tokens_per_cpu_s for found in rounds)
    return f"agent x{best:.2f} {name} (median x{median(each):.2f}, rounds x{each[0]:.2f} to x{each[-1]:.2f})"


def _best(name, rounds):
    return min((found[name] for found in rounds), key=lambda figures: figures.cpu_s)


def main():
    print(f"encoding, seed {SEED}:", *lines(measure_encodings()), sep="\n")
    rounds = compare()
    print(f"end to end, seed {SEED}, best of {ROUNDS} rounds:")
    print(*(_best(name, rounds).line(name) for name in RUNS), sep="\n")
    print(*(ratio_line(name, rounds) for name in RUNS if "collector" in name), sep="\n")


if __name__ == "__main__":
    main()
