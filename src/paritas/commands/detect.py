"""`paritas detect`: read an event log, judge, escalate; in this process, or on Apache Flink."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.console import say_now
from paritas.commands.floor_limits import add_floor_options, contract_watch, floor_lines, load_with_floors
from paritas.commands.live_options import Exposed, add_metrics_options, exposed, places_of
from paritas.commands.places import DataFolder, default_folder
from paritas.commands.reaching import Reach, add_identity_options, reach_to
from paritas.errors import TransientError, UsageError

if TYPE_CHECKING:
    from threading import Event

    from paritas.agent.eventlog import LogReader
    from paritas.commands.contract_watch import ContractWatch
    from paritas.commands.detect_health import LoopState
    from paritas.commands.detecting import DetectionLoop, Publish

__all__ = ["register"]

log = logging.getLogger(__name__)


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "detect",
        help="judge an event log, in this process or on Apache Flink",
        description="Reads traces from an event log, judges them and escalates. State and positions are kept together: "
        "killed at any moment and started again, it neither loses nor doubles an observation. A contract file that "
        "changes is taken over while it runs (engine process).",
    )
    _add_source_options(parser)
    _add_judging_options(parser)
    _add_run_options(parser)
    add_floor_options(parser)
    add_metrics_options(parser)
    add_identity_options(parser)
    _register_flink(parser.add_argument_group("engine flink"))
    parser.set_defaults(run=run)


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add what is read."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--log", metavar="DIR", type=Path, help="an embedded event log, such as DATA/log")
    source.add_argument(
        "--kafka",
        metavar="WHERE",
        help="Kafka brokers: HOST:PORT, separated by commas; or a YAML file with the `kafka:` section of an "
        "agent's destination, for TLS and SASL",
    )
    parser.add_argument("--topic", default="", help="topic to read (default: the file's, or otlp_spans)")


def _add_judging_options(parser: argparse.ArgumentParser) -> None:
    """Add what judges, and who is told."""
    parser.add_argument(
        "--contract", default="dense-bf16", help="a contract file or a shipped preset (default: dense-bf16)"
    )
    parser.add_argument(
        "--controller", metavar="TARGET", help="gRPC address of the controller (engine process)"
    )
    parser.add_argument("--deployment", default="", help="part of every escalation id")


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add where it runs, how far, and what it keeps."""
    parser.add_argument(
        "--state",
        metavar="FILE",
        type=Path,
        help="state and positions (engine process); which job, and what it goes on from (engine flink)",
    )
    parser.add_argument(
        "--to-end",
        action="store_true",
        help="stop at the end the log has now; what is alone then is unmatched",
    )
    parser.add_argument("--verdicts", metavar="PATH", help="with --to-end: write the verdicts there, as JSON")
    parser.add_argument(
        "--engine", choices=("process", "flink"), default="process", help="where to judge (default: process)"
    )


def _register_flink(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--escalations", metavar="TOPIC", default="paritas.escalations", help="topic that escalations go to"
    )
    group.add_argument("--parallelism", type=int, default=1, help="pairing operators (default: 1)")
    group.add_argument(
        "--checkpoint-s", type=float, default=10.0, help="time between checkpoints (default: 10)"
    )
    group.add_argument(
        "--jar",
        action="append",
        default=[],
        type=Path,
        help="a jar the job needs: Flink's Kafka connector, zstd-jni",
    )
    group.add_argument("--flink", metavar="KEY=VALUE", action="append", default=[], help="a setting of Flink")
    group.add_argument(
        "--kafka-setting",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of Flink's Kafka clients",
    )


def run(arguments: argparse.Namespace) -> int:
    """Judge until SIGINT or SIGTERM, or to the end; return 0."""
    if arguments.verdicts and not arguments.to_end:
        raise UsageError("--verdicts needs --to-end", hint="a log that goes on has no last verdict")
    if arguments.engine == "flink" and (arguments.metrics or arguments.otlp_metrics):
        message = "--metrics and --otlp-metrics need --engine process"
        raise UsageError(message, hint="on Flink read the metrics of the job itself")
    if arguments.engine == "flink":
        from paritas.commands.detect_flink import run_on_flink

        contract = load_with_floors(arguments.contract, arguments)
        sys.stdout.write(floor_lines(contract))
        return run_on_flink(contract, arguments)
    return _run_here(contract_watch(arguments), arguments)


def _run_here(watch: "ContractWatch", arguments: argparse.Namespace) -> int:
    from paritas.commands.detecting import watched
    from paritas.commands.signals import signals

    with signals() as (stop, asked), _loop(watch, arguments, stop, asked) as loop:
        if loop is None:  # told to stop before the log could be opened
            return 0
        say_now(f"judging {_place(arguments)} by {loop.contract.name} {loop.contract.version}\n")
        say_now(floor_lines(loop.contract))
        loop.run(stop)
        sys.stdout.write(
            f"judged {loop.decoder.received} records: {sum(loop.detector.evaluator.reasons.values())} sequences, "
            f"{loop.published} escalations{watched(loop)}\n"
        )
        if arguments.verdicts:
            _write_verdicts(loop, Path(arguments.verdicts))
    return 0


