"""Records a second of `paritas detect`: one process, and Flink at parallelism 1 and 2, on the same topic.

Steady state: the time that a longer topic takes beyond a shorter one, so that starting does not count.
A real broker and a real cluster of two task managers run on this machine; each record is one kernel's view
of one sequence of the shipped recordings.

Run: python benchmarks/flink_speed.py [--records 20000] [--flink KEY=VALUE] [--json]
"""

import argparse
import json
import sys
import tempfile
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kafka import KafkaProducer
from system.flink_cluster import FlinkCluster
from system.flink_job import Job
from system.flink_setup import fetch
from system.kafka_broker import KafkaBroker
from system.kafka_topics import CLOCK
from system.recorded_records import recorded_traces, records_of

from paritas.agent.eventlog import Cursor
from paritas.agent.eventlog.kafka_reader import KafkaReader
from paritas.agent.eventlog.kafka_settings import KafkaSettings, TopicSettings
from paritas.agent.eventlog.kafka_topic import ensure_topic
from paritas.commands.detecting import DetectionLoop, LoopSettings
from paritas.contracts.load import load_named

PARTITIONS, STEP_NS = 4, 10**12
CONTRACT = load_named("dense-bf16")
SHORT_SHARE = 0.25


def fill(bootstrap, name, records):
    """A topic of so many records, runs of 96 one after the other; returns (settings, bytes)."""
    settings, size_bytes = KafkaSettings((bootstrap,), topic=name), 0
    ensure_topic(settings, TopicSettings(partitions=PARTITIONS))
    with closing(KafkaProducer(bootstrap_servers=bootstrap, acks="all")) as producer:
        for run in range(records // 96):
            traces = list(recorded_traces("healthy", base_ns=10**18 + run * STEP_NS))
            both = [
                replace(t, run_id=str(run))
                for pair in zip(traces[:48], traces[48:], strict=True)
                for t in pair
            ]
            for record in records_of(both):
                stamped = [(k, v if k != "paritas-epoch" else b"%d" % (run + 1)) for k, v in record.headers]
                producer.send(name, record.value, key=record.key, headers=stamped)
                size_bytes += len(record.value)
        producer.flush(timeout=120)
    return settings, size_bytes


def one_process_s(settings, folder):
    """Seconds that one process takes."""
    start_ns = CLOCK.monotonic_ns()
    with KafkaReader(settings, clock=CLOCK) as reader:
        options = LoopSettings(to_end=True)
        cursor = Cursor(folder / f"{settings.topic}.state")
        with DetectionLoop(CONTRACT, reader, cursor, publish=len, clock=CLOCK, settings=options) as loop:
            loop.run(threading.Event())
    return (CLOCK.monotonic_ns() - start_ns) / 1e9


def flink_s(cluster, settings, folder, parallelism, further=()):
    """Seconds that the job takes; `further` are words of the command."""
    place = folder / f"{settings.topic}-{parallelism}"
    place.mkdir()
    start_ns = CLOCK.monotonic_ns()
    Job(
        cluster, settings, place, f"{settings.topic}-{parallelism}", parallelism=parallelism, further=further
    ).end()
    return (CLOCK.monotonic_ns() - start_ns) / 1e9


def measure(records, further=()):
    """Records a second by engine."""
    fetch()
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        (folder / "flink").mkdir()
        with KafkaBroker(folder / "kafka") as broker, FlinkCluster(folder / "flink") as cluster:
            short, _ = fill(broker.bootstrap, "short", round(records * SHORT_SHARE))
            long, size_bytes = fill(broker.bootstrap, "long", records)
            more = records - round(records * SHORT_SHARE)
            engines = {"one process": lambda topic: one_process_s(topic, folder)}
            for n in (1, 2):
                engines[f"Flink, parallelism {n}"] = lambda topic, n=n: flink_s(
                    cluster, topic, folder, n, further
                )
            rates = {name: more / (engine(long) - engine(short)) for name, engine in engines.items()}
    return {"record_bytes": size_bytes / records, "records_per_s": rates}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--flink", metavar="KEY=VALUE", action="append", default=[], help="a setting of Flink"
    )
    arguments = parser.parse_args()
    further = [word for setting in arguments.flink for word in ("--flink", setting)]
    found = measure(arguments.records, further)
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"records of {found['record_bytes']:.0f} bytes")
    for name, rate in found["records_per_s"].items():
        print(f"{name:24} {rate:8.0f} records/s")


if __name__ == "__main__":
    main()
