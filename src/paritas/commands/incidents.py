"""`paritas incidents`: what is open, and what people say of it: seen, silenced, silence ended."""

import argparse
import getpass
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from paritas.clock import NS_PER_S
from paritas.commands.jsonable import finite
from paritas.commands.reaching import add_reach_options, reach_of
from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.contracts.model import Requirement
    from paritas.controller.model import Incident
    from paritas.controller.silences import Silence

__all__ = ["register"]


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "incidents",
        help="list, acknowledge and silence",
        description="What is open, and what people say of it.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listed = verbs.add_parser("list", help="open incidents, oldest first")
    listed.add_argument("--all", action="store_true", help="closed ones too")
    ack = verbs.add_parser("ack", help="say that somebody has seen it")
    ack.add_argument("incident", help="its id")
    silence = verbs.add_parser("silence", help="stop actions and messages for a while; state goes on")
    silence.add_argument("matcher", nargs="+", help="FIELD=VALUE[,VALUE]; all must hold")
    silence.add_argument(
        "--for", dest="duration", required=True, metavar="DURATION", help="such as 30m; it always ends"
    )
    expire = verbs.add_parser("expire", help="end a silence now")
    expire.add_argument("silence", help="its id")
    silences = verbs.add_parser("silences", help="those that have not ended")
    for verb, run in ((listed, run_list), (ack, run_ack), (silence, run_silence), (expire, run_expire)):
        verb.set_defaults(run=run)
    silences.set_defaults(run=run_silences)
    for verb in (ack, silence, expire):
        verb.add_argument("--author", default="", help="who says so (default: this user)")
    for verb in (ack, silence):
        verb.add_argument("--comment", default="", help="why")
    for verb in (listed, ack, silence, expire, silences):
        add_reach_options(verb)
        verb.add_argument("--json", action="store_true", help="one JSON object a line")


def run_list(arguments: argparse.Namespace) -> int:
    """Print the incidents."""
    with reach_of(arguments).client() as client:
        _print(arguments, list(client.incidents(include_closed=arguments.all)), _incident)
    return 0


def run_ack(arguments: argparse.Namespace) -> int:
    """Acknowledge one."""
    with reach_of(arguments).client() as client:
        said = client.acknowledge(arguments.incident, author=_author(arguments), comment=arguments.comment)
    _print(arguments, [said], lambda a: f"{a.incident_id} seen by {a.author}")
    return 0


def run_silence(arguments: argparse.Namespace) -> int:
    """Create a silence."""
    matchers = [_matcher(text) for text in arguments.matcher]
    said = {
        "author": _author(arguments),
        "comment": arguments.comment,
        "duration_s": _seconds(arguments.duration),
    }
    with reach_of(arguments).client() as client:
        _print(arguments, [client.silence(matchers, **said)], _silence)
    return 0


def run_expire(arguments: argparse.Namespace) -> int:
    """End a silence."""
    with reach_of(arguments).client() as client:
        _print(arguments, [client.expire_silence(arguments.silence, author=_author(arguments))], _silence)
    return 0


def run_silences(arguments: argparse.Namespace) -> int:
    """Print the silences."""
    with reach_of(arguments).client() as client:
        _print(arguments, client.silences(), _silence)
    return 0


def _print(arguments: argparse.Namespace, records: Sequence[Any], text: Callable[[Any], str]) -> None:
    for record in records:
        line = json.dumps(finite(asdict(record)), default=str) if arguments.json else text(record)
        sys.stdout.write(f"{line}\n")


def _incident(incident: "Incident") -> str:
    e = incident.current
    marks = [
        mark for mark, on in (("seen", incident.acknowledgement), ("silenced", incident.suppression)) if on
    ]
    return (
        f"{e.incident_id}  {e.after:<10} {incident.peak:<8} {e.clause} {e.slice}  {e.summary}{_marked(marks)}"
    )


def _marked(marks: Sequence[str]) -> str:
    return f" [{', '.join(marks)}]" if marks else ""


def _silence(silence: "Silence") -> str:
    ends = datetime.fromtimestamp(silence.ends_ns / NS_PER_S, tz=UTC).isoformat(timespec="seconds")
    what = " ".join(f"{m.field}={','.join(map(str, m.values))}" for m in silence.matchers)
    return f"{silence.silence_id}  until {ends}  {what}  by {silence.author}: {silence.comment}"


def _author(arguments: argparse.Namespace) -> str:
    name: str = arguments.author
    with suppress(OSError, KeyError):  # a container's user may have no name
        name = name or getpass.getuser()
    return name


def _matcher(text: str) -> "Requirement":
    from paritas.contracts.model import Operator, Requirement

    field, equals, values = text.partition("=")
    if not equals or not values:
        raise UsageError(f"{text!r} is not a matcher", hint="write FIELD=VALUE, such as clause=token-tv")
    return Requirement(field, Operator.IN, tuple(values.split(",")))


def _seconds(text: str) -> float:
    from paritas.contracts.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(
            f"--for: {text!r} is not a duration", hint="a number and a unit, such as 30m"
        ) from error
