"""The option ``--notify`` of the commands that run a controller."""

import argparse
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paritas.commands.places import DataFolder
    from paritas.commands.reaching import Reach
    from paritas.controller.notify.notifier import Notifier

__all__ = ["add_notify_option", "farewell", "notifying"]

SUBSCRIBER = "paritas-notify"


def add_notify_option(parser: argparse.ArgumentParser) -> None:
    """Add it to a parser."""
    parser.add_argument(
        "--notify",
        metavar="FILE",
        type=Path,
        help="notify.yaml: who is told, by webhook, Slack or Alertmanager",
    )


@contextmanager
def notifying(file: Path | None, folder: "DataFolder", reach: "Reach") -> "Iterator[Notifier | None]":
    """Tell people during the block, if a file says whom.

    Raises
    ------
    UsageError, ConfigError
        The file or the notification log cannot be used.
    """
    if file is None:
        yield None
        return
    from paritas.clock import SystemClock
    from paritas.commands.notify_file import load_plan
    from paritas.controller.client import StartAt, SubscriptionOptions
    from paritas.controller.notify.log import NotificationLog
    from paritas.controller.notify.notifier import Notifier

    plan, kept = load_plan(file), NotificationLog(folder.notifications)
    options = SubscriptionOptions(start=StartAt.SNAPSHOT)
    name = (
        f"{SUBSCRIBER}-{secrets.token_hex(8)}"  # whoever knew it could end the subscription by one of its own
    )
    with reach.client() as client:
        follow = lambda: client.subscribe(name, options)  # noqa: E731  # a name would say no more
        with Notifier(plan, follow, kept, clock=SystemClock()) as notifier:
            yield notifier
        sys.stdout.write(farewell(notifier))


def farewell(notifier: "Notifier") -> str:
    """Say what was told to whom; nothing if nothing was."""
    counts = [(name.split(":"), n) for name, n in sorted(notifier.counts.items()) if ":" in name]
    sent = ", ".join(f"{n} to {name[1]}" for name, n in counts if name[0] == "sent")
    failed = [(n, f"{n} {name[1]} at {name[2]}") for name, n in counts if name[0] == "failed"]
    tries = f"{sum(n for n, _ in failed)} tries failed"
    tries += f" ({', '.join(words for _, words in failed)})" if failed else ""
    return f"people were told: {sent or 'nothing'}; {tries}\n" if notifier.counts else ""
