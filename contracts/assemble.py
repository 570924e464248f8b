"""Checked document (+ preset) → contract: later sections win, references hold, limits are derived."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from paritas.contracts.build_clauses import build_clauses
from paritas.contracts.build_policy import build_escalation, build_promotion, build_refit, build_tests
from paritas.contracts.build_scope import (
    build_budget,
    build_compare,
    build_false_alarms,
    build_kernels,
    build_slices,
)
from paritas.contracts.found import Fields, Found
from paritas.contracts.model import Budget, Clause, Compare, Contract, FalseAlarms, Family, Promotion, Slice
from paritas.contracts.problems import Problems

__all__ = ["EMPTY", "Names", "assemble"]

T = TypeVar("T")

DEFAULT_SLICES = (Slice("all"),)
EMPTY = Contract(
    name="",
    version="",
    owner="",
    policy="",
    kernels={},
    compare=Compare(),
    slices=(),
    false_alarms=FalseAlarms(),
    budget=None,
    clauses=(),
    escalation=(),
    on_controller_loss="hold",
    promotion=Promotion(),
    tests=(),
)


@dataclass(frozen=True, slots=True)
class Names:
    """What other parts of the file may refer to, unsound declarations included."""

    clauses: frozenset[str]
    slices: frozenset[str]
    keys: frozenset[tuple[str, ...]]  # label keys of the `by` slices


def assemble(document: Fields, base: Contract, problems: Problems) -> tuple[Contract, Names]:
    """Put `document` on top of `base`; the result is only worth keeping without problems.

    Clauses override by id and slices by name, in the base's order; every other section replaces.
    """
    spec = document.record("spec")
    contract = _with_policy(_with_scope(_with_head(base, document), spec, problems), spec, problems)
    budget = contract.budget
    is_refused = "budget" in spec and budget is None  # reported; its clauses need no limit of their own
    clauses = build_clauses(spec.record("clauses"), Budget() if is_refused else budget, problems)
    merged = _override(base.clauses, clauses, lambda c: c.id)
    contract = replace(contract, clauses=_by_family(merged))
    return contract, _names(spec, contract)


def _with_head(base: Contract, document: Fields) -> Contract:
    """Names are the file's own: a preset's owner does not answer for its users."""
    metadata, spec = document.record("metadata"), document.record("spec")
    return replace(
        base,
        name=metadata.get("name", ""),
        version=metadata.get("version", ""),
        owner=metadata.get("owner", ""),
        policy=spec.get("policy", base.policy),
        preset=spec.get("preset", metadata.get("applied_preset", "")),
    )


def _with_scope(base: Contract, spec: Fields, problems: Problems) -> Contract:
    slices = build_slices(spec.items("slices"), problems)
    alarms = base.false_alarms
    return replace(
        base,
        kernels=_section(spec, "kernels", base.kernels, build_kernels),
        compare=_section(spec, "compare", base.compare, build_compare),
        slices=_override(base.slices, slices, lambda s: s.name) or DEFAULT_SLICES,
        false_alarms=_section(spec, "false_alarms", alarms, lambda s: build_false_alarms(s, problems)),
        budget=_section(spec, "budget", base.budget, lambda s: build_budget(s, problems)),
    )


def _with_policy(base: Contract, spec: Fields, problems: Problems) -> Contract:
    return replace(
        base,
        escalation=_list(spec, "escalation", base.escalation, lambda i: build_escalation(i, problems)),
        on_controller_loss=spec.get("on_controller_loss", base.on_controller_loss),
        refit=_section(spec, "refit", base.refit, build_refit),
        promotion=_section(spec, "promotion", base.promotion, lambda s: build_promotion(s, problems)),
        tests=_list(spec, "tests", base.tests, lambda i: build_tests(i, problems)),
    )


def _section(spec: Fields, name: str, base: T, build: Callable[[Fields], T]) -> T:
    """Build a section if it is there and sound, else keep the base's."""
    at = spec.at(name)
    return build(at.value) if name in spec and at.is_sound else base


def _list(spec: Fields, name: str, base: T, build: Callable[[tuple[Found, ...]], T]) -> T:
    return build(spec.items(name)) if name in spec else base


def _override(base: Iterable[T], own: Iterable[T], key: Callable[[T], str]) -> tuple[T, ...]:
    """Merge by key: the base's order, the own value where both have one, new ones at the end."""
    merged = {key(item): item for item in base}
    merged.update({key(item): item for item in own})
    return tuple(merged.values())


def _by_family(clauses: tuple[Clause, ...]) -> tuple[Clause, ...]:
    """Order as a file would: a resolved contract must load to the same order."""
    return tuple(clause for family in Family for clause in clauses if clause.family is family)


def _names(spec: Fields, contract: Contract) -> Names:
    own_clauses = {name for name, _ in declared_clauses(spec)}
    own_slices = {item.value.get("name", "") for item in spec.items("slices")}
    own_keys = {item.value.values("by") for item in spec.items("slices")}
    if any(clause.statistic == "agent_silence" for clause in contract.clauses):
        own_keys.add(("agent",))  # its verdicts are by agent, without a slice
    return Names(
        clauses=frozenset(own_clauses | {c.id for c in contract.clauses}),
        slices=frozenset(own_slices | {s.name for s in contract.slices}),
        keys=frozenset((own_keys | {s.by for s in contract.slices}) - {()}),
    )


def declared_clauses(spec: Fields) -> list[tuple[str, Found]]:
    """Return every clause id in the file with its place."""
    clauses = spec.record("clauses")
    items = (item.value for section in clauses.found for item in clauses.items(section))
    return [(fields.get("id"), fields.at("id")) for fields in items if "id" in fields]
