"""Drivers by name, with their settings checked: what ``routes.yaml`` can ask for."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Any

from paritas.clock import Clock
from paritas.controller.drivers.driver import Driver
from paritas.controller.routing.model import Fleet
from paritas.errors import UsageError

__all__ = ["KINDS", "open_driver"]

Maker = Callable[[Mapping[str, object], Fleet, Clock], Driver]


def open_driver(kind: str, settings: Mapping[str, object], fleet: Fleet, clock: Clock) -> Driver:
    """Return the driver `kind`, not yet entered.

    Raises
    ------
    UsageError
        There is no such driver, a setting is unknown, missing or wrong, or a package is not there.
    """
    if kind not in KINDS:
        raise UsageError(f"driver: there is none called {kind!r}", hint=f"one of {', '.join(sorted(KINDS))}")
    try:
        return KINDS[kind](settings, fleet, clock)
    except ModuleNotFoundError as error:
        message = f"driver {kind!r} needs {error.name}, which is not installed"
        raise UsageError(message, hint="pip install 'paritas[control]'") from error


def _envoy(settings: Mapping[str, object], fleet: Fleet, clock: Clock) -> Driver:
    from paritas.controller.drivers.envoy import EnvoyDriver, EnvoySettings

    return EnvoyDriver(_checked("envoy", EnvoySettings, settings), fleet, clock)


def _router(dialect: str, settings: Mapping[str, object], fleet: Fleet, clock: Clock) -> Driver:
    from paritas.controller.drivers.worker_router import Dialect, WorkerRouterDriver, WorkerRouterSettings

    checked = _checked(dialect, WorkerRouterSettings, settings)
    return WorkerRouterDriver(Dialect(dialect), checked, fleet, clock)


def _webhook(settings: Mapping[str, object], fleet: Fleet, clock: Clock) -> Driver:
    from paritas.controller.drivers.webhook import WebhookDriver, WebhookSettings

    return WebhookDriver(_checked("webhook", WebhookSettings, settings), fleet, clock)


def _file(settings: Mapping[str, object], fleet: Fleet, clock: Clock) -> Driver:
    from paritas.controller.drivers.file import FileDriver, FileSettings

    return FileDriver(_checked("file", FileSettings, settings), fleet, clock)


def _kubernetes(settings: Mapping[str, object], fleet: Fleet, clock: Clock) -> Driver:
    from paritas.controller.drivers.kubernetes_label import KubernetesLabelDriver, KubernetesSettings

    return KubernetesLabelDriver(_checked("kubernetes-label", KubernetesSettings, settings), fleet, clock)


KINDS: Mapping[str, Maker] = {
    "envoy": _envoy,
    "sglang-router": partial(_router, "sglang-router"),
    "vllm-router": partial(_router, "vllm-router"),
    "webhook": _webhook,
    "file": _file,
    "kubernetes-label": _kubernetes,
}


def _checked(kind: str, record: type[Any], settings: Mapping[str, object]) -> Any:
    """Make the settings' record: names known, none missing, each of its type."""
    declared = {field.name: field for field in fields(record)}
    for name in settings:
        if name not in declared:
            raise UsageError(
                f"driver {kind!r}: unknown setting {name!r}", hint=f"one of {', '.join(declared)}"
            )
    for name, field in declared.items():
        if field.default is MISSING and name not in settings:
            raise UsageError(f"driver {kind!r}: {name!r} is missing")
    values = {name: _value(kind, name, declared[name].type, value) for name, value in settings.items()}
    try:
        return record(**values)
    except UsageError as error:
        raise UsageError(f"driver {kind!r}: {error}", hint=error.hint) from error


def _value(kind: str, name: str, declared: Any, value: object) -> object:
    """A number where a number is due, text elsewhere; text becomes a path where a path is due."""
    if declared is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"driver {kind!r}: {name!r} must be a number, got {value!r}")
        return float(value)
    if not isinstance(value, str):
        raise UsageError(f"driver {kind!r}: {name!r} must be text, got {value!r}")
    return value if declared is str else Path(value)
