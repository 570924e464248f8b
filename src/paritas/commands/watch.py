"""`paritas watch`: subscribe to escalations."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from math import isfinite
from typing import TYPE_CHECKING

from paritas.commands.jsonable import finite
from paritas.commands.places import DataFolder, default_folder
from paritas.commands.reaching import add_reach_options, reach_of

if TYPE_CHECKING:
    from paritas.controller.client import Delivery
    from paritas.records import Escalation

__all__ = ["escalation_lines", "register"]

START = {"now": "now", "snapshot": "snapshot_then_follow", "resume": "resume"}


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "watch", help="subscribe to escalations", description="Prints escalations as they happen."
    )
    add_reach_options(parser)
    parser.add_argument(
        "--id",
        dest="subscriber",
        default="paritas-watch",
        help="subscriber id, under which acknowledgements are kept",
    )
    parser.add_argument(
        "--from",
        dest="start",
        choices=sorted(START),
        default="snapshot",
        help="where to start (default: snapshot)",
    )
    parser.add_argument(
        "--count", type=int, default=0, help="stop after so many escalations (default: never)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    peers = parser.add_argument_group("what other frameworks would print, instead of escalations")
    peers.add_argument("--peers", action="store_true", help="print it for the latest sequences, by peer")
    peers.add_argument(
        "--metrics",
        default="",
        metavar="WHERE",
        help="HOST:PORT or URL of the metrics (default: of the instance)",
    )
    peers.add_argument("--every", type=float, default=5.0, help="seconds between two prints (default: 5)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print until interrupted, or until `--count` escalations came."""
    if arguments.peers:
        return _run_peers(arguments)
    from paritas.controller.client import StartAt, SubscriptionOptions

    options = SubscriptionOptions(start=StartAt(START[arguments.start]), auto_ack=True)
    show = _json_line if arguments.json else _News().text
    reach = reach_of(arguments)
    with (
        reach.client() as client,
        client.subscribe(arguments.subscriber, options) as deliveries,
    ):
        reach.check()
        _print(deliveries, show, arguments.count)
    return 0


def _run_peers(arguments: argparse.Namespace) -> int:
    from paritas.clock import SystemClock
    from paritas.commands.peer_view import follow_peers, page_of

    page = page_of(arguments.metrics, DataFolder(arguments.data or default_folder(os.environ)))
    follow_peers(page, clock=SystemClock(), every_s=arguments.every, count=arguments.count)
    return 0


def _print(deliveries: Iterator["Delivery"], show: Callable[["Delivery"], str], count: int) -> None:
    seen = 0
    for delivery in deliveries:
        text = show(delivery)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
        seen += delivery.escalation is not None or delivery.incident is not None
        if count and seen >= count:
            return


def _escalation(delivery: "Delivery") -> "Escalation | None":
    return delivery.incident.current if delivery.incident is not None else delivery.escalation


def _json_line(delivery: "Delivery") -> str:
    """The escalation with how it arrived; what is not a number is null."""
    escalation = _escalation(delivery)
    if escalation is None:
        return ""
    told = {
        "kind": delivery.kind.value,
        "suppressed": delivery.suppression is not None,
        **escalation.as_dict(),
    }
    return json.dumps(finite(told), default=str) + "\n"


class _News:
    """For people: what lasts is told again every few minutes, and is printed once."""

    def __init__(self) -> None:
        self._printed: dict[str, int] = {}

    def text(self, delivery: "Delivery") -> str:
        """Return the lines of a transition that was not printed yet."""
        escalation = _escalation(delivery)
        if escalation is None or self._printed.get(escalation.incident_id) == escalation.transition:
            return ""
        self._printed[escalation.incident_id] = escalation.transition
        return _text(delivery)


def _text(delivery: "Delivery") -> str:
    escalation = _escalation(delivery)
    if escalation is None:
        return ""
    note = "  (silenced: no action)\n" if delivery.suppression is not None else ""
    return "".join(f"{line}\n" for line in escalation_lines(escalation)) + note


def escalation_lines(escalation: "Escalation") -> Iterator[str]:
    """What a subscriber reads: severity and summary, evidence, cause, what is asked for, where to look."""
    yield f"{escalation.severity.value.upper():8} {escalation.contract} {escalation.contract_version}  {escalation.summary}"
    v = escalation.verdict
    yield (
        f"         evidence 10^{v.log10_e:.1f} where 10^{v.threshold_log10:.1f} suffices, "
        f"{v.units} sequences, {v.tokens} tokens"
        if isfinite(v.log10_e) and isfinite(v.threshold_log10)
        else f"         {v.reason.value}, {v.units} sequences"
    )
    for finding in escalation.diagnosis[:2]:
        yield f"         {finding.cause} ({finding.confidence:.0%}): {finding.advice}"
    if escalation.actions:
        yield "         asks for " + ", ".join(
            f"{a.kind} {_arguments(a.arguments)}".strip() for a in escalation.actions
        )
    if escalation.trace_ids:
        yield f"         trace {escalation.trace_ids[0]}"


def _arguments(arguments: object) -> str:
    return " ".join(f"{k}={v}" for k, v in dict(arguments).items()) if isinstance(arguments, dict) else ""
