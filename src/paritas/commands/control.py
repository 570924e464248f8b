"""`paritas control`: keep and stream escalations; take them over gRPC, and from Kafka too."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from paritas.commands.places import DataFolder, Running, default_folder

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
        "--escalations-from", metavar="HOST:PORT", help="Kafka brokers to read escalations from"
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
    with stop_signals() as stop, _serving(arguments) as target:
        sys.stdout.write(f"escalations: {target} (gRPC)\n")
        sys.stdout.flush()
        while not clock.wait(stop, timeout_s=3600.0):
            pass
    return 0


@contextmanager
def _serving(arguments: argparse.Namespace) -> Iterator[str]:
    """Start the server, and the feed if one is asked for; yields the target."""
    from paritas.controller.config import ServerConfig
    from paritas.controller.server import serving

    folder = DataFolder(arguments.data or default_folder(os.environ))
    folder.make()
    with ExitStack() as stack:
        target = stack.enter_context(serving(ServerConfig(folder.database, listen=arguments.listen)))
        if arguments.escalations_from:
            _feed(stack, folder, target, arguments)
        folder.announce(Running(os.getpid(), target, ""))
        stack.callback(folder.retract)
        yield target


def _feed(stack: ExitStack, folder: DataFolder, target: str, arguments: argparse.Namespace) -> None:
    from paritas.agent.eventlog import Cursor
    from paritas.agent.eventlog.kafka_reader import KafkaReader
    from paritas.agent.eventlog.kafka_settings import KafkaSettings
    from paritas.clock import SystemClock
    from paritas.commands.escalation_feed import EscalationFeed
    from paritas.controller.client import EscalationClient

    clock = SystemClock()
    settings = KafkaSettings(tuple(arguments.escalations_from.split(",")), topic=arguments.escalations)
    reader = stack.enter_context(KafkaReader(settings, clock=clock))
    client = stack.enter_context(EscalationClient(target, clock=clock))
    cursor = Cursor(folder.root / "escalations.cursor")
    stack.enter_context(EscalationFeed(reader, cursor, publish=client.publish, clock=clock))
