"""`paritas detect`: read an event log, judge, escalate; in this process, or on Apache Flink."""

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.floor_limits import add_floor_options, floor_lines, load_with_floors
from paritas.commands.live_options import add_metrics_options, exposed, places_of
from paritas.commands.places import DataFolder, default_folder
from paritas.errors import TransientError, UsageError

if TYPE_CHECKING:
    from threading import Event

    from paritas.agent.eventlog import LogReader
    from paritas.clock import Clock
    from paritas.commands.detecting import DetectionLoop
    from paritas.contracts.model import Contract

__all__ = ["register"]

log = logging.getLogger(__name__)


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "detect",
        help="judge an event log, in this process or on Apache Flink",
        description="Reads traces from an event log, judges them and escalates. State and positions are kept together: "
        "killed at any moment and started again, it neither loses nor doubles an observation.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--log", metavar="DIR", type=Path, help="an embedded event log, such as DATA/log")
    source.add_argument(
        "--kafka",
        metavar="WHERE",
        help="Kafka brokers: HOST:PORT, separated by commas; or a YAML file with the `kafka:` section of an "
        "agent's destination, for TLS and SASL",
    )
    parser.add_argument("--topic", default="", help="topic to read (default: the file's, or otlp_spans)")
    parser.add_argument(
        "--contract", default="dense-bf16", help="a contract file or a shipped preset (default: dense-bf16)"
    )
    parser.add_argument(
        "--controller", metavar="TARGET", help="gRPC address of the controller (engine process)"
    )
    parser.add_argument("--deployment", default="", help="part of every escalation id")
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
    add_floor_options(parser)
    add_metrics_options(parser)
    _register_flink(parser.add_argument_group("engine flink"))
    parser.set_defaults(run=run)


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
    contract = load_with_floors(arguments.contract, arguments)
    if arguments.engine == "flink" and (arguments.metrics or arguments.otlp_metrics):
        message = "--metrics and --otlp-metrics need --engine process"
        raise UsageError(message, hint="on Flink read the metrics of the job itself")
    if arguments.engine == "flink":
        from paritas.commands.detect_flink import run_on_flink

        sys.stdout.write(floor_lines(contract))
        return run_on_flink(contract, arguments)
    return _run_here(contract, arguments)


def _run_here(contract: "Contract", arguments: argparse.Namespace) -> int:
    from paritas.commands.detecting import watched
    from paritas.commands.up import stop_signals

    with stop_signals() as stop, _loop(contract, arguments, stop) as loop:
        if loop is None:  # told to stop before the log could be opened
            return 0
        sys.stdout.write(f"judging {_place(arguments)} by {contract.name} {contract.version}\n")
        sys.stdout.write(floor_lines(contract))
        sys.stdout.flush()
        loop.run(stop)
        sys.stdout.write(
            f"judged {loop.decoder.received} records: {sum(loop.detector.evaluator.reasons.values())} sequences, "
            f"{loop.published} escalations{watched(loop)}\n"
        )
        if arguments.verdicts:
            from paritas.detectors.flink.evaluation import verdict_line

            Path(arguments.verdicts).write_text(
                verdict_line(contract.digest, loop.detector.verdicts()) + "\n"
            )
    return 0


@contextmanager
def _loop(
    contract: "Contract", arguments: argparse.Namespace, stop: "Event"
) -> "Iterator[DetectionLoop | None]":
    """Open everything; None if it was told to stop while it waited for a broker."""
    from paritas.agent.eventlog import Cursor
    from paritas.clock import SystemClock
    from paritas.commands.detecting import DetectionLoop, LoopSettings
    from paritas.controller.client import EscalationClient

    if not arguments.controller:
        raise UsageError("--engine process needs --controller", hint="start one with `paritas control`")
    clock = SystemClock()
    with ExitStack() as stack:
        client = stack.enter_context(EscalationClient(arguments.controller, clock=clock))
        opened = _reader(arguments, clock, stop)
        if opened is None:
            yield None
            return
        reader = stack.enter_context(opened)
        cursor = Cursor(_state_path(arguments))
        settings = LoopSettings(deployment=arguments.deployment, to_end=arguments.to_end)
        loop = DetectionLoop(contract, reader, cursor, publish=client.publish, clock=clock, settings=settings)
        stack.enter_context(loop)
        page = stack.enter_context(exposed(loop, places_of(arguments), contract=contract.name, clock=clock))
        if page:
            sys.stdout.write(f"metrics on http://{page}/metrics\n")
        yield loop


def _state_path(arguments: argparse.Namespace) -> Path:
    if arguments.state is not None:
        return Path(arguments.state)
    folder = DataFolder(default_folder(os.environ))
    folder.make()
    return folder.cursor


def _reader(arguments: argparse.Namespace, clock: "Clock", stop: "Event") -> "LogReader | None":
    """Open the log; a broker that is away is waited for, unless somebody waits for the end."""
    if arguments.log is not None:
        from paritas.agent.eventlog import EmbeddedReader

        return EmbeddedReader(arguments.log)
    from paritas.agent.eventlog.kafka_reader import KafkaReader
    from paritas.commands.kafka_place import kafka_place, when_served

    settings = kafka_place(arguments.kafka, topic=arguments.topic, client_id="paritas-detect")
    if arguments.to_end:
        return KafkaReader(settings, clock=clock)
    return when_served(lambda: KafkaReader(settings, clock=clock), clock=clock, stop=stop, on_wait=_waits)


def _waits(error: TransientError) -> None:
    log.warning("Detection waits.", extra={"detail": str(error)})


def _place(arguments: argparse.Namespace) -> str:
    """How the first line names the log."""
    if arguments.log is not None:
        return str(arguments.log)
    from paritas.commands.kafka_place import kafka_place

    settings = kafka_place(arguments.kafka, topic=arguments.topic)
    return f"{settings.topic} on {','.join(settings.bootstrap)}"
