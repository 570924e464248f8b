"""The real Kafka broker inside a pod's network, that containers and tests both reach."""

import os
import socket
import subprocess
from contextlib import closing

from kafka.errors import KafkaError
from system.kafka_broker import KAFKA_SH
from system.otel_parts import wait_until

from paritas.agent.eventlog.kafka_client import open_admin
from paritas.agent.eventlog.kafka_reader import KafkaReader
from paritas.agent.eventlog.kafka_settings import KafkaSettings
from paritas.clock import SystemClock
from paritas.errors import ParitasError

PORT, QUORUM_PORT = 9092, 9093
STOP_S = 30


class PodKafka:
    """One broker; a context manager.

    Parameters
    ----------
    pod : Pod
    folder : Path
        For its data and what it says.
    """

    def __init__(self, pod, folder):
        self._pod, self._folder = pod, folder
        self.bootstrap = f"{pod.ip}:{PORT}"

    def __enter__(self):
        self._folder.mkdir()
        serves = f"PLAINTEXT://{self.bootstrap}"
        told = [f"listeners={serves},CONTROLLER://127.0.0.1:{QUORUM_PORT}", f"advertised.listeners={serves}"]
        further = self._folder / "further.properties"
        further.write_text("\n".join(told) + "\n")
        names = {"KAFKA_PORT": PORT, "KAFKA_CONTROLLER_PORT": QUORUM_PORT, "KAFKA_PROPERTIES": further}
        names |= {"KAFKA_DATA": self._folder / "data", "KAFKA_LOGS": self._folder}
        names |= {"KAFKA_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        with (self._folder / "kafka.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self._pod.name, KAFKA_SH, "run"],
                env=os.environ | {name: str(value) for name, value in names.items()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def serves(self):
        """Whether it answers a client; it starts in the background."""
        try:
            socket.create_connection((self._pod.ip, PORT), timeout=1).close()
            with closing(open_admin(KafkaSettings((self.bootstrap,)))) as admin:
                return bool(admin.describe_cluster()["brokers"])
        except (ParitasError, KafkaError, OSError):
            return False

    def records(self, topic="otlp_spans"):
        """Return every record of a topic, once all of it can be read."""
        settings = KafkaSettings((self.bootstrap,), topic)
        found, reader = [], []

        def served():
            try:
                reader.append(KafkaReader(settings, clock=SystemClock()))
            except ParitasError:
                return False
            return True

        wait_until(served, "the topic can be read")
        with reader[0] as log:
            for partition, end in log.end_offsets().items():
                found += read_to(log, partition, log.start_offsets()[partition], end)
        return found


def read_to(log, partition, offset, end):
    """Return the records of one partition up to an end."""
    found, at = [], [offset]

    def done():
        batch = log.read(partition, at[0], limit=512)
        found.extend(stored.record for stored in batch.stored)
        at[0] = batch.next_offset
        return at[0] >= end

    wait_until(done, f"partition {partition} read to {end}")
    return found
