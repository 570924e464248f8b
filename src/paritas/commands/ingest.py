"""`paritas ingest`: send recordings to a running `paritas up`."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.places import DataFolder, default_folder
from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.collectors.accounting import Accounting
    from paritas.collectors.dumps import Problem, ReadOptions
    from paritas.records import TokenTrace
    from paritas.wire.sender import Sender

__all__ = ["Told", "alternate", "register", "send_all"]

STEP_NS = 10_000_000  # recordings without times are laid out at a hundred sequences a second
SHOWN_PROBLEMS = 10
COUNTED_BYTES = 64 << 20


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "ingest",
        help="send recordings to a running instance",
        description="Sends recorded traces, both kernels in turn. Exit code: 0 all lines sent, 3 some lines could not be read.",
    )
    parser.add_argument(
        "paths", metavar="FILE", nargs="+", type=Path, help="recordings or dumps; formats are recognised"
    )
    parser.add_argument("--data", type=Path, help="folder of the running instance")
    parser.add_argument(
        "--run", dest="run_id", default="recording", help="run id of the traces (default: recording)"
    )
    parser.add_argument(
        "--attribute",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="add an attribute to every trace",
    )
    parser.add_argument(
        "--follow", action="store_true", help="go on as the (one) file or folder grows, until interrupted"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Send everything; problems go to standard error, one clear line each."""
    from paritas.clock import SystemClock
    from paritas.collectors.dumps import ReadOptions, read_dump
    from paritas.wire.sender import Sender

    folder = DataFolder(arguments.data or default_folder(os.environ))
    folder.running()
    extra = dict(map(_attribute, arguments.attribute))
    options = ReadOptions(
        folder.hasher(), run_id=arguments.run_id, base_ns=SystemClock().now_ns(), step_ns=STEP_NS
    )
    if arguments.follow:
        return _follow(folder, arguments.paths, options, extra)
    streams = [read_dump(path, options) for path in arguments.paths]
    with Sender(folder.socket) as sender:
        told = send_all(sender, _shown(streams, arguments.paths), extra)
    sys.stdout.write(told.line())
    return 3 if told.accounting.problems else 0


def _follow(
    folder: DataFolder, paths: Sequence[Path], options: "ReadOptions", extra: Mapping[str, str]
) -> int:
    """Send what is there and what is added, until SIGINT or SIGTERM."""
    from paritas.clock import SystemClock
    from paritas.collectors.dumps import follow
    from paritas.commands.up import stop_signals
    from paritas.wire.sender import Sender

    if len(paths) != 1:
        raise UsageError(
            "--follow takes one file or folder", hint="start one `paritas ingest --follow` for each"
        )
    with Sender(folder.socket) as sender, stop_signals() as stop:
        told = send_all(sender, follow(paths[0], options, clock=SystemClock(), stop=stop), extra)
    sys.stdout.write(told.line())
    return 3 if told.accounting.problems else 0


def _attribute(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"--attribute {text!r} is not KEY=VALUE")
    return key, value


@dataclass(slots=True)
class Told:
    """What was sent."""

    accounting: "Accounting"
    records: int = 0

    def line(self) -> str:
        """One line for people."""
        sequences = {role.value: account.sequences for role, account in self.accounting.roles.items()}
        told = ", ".join(f"{n} {role} sequences" for role, n in sequences.items()) or "nothing"
        problems = sum(self.accounting.problems.values())
        return (
            f"sent {told} in {self.records} records"
            + (f"; {problems} lines could not be read" if problems else "")
            + "\n"
        )


def alternate(streams: Sequence[Iterator["TokenTrace | Problem"]]) -> Iterator["TokenTrace | Problem"]:
    """Take one item from each stream in turn until all are empty: both kernels advance together."""
    live = list(streams)
    while live:
        for stream in list(live):
            item = next(stream, None)
            if item is None:
                live.remove(stream)
            else:
                yield item


def send_all(sender: "Sender", items: Iterable["TokenTrace | Problem"], extra: Mapping[str, str]) -> Told:
    """Encode and send every trace; count problems and show the first of them."""
    from paritas.collectors.accounting import Accounting
    from paritas.records import TokenTrace
    from paritas.wire import encode

    told = Told(Accounting())
    for item in items:
        told.accounting.add(item)
        if not isinstance(item, TokenTrace):
            _complain(item, sum(told.accounting.problems.values()))
            continue
        traced = replace(item, attributes={**item.attributes, **extra}) if extra else item
        for record in encode([traced], resource={"service.name": "paritas-ingest"}):
            sender.send(record)
            told.records += 1
    return told


def _complain(problem: "Problem", number: int) -> None:
    if number <= SHOWN_PROBLEMS:
        sys.stderr.write(problem.render() + "\n")


def _shown(
    streams: Sequence[Iterator["TokenTrace | Problem"]], paths: Sequence[Path]
) -> Iterator["TokenTrace | Problem"]:
    """Alternate between the streams under a progress bar, where someone watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if not sys.stderr.isatty():
        yield from alternate(streams)
        return
    columns = (TextColumn("sending"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield from progress.track(alternate(streams), total=_items(paths))


def _items(paths: Sequence[Path]) -> float | None:
    """How many items the paths hold, by counting lines; None where counting costs as much as sending."""
    counts = [_items_of(path) for path in paths]
    return None if None in counts else float(sum(n for n in counts if n is not None))


def _items_of(path: Path) -> int | None:
    from paritas.collectors.dumps import DumpFormat, recognise
    from paritas.collectors.dumps.lines import read_lines

    kind = recognise(path)
    if kind is DumpFormat.PRIME_RL or path.stat().st_size > COUNTED_BYTES:
        return None
    lines = sum(1 for _ in read_lines(path, limit_bytes=COUNTED_BYTES))
    return 2 * lines if kind is DumpFormat.NEMO_RL else lines  # one line holds both kernels
