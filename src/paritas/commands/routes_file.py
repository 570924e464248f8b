"""``routes.yaml`` → fleets and their drivers; every fault with its place, all in one go."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paritas.clock import Clock
from paritas.commands.agent_config import ConfigError, read_fields
from paritas.commands.routes_table import FILE
from paritas.contracts.found import Fields, Found
from paritas.controller.routing.declared import Declared
from paritas.controller.routing.model import ALL, INFERENCE, FailMode, Fleet, Replica, SafetyLimits
from paritas.errors import UsageError

__all__ = ["load_routes", "read_routes"]

# Hints of the contracts' reader that would send a reader of this file astray.
HINTS = {
    "paritas contract init writes one": "routes are required",
    "one contract a file: split it at '---'": "one list of routes",
    "is this a contract? recordings belong in their own files": "is this routes.yaml?",
}
Fault = tuple[str, str]


def load_routes(path: Path, *, clock: Clock, fail_mode: FailMode = FailMode.HOLD) -> tuple[Declared, ...]:
    """Read a file of routes; `fail_mode` is that of a fleet which declares none.

    Raises
    ------
    UsageError
        It cannot be read.
    ConfigError
        It is not valid; carries every fault.
    """
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path}: cannot be read: {reason}", hint="name the file of routes") from error
    return read_routes(content, str(path), clock=clock, fail_mode=fail_mode)


def read_routes(
    content: bytes, file: str, *, clock: Clock, fail_mode: FailMode = FailMode.HOLD
) -> tuple[Declared, ...]:
    """Read routes from bytes; `file` is the name that errors show."""
    found = read_fields(FILE, content, file, hints=HINTS).items("routes")
    faults = [*_doubled(found, "policy"), *(fault for item in found for fault in _faults(item.value))]
    if faults:
        raise _error(faults)
    declared = [_declared(item.value, fail_mode) for item in found]
    faults = [
        f for item, one in zip(found, declared, strict=True) for f in _driver_faults(item.value, one, clock)
    ]
    if faults:
        raise _error(faults)
    return tuple(declared)


def _error(faults: list[Fault]) -> ConfigError:
    hint = faults[0][1] if len(faults) == 1 else ""
    return ConfigError("\n".join(text for text, _ in faults), hint=hint, problems=tuple(faults))


def _declared(fields: Fields, fail_mode: FailMode) -> Declared:
    ((kind, told),) = fields.record("driver").found.items() if "driver" in fields else (("", None),)
    settings = {name: at.value for name, at in told.value.found.items()} if told else {}
    fleet = Fleet(
        policy=fields.get("policy"),
        replicas=tuple(_replica(item.value) for item in fields.items("replicas")),
        slices={name: _headers(at.value) for name, at in fields.record("slices").found.items()},
        limits=_limits(fields.record("limits")),
        fail_mode=FailMode(fields.get("fail_mode", fail_mode)),
        dry_run=fields.get("dry_run", True),
        reference_policy=fields.get("reference_policy", ""),
    )
    return Declared(fleet, kind, settings)


def _replica(fields: Fields) -> Replica:
    return Replica(fields.get("name"), fields.get("kernel"), fields.get("target", ""))


def _headers(fields: Fields) -> dict[str, str]:
    return {name: at.value for name, at in fields.found.items()}


def _limits(fields: Fields) -> SafetyLimits:
    plain = ("minimum_healthy", "share_moved_at_most", "drained_at_most")
    timed = ("ejection", "ejection_at_most", "dwell", "lease")
    told: dict[str, Any] = {name: fields.get(name) for name in plain if name in fields}
    told |= {f"{name}_s": float(fields.get(name)) for name in timed if name in fields}
    return SafetyLimits(**told)


def _faults(fields: Fields) -> Iterator[Fault]:
    """What is wrong with one fleet beyond the shape of its fields."""
    replicas = fields.items("replicas")
    yield from _doubled(replicas, "name")
    yield from _doubled(replicas, "target")
    if all(item.value.get("kernel") != INFERENCE for item in replicas):
        at = fields.at("replicas")
        yield f"{at.place}: {at.path}: no replica serves the inference kernel", "write kernel: inference"
    yield from _slice_faults(fields.record("slices"))
    yield from _limit_faults(fields.record("limits"))
    if "driver" in fields and len(fields.record("driver").found) != 1:
        at = fields.at("driver")
        yield f"{at.place}: {at.path}: expected one driver", "one router a fleet"


def _slice_faults(slices: Fields) -> Iterator[Fault]:
    seen: dict[frozenset[tuple[str, str]], str] = {}
    for name, at in slices.found.items():
        headers = frozenset(_headers(at.value).items())
        if name == ALL:
            yield f"{at.place}: {at.path}: all requests need no headers", "remove it"
        elif not headers:
            yield f"{at.place}: {at.path}: names no header", "write {x-task: math}"
        elif headers in seen:
            yield (
                f"{at.place}: {at.path}: has the headers of slice {seen[headers]!r}",
                "a router could not tell them apart",
            )
        seen.setdefault(headers, name)
        for header, found in at.value.found.items():
            if header != header.lower() or not header.replace("-", "").replace("_", "").isalnum():
                yield (
                    f"{found.place}: {at.path}: {header!r} is no header name",
                    "write it in lower case, such as x-task",
                )


def _limit_faults(limits: Fields) -> Iterator[Fault]:
    try:
        made = _limits(limits)
    except UsageError as error:
        yield f"{limits.place}: {limits.path}: {error}", error.hint
        return
    if made.ejection_at_most_s < made.ejection_s:
        at = limits.at("ejection_at_most")
        yield f"{at.place}: {at.path}: shorter than ejection", f"write at least {made.ejection_s:g}s"


def _doubled(items: tuple[Found, ...], name: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for item in items:
        at = item.value.at(name)
        if at.value is not None and at.value in seen:
            yield f"{at.place}: {at.path}: {at.value!r} is declared twice", "remove one"
        seen.add(at.value)


def _driver_faults(fields: Fields, declared: Declared, clock: Clock) -> Iterator[Fault]:
    """Make the driver, unopened: it checks its own settings, also in a dry run."""
    from paritas.controller.drivers.registry import open_driver

    if not declared.driver:
        return
    at = fields.at("driver")
    try:
        open_driver(declared.driver, declared.settings, declared.fleet, clock)
    except UsageError as error:
        yield f"{at.place}: {at.path}: {error}", error.hint
