"""`paritas check`: judge recordings offline."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.floor_limits import add_floor_options, load_with_floors
from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.commands.offline import Judgement
    from paritas.contracts.model import Contract

__all__ = ["register"]


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
    parser.add_argument("--serve", metavar="FILE", type=Path, help="recording of the inference kernel")
    parser.add_argument("--train", metavar="FILE", type=Path, help="recording of the training kernel")
    parser.add_argument(
        "--dump", metavar="PATH", type=Path, help="a dump that holds both: NeMo-RL file, prime-rl folder"
    )
    add_floor_options(parser)
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of tables")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Judge and show; return the exit code of the judgement."""
    _require_inputs(arguments)
    judgement = _judge(load_with_floors(arguments.contract, arguments), arguments)
    if arguments.json:
        sys.stdout.write(json.dumps(judgement.as_dict(), indent=2, allow_nan=False) + "\n")
    else:
        from paritas.commands.report import show_judgement

        show_judgement(judgement)
    return int(judgement.exit_code)


def _require_inputs(arguments: argparse.Namespace) -> None:
    pair = (arguments.serve, arguments.train)
    if arguments.dump is not None and any(pair):
        raise UsageError("--dump holds both kernels: give it without --serve and --train")
    if arguments.dump is None and not all(pair):
        raise UsageError("no input", hint="give --serve FILE --train FILE, or --dump PATH")


def _judge(contract: "Contract", arguments: argparse.Namespace) -> "Judgement":
    from paritas.commands.offline import judge_dump, judge_recording

    if arguments.dump is not None:
        return judge_dump(contract, arguments.dump)
    return judge_recording(contract, arguments.serve, arguments.train)
