"""One change between two contracts, and the ways to tell what it does."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from paritas.contracts.model import Place
from paritas.records import Action

__all__ = ["Change", "Effect", "compared", "directed", "directed_set", "keyed", "opposite", "shown"]

T = TypeVar("T")


class Effect(StrEnum):
    """What a change does to the set of kernel pairs that conform."""

    LOOSENS = "loosens"
    TIGHTENS = "tightens"
    NEUTRAL = "neutral"
    INCOMPARABLE = "incomparable"


@dataclass(frozen=True, slots=True)
class Change:
    """One change; `before` or `after` is ``absent`` where the other one has it alone."""

    path: str
    before: str
    after: str
    effect: Effect

    def __str__(self) -> str:
        return f"{self.effect:<8}  {self.path}: {self.before} -> {self.after}"


def opposite(effect: Effect) -> Effect:
    """Return the effect of the reverse change."""
    return {Effect.LOOSENS: Effect.TIGHTENS, Effect.TIGHTENS: Effect.LOOSENS}.get(effect, effect)


def compared(path: str, old: object, new: object, effect: Effect) -> Iterator[Change]:
    """Yield a change if the values differ.

    A demand that is new tightens and one that is gone loosens, unless the change is neutral anyway.
    """
    if old == new:
        return
    if effect is Effect.INCOMPARABLE and old is None:
        effect = Effect.TIGHTENS
    elif effect is Effect.INCOMPARABLE and new is None:
        effect = Effect.LOOSENS
    yield Change(path, shown(old), shown(new), effect)


def directed(path: str, old: float | None, new: float | None, *, more: Effect) -> Iterator[Change]:
    """Yield a change of a number whose growth has the effect `more`; None means not declared."""
    if old == new:
        return
    if old is None or new is None:
        yield from compared(path, old, new, Effect.INCOMPARABLE)
        return
    yield Change(path, shown(old), shown(new), more if new > old else opposite(more))


def directed_set(path: str, old: set[str], new: set[str], *, more: Effect) -> Iterator[Change]:
    """Yield one change for each member gained and each member lost; gaining has the effect `more`."""
    for member in sorted(new - old):
        yield Change(path, "absent", member, more)
    for member in sorted(old - new):
        yield Change(path, member, "absent", opposite(more))


def keyed(old: Mapping[str, T], new: Mapping[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
    """Pair two mappings by key, in the old order and then the new one."""
    for key in (*old, *(key for key in new if key not in old)):
        yield key, old.get(key), new.get(key)


def shown(value: object) -> str:
    """Write a value the way a person reads it in a table."""
    if value is None or value in ((), ""):
        return "absent"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Action):
        return _action(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return _record(value) if dataclasses.is_dataclass(value) else str(value)


def _action(action: Action) -> str:
    arguments = " ".join(f"{key}={shown(value)}" for key, value in action.arguments.items())
    return f"{action.kind}({arguments})"


def _record(value: Any) -> str:
    fields = ((f.name, getattr(value, f.name), f.default) for f in dataclasses.fields(value))
    told = (f"{name}={shown(v)}" for name, v, default in fields if v != default and not isinstance(v, Place))
    return f"{{{', '.join(told)}}}"
