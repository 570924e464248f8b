"""`paritas detect --engine flink` as a user starts it, on a cluster of the tests."""

import os
import subprocess
from dataclasses import replace

from system.control_process import Command
from system.flink_setup import JAR_WORDS, ROOT, VENV
from system.kafka_topics import read_topic, wait_for_ends_of_transactions

from paritas.agent.eventlog.kafka_settings import TopicSettings
from paritas.agent.eventlog.kafka_topic import ensure_topic
from paritas.controller.topic import escalation_from

DEADLINE_S = 240


class Job:
    """`paritas detect --engine flink` as a user starts it, on the cluster."""

    def __init__(self, cluster, spans, folder, name, *, parallelism, further=()):
        self.out = folder / "verdicts"
        self.escalations = replace(spans, topic=f"escalations-{name}")
        ensure_topic(self.escalations, TopicSettings(partitions=1))
        options = {
            "--kafka": spans.bootstrap[0],
            "--topic": spans.topic,
            "--escalations": self.escalations.topic,
            "--contract": "dense-bf16",
            "--deployment": "d",
            "--parallelism": str(parallelism),
            "--checkpoint-s": "0.5",
            "--verdicts": str(self.out),
        }
        words = [*JAR_WORDS, *(word for option in options.items() for word in option)]
        for setting in cluster.settings.items():
            words += ["--flink", "=".join(setting)]
        words += further
        command = [str(VENV / "bin/paritas"), "detect", "--engine", "flink", "--to-end"]
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *words],
                cwd=ROOT,
                env=environment(),
                stdout=log,
                stderr=log,
            )

    def end(self):
        """Wait for the end; returns (escalations, verdicts)."""
        try:
            code = self.process.wait(timeout=DEADLINE_S)
        finally:
            self.process.kill()
        assert code == 0, self.log.read_text()[-4000:]
        wait_for_ends_of_transactions(self.escalations)
        records, _ = read_topic(self.escalations)
        lines = [line for part in self.out.rglob("part-*") for line in part.read_text().splitlines()]
        assert len(lines) == 1
        return [escalation_from(record.value) for record in records], lines[0]


class LiveJob(Command):
    """The same command without an end; `Command` starts, reads and ends it."""

    def __init__(self, cluster, *words, parallelism=2):
        further = [word for setting in cluster.settings.items() for word in ("--flink", "=".join(setting))]
        super().__init__(
            *("detect", "--engine", "flink", "--parallelism", str(parallelism), "--checkpoint-s", "1"),
            *(*JAR_WORDS, *map(str, words), *further),
            program=VENV / "bin/paritas",
            env=environment(),
        )


def environment():
    """Flink's tools come first."""
    return os.environ | {"PATH": f"{VENV / 'bin'}:{os.environ['PATH']}"}


def running_job(cluster):
    jobs = cluster.get("/jobs/overview").get("jobs", ())
    return next((job["jid"] for job in jobs if job["state"] == "RUNNING"), None)


def saved_bytes(cluster, name):
    """Size of the last checkpoint: how much it knows."""
    last = cluster.get(f"/jobs/{name}/checkpoints").get("latest", {}).get("completed")
    return last["state_size"] if last else 0
