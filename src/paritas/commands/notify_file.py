"""``notify.yaml`` → who is told of what: receivers, groups, inhibitions; every fault with its place."""

from pathlib import Path

from paritas.commands.agent_config import ConfigError, read_fields
from paritas.contracts.found import Fields
from paritas.contracts.shapes import Choice, Duration, Field, Listing, OneOrMany, Record, Text
from paritas.controller.filters import Filter
from paritas.controller.notify.model import FIELDS, Grouping, Inhibition, Receiver, ReceiverKind
from paritas.controller.notify.notifier import Plan
from paritas.controller.notify.sending import url_of
from paritas.errors import UsageError
from paritas.records import Severity

__all__ = ["load_plan", "read_plan"]

NAME = Text(r"^[A-Za-z0-9_.-]{1,64}$", "letters, digits, '.', '_' and '-', at most 64")
VALUE = Text(r"^[^\x00-\x1f\x7f]{1,256}$", "plain text")
PATH = Text(r"^[^\x00-\x1f\x7f]{1,4096}$", "a path")
# The severity of an incident changes: a group by it would end and begin.
GROUPED = tuple(name for name in FIELDS if name != "severity")
MATCH = Record("match", tuple(Field(name, OneOrMany(VALUE), "values that match") for name in FIELDS))
ONLY = Record(
    "only",
    (
        Field("contracts", Listing(VALUE, is_set=True), "these contracts"),
        Field("policies", Listing(VALUE, is_set=True), "these policies"),
        Field("clauses", Listing(VALUE, is_set=True), "these clauses"),
        Field("slices", Listing(VALUE, is_set=True), "these slices"),
        Field("min_severity", Choice(tuple(Severity)), "the worst it has reached (default info)"),
    ),
)
GROUP = Record(
    "group",
    (
        Field(
            "by", Listing(Choice(GROUPED), is_set=True), "fields that make a group (default contract, policy)"
        ),
        Field("wait", Duration(), "from a group's first incident to its first message (default 30s)"),
        Field("interval", Duration(), "least time between two messages of a group (default 5m)"),
        Field("repeat", Duration(), "a group that still fires is told again (default 4h)"),
    ),
)
RECEIVER = Record(
    "receiver",
    (
        Field("name", NAME, "its name", is_required=True),
        Field("kind", Choice(tuple(ReceiverKind)), "how it is spoken to", is_required=True),
        Field("url", VALUE, "where to post; https, or this machine"),
        Field("url_file", PATH, "a file that holds the URL, if it is a secret"),
        Field("key_file", PATH, "a file that holds the key that signs a webhook, or a bearer token"),
        Field("only", ONLY, "which incidents it wants (default all)"),
        Field("group", GROUP, "when incidents become one message"),
    ),
)
INHIBITION = Record(
    "inhibition",
    (
        Field("source", MATCH, "while an incident matches this", is_required=True),
        Field("target", MATCH, "those that match this are not told", is_required=True),
        Field(
            "equal", Listing(Choice(FIELDS), is_set=True), "fields that must agree (default policy, slice)"
        ),
    ),
)
SHAPE = Record(
    "notify",
    (
        Field("receivers", Listing(RECEIVER, at_least=1), "who is told", is_required=True),
        Field("inhibitions", Listing(INHIBITION), "what is not worth telling"),
    ),
)
HINTS = {
    "paritas contract init writes one": "receivers are required",
    "one contract a file: split it at '---'": "one file of receivers",
    "is this a contract? recordings belong in their own files": "is this notify.yaml?",
}
_LEASED = Grouping(wait_s=0.0, interval_s=0.0, repeat_s=60.0)  # Alertmanager groups by itself


def load_plan(path: Path) -> Plan:
    """Read ``notify.yaml``.

    Raises
    ------
    UsageError
        It cannot be read.
    ConfigError
        It is not valid: every fault, with its place.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {error.strerror}", hint="name the file of receivers"
        ) from error
    return read_plan(content, str(path))


def read_plan(content: bytes, file: str) -> Plan:
    """Read a plan from bytes; `file` is the name that errors show."""
    fields = read_fields(SHAPE, content, file, hints=HINTS)
    receivers = tuple(_receiver(section) for section in fields.values("receivers"))
    _refuse_doubles(fields, receivers)
    inhibitions = tuple(_inhibition(section) for section in fields.values("inhibitions"))
    return Plan(receivers, inhibitions)


def _receiver(fields: Fields) -> Receiver:
    kind = ReceiverKind(fields.get("kind"))
    receiver = Receiver(
        fields.get("name"),
        kind,
        fields.get("url", ""),
        _path(fields, "url_file"),
        _path(fields, "key_file"),
        _filter(fields.record("only")),
        _grouping(fields.record("group"), _LEASED if kind is ReceiverKind.ALERTMANAGER else Grouping()),
    )
    try:
        url_of(receiver)
    except UsageError as error:
        raise ConfigError(f"{fields.place}: {error}", hint=error.hint) from error
    return receiver


def _path(fields: Fields, name: str) -> Path | None:
    return Path(fields.get(name)) if name in fields else None


def _filter(fields: Fields) -> Filter:
    names = ("contracts", "clauses", "slices", "policies")
    sets = {name: frozenset(fields.values(name)) for name in names}
    return Filter(**sets, min_severity=Severity(fields.get("min_severity", Severity.INFO)))


def _grouping(fields: Fields, default: Grouping) -> Grouping:
    return Grouping(
        fields.values("by") or default.by,
        fields.get("wait", default.wait_s),
        fields.get("interval", default.interval_s),
        fields.get("repeat", default.repeat_s),
    )


def _inhibition(fields: Fields) -> Inhibition:
    equal = fields.values("equal") if "equal" in fields else ("policy", "slice")
    return Inhibition(_matched(fields.record("source")), _matched(fields.record("target")), equal)


def _matched(fields: Fields) -> dict[str, frozenset[str]]:
    named = {name: fields.values(name) for name in FIELDS if name in fields}
    if not named:
        raise ConfigError(
            f"{fields.place}: matches everything", hint=f"name at least one of {', '.join(FIELDS)}"
        )
    return {name: frozenset(values) for name, values in named.items()}


def _refuse_doubles(fields: Fields, receivers: tuple[Receiver, ...]) -> None:
    names = [receiver.name for receiver in receivers]
    for section, name in zip(fields.values("receivers"), names, strict=True):
        if names.count(name) > 1:
            raise ConfigError(f"{section.place}: two receivers are called {name!r}", hint="names are unique")
