"""`paritas roster`: tell the event log which pods must report."""

import argparse
import asyncio
import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.listen_option import listen_address
from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.commands.roster_writing import Sink
    from paritas.controller.kubernetes.access import ClusterAccess

__all__ = ["register"]

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
LEAST_S, MOST_S = 1.0, 3600.0


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "roster",
        help="tell the event log which pods must report",
        description="Follows the pods that ask for the sidecar and writes to the event log who must report: a pod "
        "without its sidecar becomes an escalation of the contract's `agent_silence` clause, a pod that was deleted none. "
        "SIGTERM ends it.",
    )
    pods = parser.add_argument_group("whose pods")
    pods.add_argument(
        "--namespace",
        metavar="NS",
        action="append",
        default=[],
        help="may be given several times, one roster each (default: the namespace of the service account)",
    )
    pods.add_argument(
        "--selector", default="paritas.dev/inject=true", help="default: paritas.dev/inject=true"
    )
    pods.add_argument(
        "--container",
        metavar="NAME",
        default="paritas-agent",
        help="whose absence in a pod is told (default: paritas-agent)",
    )
    pods.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="outside of a cluster (default: the service account)"
    )
    pods.add_argument("--context", metavar="NAME", default="", help="of the kubeconfig (default: its own)")
    _add_target(parser)
    parser.set_defaults(run=run)


def _add_target(parser: argparse.ArgumentParser) -> None:
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--kafka", metavar="WHERE", help="brokers, or a YAML file: as of `paritas detect`")
    target.add_argument("--agent", metavar="TARGET", help="unix:/path or http://HOST:PORT of an agent")
    target.add_argument("--data", metavar="DIR", type=Path, help="folder of a running `paritas up`")
    parser.add_argument("--topic", default="", help="topic to write to (default: the file's, or otlp_spans)")
    parser.add_argument(
        "--name",
        default="",
        help="put before the namespace in the roster's name, where clusters share a topic",
    )
    parser.add_argument(
        "--every",
        metavar="DURATION",
        default="30s",
        help="how often an unchanged roster is told (default: 30s)",
    )
    parser.add_argument(
        "--health",
        type=listen_address,
        metavar="HOST:PORT",
        default="",
        help="serve /healthz, /readyz and /metrics",
    )


def run(arguments: argparse.Namespace) -> int:
    """Tell until SIGINT or SIGTERM; return 0."""
    import aiohttp  # noqa: F401 -- first, so that the extra is named where it is missing

    from paritas.clock import SystemClock
    from paritas.commands.roster_serving import Plan, serve

    every_s = _every_s(arguments.every)
    access = _access(arguments)
    names = _names(arguments, access)
    with closing(_sink(arguments)) as sink:
        plan = Plan(access, names, arguments.selector, arguments.container, every_s, arguments.health)
        asyncio.run(serve(plan, sink, SystemClock()))
    return 0


def _every_s(text: str) -> float:
    from paritas.contracts.durations import parse_duration

    try:
        every_s = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--every {text!r} is no duration", hint="write 30s or 1m") from error
    if not LEAST_S <= every_s <= MOST_S:
        raise UsageError(f"--every {text!r} is not from 1s to 1h", hint="well under the clause's limit")
    return every_s


def _access(arguments: argparse.Namespace) -> "ClusterAccess":
    from paritas.controller.kubernetes.access import in_cluster

    if arguments.kubeconfig is None:
        if arguments.context:
            raise UsageError("--context needs --kubeconfig")
        return in_cluster()
    from paritas.controller.kubernetes.kubeconfig import from_kubeconfig

    return from_kubeconfig(arguments.kubeconfig, arguments.context)


def _names(arguments: argparse.Namespace, access: "ClusterAccess") -> dict[str, str]:
    """Namespace → name of its roster."""
    spaces = arguments.namespace or [access.namespace]
    if "" in spaces:
        raise UsageError("it is not said whose pods", hint="name a --namespace")
    for option, text in (*(("--namespace", space) for space in spaces), ("--name", arguments.name)):
        if text and not NAME.match(text):
            raise UsageError(f"{option} {text!r} is no name", hint="letters, digits, and - . _ between them")
    prefix = f"{arguments.name}/" if arguments.name else ""
    return {space: f"roster:{prefix}{space}" for space in spaces}


def _sink(arguments: argparse.Namespace) -> "Sink":
    """Where records go."""
    from paritas.commands.places import DataFolder
    from paritas.commands.roster_sinks import ReceiverSink, TopicSink
    from paritas.otlp_http import Target, target_of

    if arguments.kafka:
        from paritas.commands.kafka_place import kafka_place

        return TopicSink(kafka_place(arguments.kafka, topic=arguments.topic, client_id="paritas-roster"))
    if arguments.topic:
        raise UsageError("--topic needs --kafka")
    if arguments.data is None:
        return ReceiverSink(target_of(arguments.agent, name="--agent"))
    folder = DataFolder(arguments.data)
    folder.running()
    return ReceiverSink(Target(unix_path=folder.socket))
