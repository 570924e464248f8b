"""`paritas check`: judge recordings offline."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.attempts import add_attempt_option
from paritas.commands.floor_limits import add_floor_options, load_with_floors
from paritas.commands.output import say
from paritas.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paritas.collectors.dumps import Problem
    from paritas.commands.offline import Judgement
    from paritas.contracts.model import Contract
    from paritas.records import TokenTrace

__all__ = ["register"]

STAGES = ("offline_ci", "shadow", "canary", "full")


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "check",
        help="judge recordings of both kernels against a contract",
        description="Exit code: 0 all conforming, 1 violated, 3 undecided or no data, 64 usage or contract error.",
    )
    parser.add_argument(
        "contract", metavar="CONTRACT", help="a contract file, or the name of a shipped preset"
    )
    _add_recording_options(parser)
    add_floor_options(parser)
    add_attempt_option(parser)
    parser.add_argument(
        "--stage",
        choices=STAGES,
        default=STAGES[0],
        help="whose clauses and gate judge (default: offline_ci); for evidence of a promotion",
    )
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of tables")
    parser.set_defaults(run=run)


def _add_recording_options(parser: argparse.ArgumentParser) -> None:
    """Add where both kernels' numbers are."""
    parser.add_argument("--serve", metavar="FILE", type=Path, help="recording of the inference kernel")
    parser.add_argument(
        "--reference",
        metavar="FILE",
        type=Path,
        help="in place of --serve: recording of a reference model's kernel, for compare: {against: reference}",
    )
    parser.add_argument("--train", metavar="FILE", type=Path, help="recording of the training kernel")
    parser.add_argument(
        "--dump", metavar="PATH", type=Path, help="a dump that holds both: NeMo-RL file, prime-rl folder"
    )
    parser.add_argument(
        "--metrics",
        metavar="FILE",
        type=Path,
        help="exponential histograms of latencies, OTLP/JSON as the Collector's file exporter writes; "
        "runtime clauses are judged by them instead of by single timings",
    )


def run(arguments: argparse.Namespace) -> int:
    """Judge and show; return the exit code of the judgement."""
    _require_inputs(arguments)
    judgement = _judge(load_with_floors(arguments.contract, arguments), arguments)
    if arguments.json:
        say(json.dumps(judgement.as_dict(), indent=2, allow_nan=False) + "\n")
    else:
        from paritas.commands.report import show_judgement

        show_judgement(judgement)
    return int(judgement.exit_code)


def _require_inputs(arguments: argparse.Namespace) -> None:
    other = (arguments.serve, arguments.reference)
    if arguments.dump is not None and (any(other) or arguments.train):
        raise UsageError("--dump holds both kernels: give it without --serve and --train")
    if all(other):
        raise UsageError("--serve and --reference: the training kernel is compared with one other")
    if arguments.dump is None and not (any(other) and arguments.train):
        raise UsageError("no input", hint="give --serve FILE --train FILE, or --dump PATH")


def _items(contract: "Contract", arguments: argparse.Namespace) -> "Iterator[TokenTrace | Problem]":
    """Read what was given; raises `UsageError` where it is not of the kernels the contract compares."""
    from paritas.commands.offline import dumped, recorded
    from paritas.records import Role

    against = contract.compare.against
    if arguments.dump is not None:
        return dumped(arguments.dump)
    file = arguments.reference if against is Role.REFERENCE else arguments.serve
    if file is None:
        message = f"{contract.name} compares the training kernel with the {against.value} kernel"
        option = "--reference" if against is Role.REFERENCE else "--serve"
        raise UsageError(message, hint=f"give its recording with {option} (the contract's compare.against)")
    return recorded(file, arguments.train, against)


def _judge(contract: "Contract", arguments: argparse.Namespace) -> "Judgement":
    from paritas.commands.offline import judge
    from paritas.contracts.model import Stage

    return judge(
        contract,
        _items(contract, arguments),
        attempt=arguments.attempt,
        metrics=arguments.metrics,
        stage=Stage(arguments.stage),
    )
