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
    from paritas.commands.ingest_passes import Passes, PatientSender
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
        "--agent",
        metavar="TARGET",
        default="",
        help="send to this agent and to no instance of the folder: unix:/path or http://HOST:PORT",
    )
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
    _add_pass_options(parser.add_argument_group("traffic that never ends"))
    parser.set_defaults(run=run)


def _add_pass_options(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--every",
        metavar="DURATION",
        default="",
        help="send everything again so often, as new sequences of that moment, until interrupted",
    )
    group.add_argument(
        "--passes", metavar="N", type=int, default=0, help="with --every: end after so many (default: never)"
    )
    group.add_argument(
        "--then",
        metavar="FILE",
        nargs="+",
        action="append",
        default=[],
        type=Path,
        help="with --passes: go on with these for as many passes, then with the first again, until interrupted",
    )


def run(arguments: argparse.Namespace) -> int:
    """Send everything; problems go to standard error, one clear line each."""
    from paritas.clock import SystemClock
    from paritas.collectors.dumps import ReadOptions, read_dump

    passes = _passes(arguments)
    folder = DataFolder(arguments.data or default_folder(os.environ))
    if arguments.agent:
        folder.make()  # the key that names tokens lies there
    else:
        folder.running()
    extra = dict(map(_attribute, arguments.attribute))
    options = ReadOptions(
        folder.hasher(), run_id=arguments.run_id, base_ns=SystemClock().now_ns(), step_ns=STEP_NS
    )
    sender = _sender(arguments.agent, folder)
    if arguments.follow:
        return _follow(sender, arguments.paths, options, extra)
    if passes is not None:
        return _repeat(sender, passes, options, extra)
    streams = [read_dump(path, options) for path in arguments.paths]
    with sender:
        told = send_all(sender, _shown(streams, arguments.paths), extra)
    return _end(told)


def _passes(arguments: argparse.Namespace) -> "Passes | None":
    """How often everything is sent; None for once."""
    from paritas.commands.ingest_passes import Passes
    from paritas.contracts.durations import parse_duration

    if not arguments.every:
        if arguments.passes or arguments.then:
            raise UsageError("--passes and --then need --every", hint="such as --every 15s")
        return None
    if arguments.follow:
        raise UsageError(
            "--every and --follow exclude each other", hint="a growing file has no end to repeat"
        )
    try:
        every_s = parse_duration(arguments.every)
    except ValueError as error:
        raise UsageError(f"--every {arguments.every!r} is no duration", hint="write 15s or 1m") from error
    if every_s <= 0 or arguments.passes < 0:
        raise UsageError("--every and --passes must be above 0", hint="such as --every 15s --passes 4")
    if arguments.then and not arguments.passes:
        raise UsageError("--then needs --passes", hint="the first recordings would never end")
    acts = (tuple(arguments.paths), *map(tuple, arguments.then))
    return Passes(every_s, acts, arguments.passes)


def _sender(agent: str, folder: DataFolder) -> "Sender":
    """The sender to an agent, or to the running instance of a folder; not yet entered."""
    from paritas.otlp_http import target_of
    from paritas.wire.sender import Sender

    return Sender(target_of(agent, name="--agent") if agent else folder.socket)


def _end(told: "Told") -> int:
    """Say what was sent; return the exit code."""
    sys.stdout.write(told.line())
    return 3 if told.unread else 0


def _follow(sender: "Sender", paths: Sequence[Path], options: "ReadOptions", extra: Mapping[str, str]) -> int:
    """Send what is there and what is added, until SIGINT or SIGTERM."""
    from paritas.clock import SystemClock
    from paritas.collectors.dumps import follow
    from paritas.commands.signals import stop_signals

    if len(paths) != 1:
        raise UsageError(
            "--follow takes one file or folder", hint="start one `paritas ingest --follow` for each"
        )
    with sender, stop_signals() as stop:
        return _end(send_all(sender, follow(paths[0], options, clock=SystemClock(), stop=stop), extra))


def _repeat(sender: "Sender", passes: "Passes", options: "ReadOptions", extra: Mapping[str, str]) -> int:
    """Send everything pass after pass, until SIGINT or SIGTERM; an agent that is away is waited for."""
    from paritas.clock import SystemClock
    from paritas.commands.ingest_passes import PatientSender, paced
    from paritas.commands.signals import stop_signals

    clock = SystemClock()
    with sender, stop_signals() as stop:
        items = paced(passes, options, clock=clock, stop=stop)
        return _end(send_all(PatientSender(sender, clock=clock, stop=stop), items, extra))


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

    @property
    def rotations(self) -> int:
        """How often a followed file was rotated: no trouble, since all of both files is read."""
        from paritas.collectors.dumps.problem import ProblemReason

        return self.accounting.problems.get(ProblemReason.FILE_REPLACED, 0)

    @property
    def unread(self) -> int:
        """Return how many lines could not be read."""
        return sum(self.accounting.problems.values()) - self.rotations

    def line(self) -> str:
        """One line for people."""
        sequences = {role.value: account.sequences for role, account in self.accounting.roles.items()}
        told = ", ".join(f"{n} {role} sequences" for role, n in sequences.items()) or "nothing"
        return (
            f"sent {told} in {self.records} records"
            + (f"; {self.unread} lines could not be read" if self.unread else "")
            + (f"; rotations followed: {self.rotations}" if self.rotations else "")
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


def send_all(
    sender: "Sender | PatientSender", items: Iterable["TokenTrace | Problem"], extra: Mapping[str, str]
) -> Told:
    """Encode and send every trace; count problems and show the first of them."""
    from paritas.collectors.accounting import Accounting
    from paritas.records import TokenTrace
    from paritas.wire import encode

    told = Told(Accounting())
    for item in items:
        told.accounting.add(item)
        if not isinstance(item, TokenTrace):
            _complain(item, told.unread)
            continue
        traced = replace(item, attributes={**item.attributes, **extra}) if extra else item
        for record in encode([traced], resource={"service.name": "paritas-ingest"}):
            sender.send(record)
            told.records += 1
    return told


def _complain(problem: "Problem", number: int) -> None:
    from paritas.collectors.dumps.problem import ProblemReason

    if number <= SHOWN_PROBLEMS and problem.reason is not ProblemReason.FILE_REPLACED:
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
