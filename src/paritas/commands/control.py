"""`paritas control`: keep and stream escalations; take them over gRPC, and from Kafka too."""

import argparse
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.listen_option import listen_address
from paritas.commands.notify_option import add_notify_option, notifying
from paritas.commands.places import DataFolder, Running, default_folder
from paritas.commands.reaching import Reach, own_reach
from paritas.commands.routes_option import add_routes_option, declared_routes
from paritas.errors import TransientError

if TYPE_CHECKING:
    from threading import Event

    from paritas.clock import Clock
    from paritas.commands.control_page import ControlWatch
    from paritas.commands.escalation_feed import EscalationFeed, OpenReader
    from paritas.controller.config import ServerConfig, TlsFiles

__all__ = ["register"]

# With hundreds of streams open a full collection takes a tenth of a second, in which nobody is told
# anything, and one burst of events would set it off; almost nothing here is cyclic.
_GC_THRESHOLDS = (20_000, 50, 100)


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
    _add_kafka_options(parser)
    parser.add_argument(
        "--health",
        type=listen_address,
        metavar="HOST:PORT",
        default="",
        help="serve /healthz, /readyz and /metrics over HTTP there (default: nowhere)",
    )
    add_routes_option(parser)
    add_notify_option(parser)
    _add_access_options(parser)
    _add_promotion_options(parser)
    parser.set_defaults(run=run)


def _add_kafka_options(parser: argparse.ArgumentParser) -> None:
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


def _add_access_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("access (docs/access.md)")
    group.add_argument(
        "--access", metavar="FILE", type=Path, help="who may do what; paritas access add writes it"
    )
    group.add_argument(
        "--certificate", metavar="FILE", type=Path, help="this server's certificate chain in PEM"
    )
    group.add_argument("--key", metavar="FILE", type=Path, help="its private key")
    group.add_argument("--client-ca", metavar="FILE", type=Path, help="demand client certificates of this CA")


def _add_promotion_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("promotions")
    group.add_argument(
        "--promotion-keys",
        metavar="PATH",
        type=Path,
        help="public key in PEM, or a folder of them: who may sign",
    )
    group.add_argument(
        "--promotion-http", metavar="HOST:PORT", default="", help="also answer rollout controllers over HTTP"
    )
    group.add_argument(
        "--hook-token",
        metavar="FILE",
        type=Path,
        help="bearer token of the hooks; without it they are refused",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return 0."""
    from paritas.clock import SystemClock
    from paritas.commands.signals import stop_signals

    clock = SystemClock()
    gc.set_threshold(*_GC_THRESHOLDS)
    with (
        stop_signals() as stop,
        _page(arguments, clock) as watch,
        _serving(arguments, watch, stop=stop) as (target, feed),
    ):
        sys.stdout.write(f"escalations: {target} (gRPC)\n")
        if arguments.promotion_http:
            sys.stdout.write(f"verdicts: http://{arguments.promotion_http}/v1/verdict\n")
        sys.stdout.flush()
        while not clock.wait(stop, timeout_s=3600.0):
            pass
        if watch is not None:
            watch.is_draining = True
    if feed is not None:
        sys.stdout.write(
            f"taken from topic {arguments.escalations!r}: {feed.published} escalations, {feed.refused} refused, {feed.lost} lost\n"
        )
    return 0


@contextmanager
def _page(arguments: argparse.Namespace, clock: "Clock") -> "Iterator[ControlWatch | None]":
    """Serve health from before the server starts until after it ended; None if nobody asks for it."""
    if not arguments.health:
        yield None
        return
    from paritas.commands.control_page import serving_page

    with serving_page(arguments.health, clock=clock) as (watch, address):
        sys.stdout.write(f"health: http://{address}/readyz\n")
        sys.stdout.flush()
        yield watch


@contextmanager
def _serving(
    arguments: argparse.Namespace, watch: "ControlWatch | None", *, stop: "Event"
) -> "Iterator[tuple[str, EscalationFeed | None]]":
    """Start the server, and the feed if one is asked for; yields the target and the feed."""
    from paritas.controller.background import running
    from paritas.controller.server import EscalationServer

    open_reader = _open_reader(arguments, stop) if arguments.escalations_from else None
    folder = DataFolder(arguments.data or default_folder(os.environ))
    folder.make()
    with ExitStack() as stack:
        made = EscalationServer(_config(arguments, folder))
        server = stack.enter_context(running(made, name="escalation-server"))
        reach = own_reach(arguments, folder, server.target)
        feed = _feed(stack, folder, reach, open_reader) if open_reader else None
        if watch is not None:
            watch.feed = feed
            watch.follow(server)
        stack.enter_context(notifying(arguments.notify, folder, reach))
        folder.announce(Running(os.getpid(), reach.target, ""))
        stack.callback(folder.retract)
        yield server.target, feed


def _config(arguments: argparse.Namespace, folder: DataFolder) -> "ServerConfig":
    from paritas.controller.config import ServerConfig
    from paritas.controller.promotion.config import PromotionConfig

    promotion = PromotionConfig(arguments.promotion_keys, arguments.promotion_http, arguments.hook_token)
    return ServerConfig(
        folder.database,
        listen=arguments.listen,
        tls=_tls(arguments),
        access=arguments.access,
        own_token=folder.token,
        own_socket=folder.own_socket if arguments.certificate else None,
        promotion=promotion,
        routes=declared_routes(arguments),
    )


def _tls(arguments: argparse.Namespace) -> "TlsFiles | None":
    from paritas.controller.config import TlsFiles

    files = (arguments.certificate, arguments.key, arguments.client_ca)
    return TlsFiles(*files) if any(files) else None


def _open_reader(arguments: argparse.Namespace, stop: "Event") -> "OpenReader":
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
    from paritas.commands.unless_stopped import unless_stopped

    clock = SystemClock()
    settings = kafka_place(
        arguments.escalations_from, topic=arguments.escalations, client_id="paritas-control"
    )
    with suppress(TransientError):
        unless_stopped(lambda: describe_topic(settings), clock=clock, stop=stop)
    return lambda: KafkaReader(settings, clock=clock)


def _feed(stack: ExitStack, folder: DataFolder, reach: Reach, open_reader: "OpenReader") -> "EscalationFeed":
    from paritas.agent.eventlog import Cursor
    from paritas.clock import SystemClock
    from paritas.commands.escalation_feed import EscalationFeed

    clock = SystemClock()
    client = stack.enter_context(reach.client())
    cursor = Cursor(folder.root / "escalations.cursor")
    return stack.enter_context(EscalationFeed(open_reader, cursor, publish=client.publish, clock=clock))