def _write_verdicts(loop: "DetectionLoop", path: Path) -> None:
    from paritas.detectors.flink.evaluation import verdict_line

    path.write_text(verdict_line(loop.contract.digest, loop.detector.verdicts()) + "\n")


@contextmanager
def _loop(
    watch: "ContractWatch", arguments: argparse.Namespace, stop: "Event", asked: "Event"
) -> "Iterator[DetectionLoop | None]":
    """Open everything; None if it was told to stop while it waited for a broker."""
    from paritas.clock import SystemClock
    from paritas.commands.contract_watch import Reloading
    from paritas.controller.backoff import Backoff

    if not arguments.controller:
        raise UsageError("--engine process needs --controller", hint="start one with `paritas control`")
    clock, reach = SystemClock(), reach_to(arguments.controller, arguments)
    with ExitStack() as stack:
        # One try: the loop tries again itself, and a signal is not kept waiting meanwhile.
        client = stack.enter_context(reach.client(backoff=Backoff(tries=1)))
        numbers = _exposed(stack, watch, reach, arguments)
        opened = _reader(arguments, stop, partial(_waits, numbers.desk.state))
        if opened is None:
            yield None
            return
        reader = stack.enter_context(opened)
        loop = _made(watch, reader, client.publish, arguments)
        stack.enter_context(loop)
        numbers.follow(loop)
        loop.on_turn = Reloading(watch, loop, asked=asked, clock=clock)
        yield loop


def _made(
    watch: "ContractWatch", reader: "LogReader", publish: "Publish", arguments: argparse.Namespace
) -> "DetectionLoop":
    from paritas.agent.eventlog import Cursor
    from paritas.clock import SystemClock
    from paritas.commands.detecting import DetectionLoop, LoopSettings

    cursor = Cursor(_state_path(arguments))
    settings = LoopSettings(deployment=arguments.deployment, to_end=arguments.to_end)
    return DetectionLoop(
        watch.contract, reader, cursor, publish=publish, clock=SystemClock(), settings=settings
    )


def _exposed(
    stack: ExitStack, watch: "ContractWatch", reach: Reach, arguments: argparse.Namespace
) -> Exposed:
    """Serve health and numbers, from now on; a page also wants to know whether the controller is there."""
    from paritas.clock import SystemClock

    clock = SystemClock()
    numbers = stack.enter_context(exposed(places_of(arguments), contract=watch.contract.name, clock=clock))
    numbers.desk.contracts = watch.counts
    if numbers.page:
        from paritas.commands.grpc_health import ControllerProbe, HealthClient

        say_now(f"metrics on http://{numbers.page}/metrics\n")
        client = stack.enter_context(HealthClient(reach))
        stack.enter_context(ControllerProbe(client, numbers.desk.state, clock=clock))
    return numbers


def _state_path(arguments: argparse.Namespace) -> Path:
    if arguments.state is not None:
        return Path(arguments.state)
    folder = DataFolder(default_folder(os.environ))
    folder.make()
    return folder.cursor


def _reader(
    arguments: argparse.Namespace, stop: "Event", on_wait: Callable[[TransientError], None]
) -> "LogReader | None":
    """Open the log; a broker that is away is waited for, unless somebody waits for the end."""
    if arguments.log is not None:
        from paritas.agent.eventlog import EmbeddedReader

        return EmbeddedReader(arguments.log)
    from paritas.agent.eventlog.kafka_reader import KafkaReader
    from paritas.clock import SystemClock
    from paritas.commands.kafka_place import kafka_place, when_served
    from paritas.commands.unless_stopped import unless_stopped

    clock = SystemClock()
    settings = kafka_place(arguments.kafka, topic=arguments.topic, client_id="paritas-detect")
    if arguments.to_end:
        return KafkaReader(settings, clock=clock)
    opened = partial(unless_stopped, lambda: KafkaReader(settings, clock=clock), clock=clock, stop=stop)
    return when_served(opened, clock=clock, stop=stop, on_wait=on_wait)


def _waits(state: "LoopState", error: TransientError) -> None:
    """Say it, on the console and on the page; the loop's first turn takes it back."""
    from paritas.commands.detect_health import DetectTrouble

    state.trouble = DetectTrouble.WAITING_FOR_LOG
    log.warning("Detection waits.", extra={"detail": str(error)})


def _place(arguments: argparse.Namespace) -> str:
    """How the first line names the log."""
    if arguments.log is not None:
        return str(arguments.log)
    from paritas.commands.kafka_place import kafka_place

    settings = kafka_place(arguments.kafka, topic=arguments.topic)
    return f"{settings.topic} on {','.join(settings.bootstrap)}"
