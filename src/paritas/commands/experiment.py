"""`paritas experiment`: run the claims of this project again, with a seed."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.output import say
from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.commands.experiments.result import Result

__all__ = ["register"]


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "experiment",
        help="run an experiment: bounds, false alarms, delay, clip range, precision, falsification",
        description="Exit code: 0 every promise held, 1 one did not, 64 usage error.  A missed goal is told, with its number.",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="which one; --list names them")
    parser.add_argument("--list", action="store_true", help="name the experiments and exit")
    parser.add_argument("--seed", type=int, default=0, help="of every random number (default: 0)")
    parser.add_argument("--quick", action="store_true", help="a small run of seconds")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="write tables (CSV, JSON) and figures (PNG) there"
    )
    parser.add_argument(
        "--recordings",
        metavar="DIR",
        type=Path,
        help="recorded pairs NAME.serve.jsonl.gz and NAME.train.jsonl.gz (default: $PARITAS_RECORDINGS, else the shipped ones)",
    )
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of tables")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run, show and write; return the exit code of the result."""
    if arguments.list:
        return _list()
    if arguments.name is None:
        raise UsageError("no experiment named", hint="paritas experiment --list names them")
    from paritas.commands.experiments.registry import find, run_experiment
    from paritas.commands.experiments.result import Setting
    from paritas.commands.experiments.writing import made_folder

    find(arguments.name)
    folder = made_folder(arguments.out) if arguments.out is not None else None  # before minutes are spent
    setting = Setting(_seed(arguments.seed), arguments.quick, _recordings(arguments))
    result = run_experiment(arguments.name, setting)
    _tell(result, folder, as_json=arguments.json)
    return result.exit_code


def _seed(seed: int) -> int:
    if seed < 0:
        raise UsageError(f"--seed must be 0 or more, got {seed}")
    return seed


def _recordings(arguments: argparse.Namespace) -> Path | None:
    told = arguments.recordings or os.environ.get("PARITAS_RECORDINGS")
    if not told:
        return None
    folder = Path(told)
    if not folder.is_dir():
        raise UsageError(
            f"{folder}: no such folder", hint="--recordings takes a folder with NAME.serve.jsonl.gz files"
        )
    return folder


def _tell(result: "Result", folder: Path | None, *, as_json: bool) -> None:
    from paritas.commands.experiments.writing import show, write
    from paritas.commands.report import wide_console

    files, missing = write(result, folder) if folder is not None else ([], "")
    if as_json:
        say(json.dumps(result.as_dict(), indent=2, allow_nan=False) + "\n")
        return
    console = wide_console()
    show(result, console)
    if files:
        console.print(f"\nwritten to {folder}: {', '.join(path.name for path in files)}", markup=False)
    if missing:
        console.print(missing, markup=False)


def _list() -> int:
    from paritas.commands.experiments.registry import EXPERIMENTS
    from paritas.commands.report import wide_console

    width = max(map(len, EXPERIMENTS))
    for name, experiment in EXPERIMENTS.items():
        wide_console().print(f"{name:{width}}  {experiment.says} ({experiment.takes})", markup=False)
    return 0
