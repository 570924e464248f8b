"""The notification log on disk: what every receiver was told, so that a restart says nothing twice."""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritas.controller.convert import escalation_of, escalation_to
from paritas.controller.notify.book import Book
from paritas.controller.notify.grouping import Tells, Told, awaited
from paritas.controller.notify.model import Entry
from paritas.durable import replace_file
from paritas.errors import UsageError
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Severity

__all__ = ["NotificationLog"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class NotificationLog:
    """One file: the groups that were told of, and the incidents whose end must still be told."""

    path: Path

    def load(self) -> tuple[Tells, Book]:
        """Return what it holds; nothing when there is no file yet.

        Raises
        ------
        UsageError
            It cannot be read, or was not written by this version.
        """
        try:
            held = json.loads(self.path.read_bytes())
            _check_version(held)
            tells = {(g["receiver"], tuple(g["values"])): _told(g) for g in held["groups"]}
            return tells, Book({e.current.incident_id: e for e in map(_entry, held["awaited"])})
        except FileNotFoundError:
            return {}, Book({})
        except OSError as error:
            raise UsageError(f"cannot read {str(self.path)!r}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            message = f"{str(self.path)!r} is not a notification log of this version"
            raise UsageError(message, hint="move it away; open incidents are then told once more") from error

    def save(self, tells: Tells, book: Book) -> None:
        """Replace the file; what was told survives a power cut.

        Raises
        ------
        UsageError
            It cannot be written.
        """
        open_ends = (book.entries[i] for i in sorted(awaited(tells)) if i in book.entries)
        held = {
            "version": _VERSION,
            "groups": [_group(*item) for item in tells.items()],
            "awaited": _kept(open_ends),
        }
        try:
            replace_file(self.path, [json.dumps(held, sort_keys=True).encode()])
        except OSError as error:
            raise UsageError(f"cannot write {str(self.path)!r}: {error.strerror}") from error


def _check_version(held: Any) -> None:
    if held["version"] != _VERSION:
        raise ValueError(f"version {held['version']!r}")


def _group(key: tuple[str, tuple[str, ...]], told: Told) -> dict[str, Any]:
    firing = [list(pair) for pair in sorted(told.firing)]
    return {
        "receiver": key[0],
        "values": list(key[1]),
        "since_ns": told.since_ns,
        "sent_ns": told.sent_ns,
        "firing": firing,
    }


def _told(group: dict[str, Any]) -> Told:
    firing = frozenset((str(incident), Severity(severity).value) for incident, severity in group["firing"])
    return Told(int(group["since_ns"]), int(group["sent_ns"]), firing)


def _kept(entries: Iterable[Entry]) -> list[dict[str, str]]:
    return [
        {
            "escalation": base64.b64encode(escalation_to(e.current).SerializeToString()).decode(),
            "peak": e.peak.value,
        }
        for e in entries
    ]


def _entry(kept: dict[str, str]) -> Entry:
    message = pb.Escalation.FromString(base64.b64decode(kept["escalation"], validate=True))
    return Entry(escalation_of(message), Severity(kept["peak"]))
