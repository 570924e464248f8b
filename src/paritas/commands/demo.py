"""`paritas demo`: real recordings through the real service: healthy, then one stale replica, then top-p on one side."""

import argparse
import queue
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from paritas.clock import Clock
    from paritas.commands.up import Up
    from paritas.contracts.model import Contract
    from paritas.controller.client import Delivery, Subscription
    from paritas.records import Escalation, Verdict
    from paritas.wire import WireRecord
    from paritas.wire.sender import Sender

__all__ = ["ACTS", "Act", "register"]

CHUNK = 8  # traces sent between two looks at the verdicts
PAUSE_S = 0.06  # so that a person can follow; nothing waits where no terminal watches
DEADLINE_S = 20.0  # of each act; far above what one takes
SETTLED_S = 1.2  # after the last escalation that was published: what comes then is one too many


@dataclass(frozen=True, slots=True)
class Act:
    """One part of the demo: recordings, and what must come of them.

    Attributes
    ----------
    where, cause : str
        Slice and cause the escalations must name; empty when none may come.
    """

    run_id: str
    title: str
    serve: str
    train: str
    where: str = ""
    cause: str = ""


ACTS = (
    Act(
        "healthy", "1. A healthy pair: vLLM bfloat16 beside PyTorch float32", "healthy.serve", "healthy.train"
    ),
    Act(
        "stale",
        "2. One of four replicas serves old weights (the trainer is four steps ahead of it)",
        "healthy.serve",
        "stale.train",
        where="replica=r2",
        cause="stale_weights",
    ),
    Act(
        "top-p",
        "3. The sampler truncates to top-p 0.9, the trainer does not",
        "top_p.serve",
        "top_p.train",
        where="all",
        cause="support_mismatch",
    ),
)


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="watch real recordings fail: under a minute, nothing to set up",
        description="Starts a service in a temporary folder, streams recordings of real kernels into it and shows what a subscriber receives.",
    )
    parser.add_argument(
        "--contract", default="dense-bf16", help="preset or file to judge by (default: dense-bf16)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Play the acts; return 0 when each ended as it should, 1 otherwise."""
    from paritas.commands.report import wide_console
    from paritas.contracts.load import load_named

    console = wide_console()
    contract = load_named(arguments.contract)
    with tempfile.TemporaryDirectory(prefix="paritas-") as root:
        played = [_played(console, contract, Path(root) / act.run_id, act) for act in ACTS]
    good = all(played)
    console.print(
        "\n[bold green]Each fault was found, named and escalated; the healthy pair was left alone.[/]"
        if good
        else "\n[bold red]The demo did not go as it should.[/]"
    )
    console.print(
        "[dim]Next: [/]paritas check dense-bf16 --serve FILE --train FILE  [dim]on recordings of yours, or[/]  paritas up"
    )
    return 0 if good else 1


def _played(console: "Console", contract: "Contract", root: Path, act: Act) -> bool:
    """Play one act against a service of its own."""
    from paritas.clock import SystemClock
    from paritas.commands.places import DataFolder
    from paritas.commands.up import running
    from paritas.wire.sender import Sender

    console.print(f"\n[bold]{act.title}[/]")
    with (
        running(contract, DataFolder(root), listen="127.0.0.1:0") as up,
        _subscriber(up.target, act.run_id) as inbox,
        Sender(up.folder.socket) as sender,
    ):
        stage = _Stage(console, up, SystemClock(), act)
        stage.stream(sender)
        received = stage.receive(inbox)
    return _as_expected(act, received)


def _as_expected(act: Act, received: "list[Escalation]") -> bool:
    """No escalation for a healthy act; otherwise one in the right slice that names the right cause."""
    if not act.where:
        return not received
    causes = {(e.slice, e.diagnosis[0].cause) for e in received if e.diagnosis}
    return (act.where, act.cause) in causes


@contextmanager
def _subscriber(target: str, name: str) -> "Iterator[queue.Queue[Delivery]]":
    """A subscriber of its own, over gRPC, as any other program would be."""
    from paritas.controller.client import EscalationClient, StartAt, SubscriptionOptions

    inbox: queue.Queue[Delivery] = queue.Queue()
    options = SubscriptionOptions(start=StartAt.SNAPSHOT, auto_ack=True)
    with EscalationClient(target) as client, client.subscribe(f"demo-{name}", options) as deliveries:
        thread = threading.Thread(target=_collect, args=(deliveries, inbox), name="subscriber", daemon=True)
        thread.start()
        try:
            yield inbox
        finally:
            deliveries.close()
            thread.join()


def _collect(deliveries: "Subscription", inbox: "queue.Queue[Delivery]") -> None:
    for delivery in deliveries:
        inbox.put(delivery)


class _Stage:
    """Streams one act and shows it."""

    def __init__(self, console: "Console", up: "Up", clock: "Clock", act: Act) -> None:
        self._console, self._up, self._clock, self._act = console, up, clock, act
        self._never = threading.Event()

    def stream(self, sender: "Sender") -> None:
        """Send the recordings piece by piece, judging as they arrive, with a live table where one has room."""
        sent = 0
        with self._live() as live:
            for sent, record in enumerate(self._records(), start=1):
                sender.send(record)
                if sent % CHUNK == 0:
                    self._up.loop.step()
                    if live is not None:
                        live.update(self._table(sent), refresh=True)
                        self._clock.wait(self._never, timeout_s=PAUSE_S)
            self._settle()
            if live is not None:
                live.update(self._table(sent), refresh=True)
        if live is None:
            self._console.print(self._table(sent))

    def _live(self) -> "AbstractContextManager[Live | None]":
        """A table that is drawn over itself; None where a row would be wrapped, and so not be drawn over."""
        from rich.console import Console
        from rich.live import Live

        if not self._console.is_terminal or Console().width < self._console.width:
            return nullcontext()
        return Live(console=self._console, auto_refresh=False, transient=False)

    def _settle(self) -> None:
        """Step until everything is judged and one idle tick has closed the last cohort."""
        start_ns = self._clock.monotonic_ns()
        while self._clock.monotonic_ns() - start_ns < DEADLINE_S * 1e9:
            taken = self._up.loop.step()
            if not taken and not self._up.loop.detector.pairer.open_cohorts:
                return
            self._clock.wait(self._never, timeout_s=0.05)

    def _records(self) -> "Iterator[WireRecord]":
        from paritas.collectors.dumps import ReadOptions, read_dump
        from paritas.commands.ingest import STEP_NS, alternate
        from paritas.records import TokenTrace
        from paritas.wire import encode

        options = ReadOptions(
            self._up.folder.hasher(), run_id=self._act.run_id, base_ns=self._clock.now_ns(), step_ns=STEP_NS
        )
        with _shipped(self._act.serve) as serve, _shipped(self._act.train) as train:
            for item in alternate([read_dump(serve, options), read_dump(train, options)]):
                assert isinstance(item, TokenTrace), item  # shipped files have no bad line; tests read them
                yield from encode([item], resource={"service.name": "paritas-demo"})

    def _table(self, sent: int) -> "Table":
        from paritas.commands.report import verdict_table

        verdicts = self._up.loop.detector.verdicts()
        table = verdict_table(_interesting(verdicts))
        table.title = f"{sent} traces sent"
        return table

    def receive(self, inbox: "queue.Queue[Delivery]") -> "list[Escalation]":
        """Show escalations as the subscriber gets them: all that were published, and whatever comes after them."""
        from paritas.commands.watch import escalation_lines

        received = list(_arriving(inbox, self._up.loop.published))
        shown = _most_telling(received, self._act)
        self._console.print(
            f"  a subscriber on {self._up.target} received {len(received)} escalations"
            + (":" if shown else ", as it should.")
        )
        for escalation in shown:
            for line in escalation_lines(escalation):
                self._console.print("  " + line, markup=False)
        return received


def _arriving(inbox: "queue.Queue[Delivery]", published: int) -> "Iterator[Escalation]":
    """So many escalations, however busy the machine, and then others until none has come for `SETTLED_S`."""
    while True:
        try:
            delivery = inbox.get(timeout=DEADLINE_S if published > 0 else SETTLED_S)
        except queue.Empty:
            return
        escalation = delivery.incident.current if delivery.incident is not None else delivery.escalation
        if escalation is not None:
            published -= 1
            yield escalation


def _interesting(verdicts: "tuple[Verdict, ...]") -> "list[Verdict]":
    """The statistics in the whole traffic, and whatever is violated."""
    from paritas.records import State

    statistical = [v for v in verdicts if v.family in ("numerical", "statistical")]
    return [v for v in statistical if v.slice == "all" or v.state is State.VIOLATED]


def _most_telling(received: "list[Escalation]", act: Act) -> "list[Escalation]":
    """The escalation in the expected slice first, then one other."""
    ranked = sorted(received, key=lambda e: (e.slice != act.where, -e.verdict.log10_e))
    return ranked[:2]


@contextmanager
def _shipped(name: str) -> Iterator[Path]:
    """A recording of the package as a file."""
    with as_file(files("paritas") / "data" / f"{name}.jsonl.gz") as path:
        yield path
