"""`paritas control`: keep and stream escalations; take them over gRPC, and from Kafka too."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.places import DataFolder, Running, default_folder
from paritas.errors import TransientError

if TYPE_CHECKING:
    from paritas.commands.escalation_feed import EscalationFeed, OpenReader

__all__ = ["register"]


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "control",
        help="keep and stream escalations",
        description="Serves the escalation log over gRPC. Detectors publish to it; those on Flink write to a topic, which it reads.",
    )
    parser.add_argument("--listen", default="127.0.0.1:4320", help="gRPC address (default: 127.0.0.1:4320)")
    parser.add_argument(
        "--data", type=Path, help="folder for the log (default: PARITAS_DATA or the state folder)"
    )
    parser.add_argument(
        "--escalations-from",
        "--kafka",
        dest="escalations_from",
        metavar="WHERE",
        help="also read escalations from these Kafka brokers: HOST:PORT, separated by commas; or a YAML file with "
        "the `kafka:` section of an agent's destination, for TLS and SASL",
    )
    parser.add_argument(
        "--escalations",
        metavar="TOPIC",
        default="paritas.escalations",
        help="their topic (default: paritas.escalations)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return 0."""
    from paritas.clock import SystemClock
    from paritas.commands.up import stop_signals

    clock = SystemClock()
    with stop_signals() as stop, _serving(arguments) as (target, feed):
        sys.stdout.write(f"escalations: {target} (gRPC)\n")
        sys.stdout.flush()
        while not clock.wait(stop, timeout_s=3600.0):
            pass
    if feed is not None:
        sys.stdout.write(
            f"taken from topic {arguments.escalations!r}: {feed.published} escalations, {feed.refused} refused, {feed.lost} lost\n"
        )
    return 0


@contextmanager
def _serving(arguments: argparse.Namespace) -> "Iterator[tuple[str, EscalationFeed | None]]":
    """Start the server, and the feed if one is asked for; yields the target and the feed."""
    from paritas.controller.config import ServerConfig
    from paritas.controller.server import serving

    open_reader = _open_reader(arguments) if arguments.escalations_from else None
    folder = DataFolder(arguments.data or default_folder(os.environ))
    folder.make()
    with ExitStack() as stack:
        target = stack.enter_context(serving(ServerConfig(folder.database, listen=arguments.listen)))
        feed = _feed(stack, folder, target, open_reader) if open_reader else None
        folder.announce(Running(os.getpid(), target, ""))
        stack.callback(folder.retract)
        yield target, feed


def _open_reader(arguments: argparse.Namespace) -> "OpenReader":
    """How the topic is opened; a topic that is not there is said now, a broker that is away is waited for.

    Raises
    ------
    UsageError
        There is no such topic, or the settings cannot work.
    """
    from paritas.agent.eventlog.kafka_reader import KafkaReader
    from paritas.agent.eventlog.kafka_topic import describe_topic
    from paritas.clock import SystemClock
    from paritas.commands.kafka_place import kafka_place

    settings = kafka_place(
        arguments.escalations_from, topic=arguments.escalations, client_id="paritas-control"
    )
    with suppress(TransientError):
        describe_topic(settings)
    return lambda: KafkaReader(settings, clock=SystemClock())


def _feed(stack: ExitStack, folder: DataFolder, target: str, open_reader: "OpenReader") -> "EscalationFeed":
    from paritas.agent.eventlog import Cursor
    from paritas.clock import SystemClock
    from paritas.commands.escalation_feed import EscalationFeed
    from paritas.controller.client import EscalationClient

    clock = SystemClock()
    client = stack.enter_context(EscalationClient(target, clock=clock))
    cursor = Cursor(folder.root / "escalations.cursor")
    return stack.enter_context(EscalationFeed(open_reader, cursor, publish=client.publish, clock=clock))
