"""`paritas topics`: make the two topics, or say how they are."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.agent.eventlog.kafka_settings import KafkaSettings, TopicSettings

__all__ = ["register"]

SPANS, ESCALATIONS = "otlp_spans", "paritas.escalations"


@dataclass(frozen=True, slots=True)
class _Found:
    """One topic after the command: how many partitions it has, and whether the command made it."""

    topic: str
    partitions: int
    made: bool

    def line(self) -> str:
        plural = "" if self.partitions == 1 else "s"
        return f"{self.topic}: {'made' if self.made else 'is there'}, {self.partitions} partition{plural}\n"


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "topics",
        help="make the Kafka topics of spans and escalations",
        description="Makes the topics that agents, detectors and the controller use, with explicit partitions and settings. "
        "A topic that is there is left as it is; neither agent nor detectors make one.",
    )
    parser.add_argument(
        "--kafka", metavar="WHERE", required=True, help="HOST:PORT,… or a file with a `kafka:` section"
    )
    parser.add_argument("--spans", metavar="TOPIC", default=SPANS, help=f"topic of spans (default: {SPANS})")
    parser.add_argument(
        "--escalations",
        metavar="TOPIC",
        default=ESCALATIONS,
        help=f"topic of escalations (default: {ESCALATIONS})",
    )
    parser.add_argument("--partitions", type=int, default=12, help="of the spans (default: 12)")
    parser.add_argument(
        "--replicas", type=int, default=3, help="copies of each partition (default: 3; 1 on one broker)"
    )
    parser.add_argument(
        "--retention", metavar="DURATION", default="3d", help="age at which spans go (default: 3d)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a topic")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make what is missing; return 0."""
    from paritas.commands.kafka_place import kafka_place

    for topic, settings in _wanted(arguments):
        found = _ensure(kafka_place(arguments.kafka, topic=topic), settings)
        sys.stdout.write(json.dumps(asdict(found)) + "\n" if arguments.json else found.line())
    return 0


def _wanted(arguments: argparse.Namespace) -> "list[tuple[str, TopicSettings]]":
    """Return each topic with its settings: escalations are few, ordered, and kept for long."""
    from paritas.agent.eventlog.kafka_settings import TopicSettings

    if arguments.replicas < 1:
        raise UsageError(f"--replicas is {arguments.replicas}, expected at least 1")
    copies = {
        "replication_factor": arguments.replicas,
        "min_insync_replicas": max(arguments.replicas - 1, 1),
    }
    retention_s = _seconds(arguments.retention)
    spans = TopicSettings(partitions=arguments.partitions, retention_s=retention_s, **copies)
    escalations = TopicSettings(partitions=1, retention_s=max(retention_s, 90 * 86_400.0), **copies)
    return [(arguments.spans, spans), (arguments.escalations, escalations)]


def _seconds(text: str) -> float:
    from paritas.contracts.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--retention {text!r} is no duration", hint="write 12h or 3d") from error


def _ensure(settings: "KafkaSettings", wanted: "TopicSettings") -> _Found:
    from paritas.agent.eventlog.kafka_errors import KafkaProblem, KafkaUsageError
    from paritas.agent.eventlog.kafka_topic import describe_topic, ensure_topic

    try:
        return _Found(settings.topic, describe_topic(settings).partitions, made=False)
    except KafkaUsageError as error:
        if error.problem is not KafkaProblem.NO_TOPIC:
            raise
    return _Found(settings.topic, ensure_topic(settings, wanted).partitions, made=True)
