"""`paritas detect`: read an event log, judge, escalate; in this process, or on Apache Flink."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.places import DataFolder, default_folder
from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.agent.eventlog import LogReader
    from paritas.commands.detecting import DetectionLoop
    from paritas.contracts.model import Contract

__all__ = ["register"]


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
    source.add_argument("--kafka", metavar="HOST:PORT", help="Kafka brokers, separated by commas")
    parser.add_argument("--topic", default="otlp_spans", help="topic to read (default: otlp_spans)")
    parser.add_argument(
        "--contract", default="dense-bf16", help="a contract file or a shipped preset (default: dense-bf16)"
    )
    parser.add_argument(
        "--controller", metavar="TARGET", help="gRPC address of the controller (engine process)"
    )
    parser.add_argument("--deployment", default="", help="part of every escalation id")
    parser.add_argument("--state", metavar="FILE", type=Path, help="state and positions (engine process)")
    parser.add_argument(
        "--to-end",
        action="store_true",
        help="stop at the end the log has now; what is alone then is unmatched",
    )
    parser.add_argument("--verdicts", metavar="PATH", help="with --to-end: write the verdicts there, as JSON")
    parser.add_argument(
        "--engine", choices=("process", "flink"), default="process", help="where to judge (default: process)"
    )
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
    group.add_argument("--jar", action="append", default=[], type=Path, help="the Kafka connector of Flink")
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
    from paritas.contracts.load import load_named

    if arguments.verdicts and not arguments.to_end:
        raise UsageError("--verdicts needs --to-end", hint="a log that goes on has no last verdict")
    contract = load_named(arguments.contract)
    if arguments.engine == "flink":
        from paritas.commands.detect_flink import run_on_flink

        return run_on_flink(contract, arguments)
    return _run_here(contract, arguments)


def _run_here(contract: "Contract", arguments: argparse.Namespace) -> int:
    from paritas.commands.up import stop_signals

    with stop_signals() as stop, _loop(contract, arguments) as loop:
        sys.stdout.write(f"judging {_place(arguments)} by {contract.name} {contract.version}\n")
        sys.stdout.flush()
        loop.run(stop)
        sys.stdout.write(
            f"judged {loop.decoder.received} records: {sum(loop.detector.evaluator.reasons.values())} sequences, "
            f"{loop.published} escalations\n"
        )
        if arguments.verdicts:
            from paritas.detectors.flink.evaluation import verdict_line

            Path(arguments.verdicts).write_text(
                verdict_line(contract.digest, loop.detector.verdicts()) + "\n"
            )
    return 0


@contextmanager
def _loop(contract: "Contract", arguments: argparse.Namespace) -> "Iterator[DetectionLoop]":
    from paritas.agent.eventlog import Cursor
    from paritas.clock import SystemClock
    from paritas.commands.detecting import DetectionLoop, LoopSettings
    from paritas.controller.client import EscalationClient

    if not arguments.controller:
        raise UsageError("--engine process needs --controller", hint="start one with `paritas control`")
    clock = SystemClock()
    with ExitStack() as stack:
        client = stack.enter_context(EscalationClient(arguments.controller, clock=clock))
        reader = stack.enter_context(_reader(arguments))
        cursor = Cursor(_state_path(arguments))
        settings = LoopSettings(deployment=arguments.deployment, to_end=arguments.to_end)
        loop = DetectionLoop(contract, reader, cursor, publish=client.publish, clock=clock, settings=settings)
        yield stack.enter_context(loop)


def _state_path(arguments: argparse.Namespace) -> Path:
    if arguments.state is not None:
        return Path(arguments.state)
    folder = DataFolder(default_folder(os.environ))
    folder.make()
    return folder.cursor


def _reader(arguments: argparse.Namespace) -> "LogReader":
    from paritas.clock import SystemClock

    if arguments.log is not None:
        from paritas.agent.eventlog import EmbeddedReader

        return EmbeddedReader(arguments.log)
    from paritas.agent.eventlog.kafka_reader import KafkaReader
    from paritas.agent.eventlog.kafka_settings import KafkaSettings

    return KafkaReader(
        KafkaSettings(tuple(arguments.kafka.split(",")), topic=arguments.topic), clock=SystemClock()
    )


def _place(arguments: argparse.Namespace) -> str:
    return str(arguments.log) if arguments.log is not None else f"{arguments.topic} on {arguments.kafka}"
