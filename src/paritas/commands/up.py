"""`paritas up`: every stage in one process, on an embedded event log."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.console import say_now
from paritas.commands.floor_limits import add_floor_options, contract_watch, floor_lines
from paritas.commands.live_options import (
    NOWHERE,
    Exposed,
    MetricsPlaces,
    add_metrics_options,
    exposed,
    places_of,
)
from paritas.commands.notify_option import add_notify_option, notifying
from paritas.commands.places import DataFolder, Running, default_folder
from paritas.commands.reaching import Reach
from paritas.commands.routes_option import add_routes_option, declared_routes
from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.agent.eventlog import EventLog
    from paritas.commands.detecting import DetectionLoop
    from paritas.contracts.model import Contract
    from paritas.controller.routing.declared import Declared
    from paritas.records import Escalation
    from paritas.wire import WireRecord

__all__ = ["Up", "register", "running"]


@dataclass(frozen=True, slots=True)
class Up:
    """A running instance."""

    folder: DataFolder
    target: str
    loop: "DetectionLoop"
    numbers: Exposed

    def announce(self, contract: "Contract") -> None:
        """Tell the other commands where this instance can be reached, and what it judges by."""
        self.folder.announce(Running(os.getpid(), self.target, contract.name, self.numbers.page))

    def renew(self, contract: "Contract") -> None:
        """Announce another contract, where the disk takes it: the old announcement names the right addresses."""
        with suppress(OSError):
            self.announce(contract)


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "up",
        help="receive, judge and escalate in one process",
        description="Receives traces on a private socket, judges them against the contract and serves escalations over gRPC. "
        "A contract file that changes is taken over while it runs.",
    )
    parser.add_argument(
        "--contract", default="dense-bf16", help="a contract file or a shipped preset (default: dense-bf16)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder for log, state and sockets (default: PARITAS_DATA or the state folder)",
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:4320", help="gRPC address (default: 127.0.0.1:4320; port 0 picks one)"
    )
    parser.add_argument(
        "--deployment",
        default="",
        help="part of every escalation id; tells two deployments of one contract apart",
    )
    add_floor_options(parser)
    add_metrics_options(parser)
    add_routes_option(parser)
    add_notify_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return 0."""
    from paritas.clock import SystemClock
    from paritas.commands.contract_watch import Reloading
    from paritas.commands.signals import signals

    folder = DataFolder(arguments.data or default_folder(os.environ))
    watch = contract_watch(arguments)
    contract, clock = watch.contract, SystemClock()
    routes = declared_routes(arguments, on_loss=contract.on_controller_loss, policy=contract.policy)
    told = {"listen": arguments.listen, "deployment": arguments.deployment, "routes": routes}
    with (
        signals() as (stop, asked),
        running(contract, folder, **told, metrics=places_of(arguments)) as up,
        notifying(arguments.notify, folder, Reach(up.target)),
    ):
        say_now(_ready(up, contract))
        up.loop.on_published = _say
        up.numbers.desk.contracts = watch.counts
        up.loop.on_turn = Reloading(
            watch,
            up.loop,
            asked=asked,
            clock=clock,
            refuses=partial(_bound, contract) if routes else None,
            on_applied=up.renew,
        )
        up.loop.run(stop)
    sys.stdout.write(_farewell(up))
    return 0


def _bound(at_start: "Contract", contract: "Contract") -> "UsageError | None":
    """Routes follow what the contract said when they were declared."""
    for name in ("policy", "on_controller_loss"):
        if getattr(contract, name) != getattr(at_start, name):
            message = f"{contract.file}: {name} cannot change while routes follow it"
            return UsageError(message, hint="restart paritas up, or put the old value back")
    return None


@contextmanager
def running(
    contract: "Contract",
    folder: DataFolder,
    *,
    listen: str,
    deployment: str = "",
    metrics: MetricsPlaces = NOWHERE,
    routes: "Sequence[Declared]" = (),
) -> Iterator[Up]:
    """Start controller, log and receiver, and prepare the detection loop; the caller drives it.

    Raises
    ------
    UsageError
        If the folder is in use, or an address cannot be bound.
    """
    from paritas.agent.eventlog import Cursor, EmbeddedLog, LogSettings
    from paritas.agent.receiver import Receiver
    from paritas.clock import SystemClock
    from paritas.commands.detecting import DetectionLoop, LoopSettings
    from paritas.controller.client import EscalationClient
    from paritas.controller.config import ServerConfig
    from paritas.controller.server import serving

    clock = SystemClock()
    folder.make()
    with ExitStack() as stack:
        numbers = stack.enter_context(exposed(metrics, contract=contract.name, clock=clock))
        log = stack.enter_context(EmbeddedLog(folder.log, LogSettings(partitions=1), clock=clock))
        config = ServerConfig(folder.database, listen=listen, routes=tuple(routes))
        target = stack.enter_context(serving(config, clock=clock))
        client = stack.enter_context(EscalationClient(target, clock=clock))
        settings = LoopSettings(deployment=deployment)
        cursor = Cursor(folder.cursor)
        loop = DetectionLoop(contract, log, cursor, publish=client.publish, clock=clock, settings=settings)
        stack.enter_context(loop)
        numbers.follow(loop)
        folder.hasher()
        stack.enter_context(Receiver(folder.socket, partial(_append, log)))
        up = Up(folder, target, loop, numbers)
        up.announce(contract)
        stack.callback(folder.retract)
        yield up


def _append(log: "EventLog", record: "WireRecord") -> None:
    log.append(record, partition_key=record.key)


def _say(escalations: "Sequence[Escalation]") -> None:
    """One line an escalation on the console; subscribers get the whole of it."""
    say_now("".join(f"{told.severity.value:8} {told.summary}\n" for told in escalations))


def _ready(up: Up, contract: "Contract") -> str:
    data = f" --data {up.folder.root}"
    return (
        f"watching contract {contract.name} {contract.version}\n"
        f"  traces:       {up.folder.socket} (OTLP/HTTP)\n"
        f"  escalations:  {up.target} (gRPC)\n"
        f"  feed it:      paritas ingest{data} SERVE TRAIN\n"
        f"  subscribe:    paritas watch{data}\n"
        + (f"  metrics:      http://{up.numbers.page}/metrics\n" if up.numbers.page else "")
        + floor_lines(contract)
    )


def _farewell(up: Up) -> str:
    """One line of accounting: what came in and where it went."""
    from paritas.commands.detecting import watched

    loop = up.loop
    outcomes = ", ".join(f"{n} {reason}" for reason, n in sorted(loop.detector.evaluator.reasons.items()))
    refused = sum(loop.decoder.refused.values()) + sum(loop.skipped.values())
    return (
        f"stopped: {loop.decoder.received} records, {refused} refused, {loop.detector.repeated_records} repeated; "
        f"sequences: {outcomes or 'none'}; {loop.published} escalations{watched(loop)}\n"
    )
