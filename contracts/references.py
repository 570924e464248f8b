"""Names a file refers to must be declared, and declared once."""

from collections.abc import Iterator

from paritas.contracts.assemble import Names, declared_clauses
from paritas.contracts.catalogue import CATALOGUE, Need
from paritas.contracts.found import Fields, Found
from paritas.contracts.model import Contract, Place
from paritas.contracts.problems import Problems, did_you_mean

__all__ = ["check_references"]


def check_references(document: Fields, contract: Contract, names: Names, problems: Problems) -> None:
    """Note doubled names, undeclared slices and unknown clauses of one file."""
    spec = document.record("spec")
    _check_doubled(declared_clauses(spec), "clause", problems)
    slices = [(i.value.get("name"), i.value.at("name")) for i in spec.items("slices") if "name" in i.value]
    _check_doubled(slices, "slice", problems)
    _check_same_keys(spec, problems)
    for found in _slices_of_clauses(spec):
        if found.value not in names.slices:
            _note_slice(found, names, problems)
    _check_rules(spec, names, problems)
    _check_tests(spec, names, problems)
    if not names.clauses and "clauses" not in spec and "preset" not in spec:
        hint = "add spec.clauses, or start from a preset: spec.preset: dense-bf16"
        problems.add(spec.place, spec.path, "the contract has no clauses", hint)
    _check_drains(spec, contract, names, problems)
    _check_units(contract, problems)
    _check_shapes(contract, problems)


def _check_units(contract: Contract, problems: Problems) -> None:
    """A statistic of two sequences needs both in one unit."""
    for clause in contract.clauses:
        if CATALOGUE[clause.statistic].need is Need.PREFERENCE and contract.compare.unit != "group":
            message = f"clause {clause.id}: {clause.statistic} compares two sequences of a group"
            place = clause.place or Place(contract.file, 1, 1)
            problems.add(place, "spec.compare.unit", message, "write compare: {unit: group}")


def _check_shapes(contract: Contract, problems: Problems) -> None:
    """A shape compares whole distributions, which weights would have to undo in the reference as well."""
    for clause in contract.clauses:
        if clause.baseline and contract.compare.sampled_at_least is not None:
            message = f"clause {clause.id}: {clause.statistic} needs every sequence, and compare.sampling keeps some"
            place = clause.place or Place(contract.file, 1, 1)
            hint = "remove the clause, or limit a quantile, which can be weighed"
            problems.add(place, "spec.compare.sampling", message, hint)


def _check_doubled(declared: list[tuple[str, Found]], what: str, problems: Problems) -> None:
    first: dict[str, Found] = {}
    for name, at in declared:
        if name in first:
            hint = f"it already stands in line {first[name].place.line}"
            problems.add(at.place, at.path, f"doubled {what} {name!r}", hint)
        first.setdefault(name, at)


def _check_same_keys(spec: Fields, problems: Problems) -> None:
    """Two unselected `by` slices over the same labels would be one and the same."""
    first: dict[tuple[str, ...], Found] = {}
    for item in spec.items("slices"):
        keys = tuple(found.value for found in item.value.items("by"))
        if not keys or "match" in item.value:
            continue
        at = item.value.at("by")
        if keys in first:
            hint = f"give one of them a match, or use the slice of line {first[keys].place.line}"
            problems.add(at.place, at.path, f"another slice is by {', '.join(keys)} already", hint)
        first.setdefault(keys, at)


def _slices_of_clauses(spec: Fields) -> Iterator[Found]:
    clauses = spec.record("clauses")
    for family in clauses.found:
        for item in clauses.items(family):
            yield from item.value.items("slices")


def _note_slice(found: Found, names: Names, problems: Problems) -> None:
    hint = did_you_mean(found.value, sorted(names.slices)) + " (slices stand under spec.slices)"
    problems.add(found.place, found.path, f"undeclared slice {found.value!r}", hint)


def _check_rules(spec: Fields, names: Names, problems: Problems) -> None:
    for rule in spec.items("escalation"):
        when = rule.value.record("when")
        for found in when.items("clause"):
            _check_clause(found, names, problems)
        for found in when.items("slice"):
            _check_slice_value(found, names, problems)


def _check_tests(spec: Fields, names: Names, problems: Problems) -> None:
    for test in spec.items("tests"):
        for expectation in test.value.items("expect"):
            if "clause" in expectation.value:
                _check_clause(expectation.value.at("clause"), names, problems)
            if "slice" in expectation.value:
                _check_slice_value(expectation.value.at("slice"), names, problems)


def _check_clause(found: Found, names: Names, problems: Problems) -> None:
    if found.value not in names.clauses:
        hint = did_you_mean(found.value, sorted(names.clauses))
        problems.add(found.place, found.path, f"unknown clause {found.value!r}", hint)


def _check_slice_value(found: Found, names: Names, problems: Problems) -> None:
    """Accept a declared name, ``NAME=other``, or ``key=value`` of a `by` slice, also as ``NAME:key=value``."""
    name, colon, rest = found.value.partition(":")
    value = rest if colon and name in names.slices else found.value
    keys = tuple(part.split("=", 1)[0] for part in value.split(","))
    is_value = "=" in found.value and (
        keys in names.keys or found.value.removesuffix("=other") in names.slices
    )
    if found.value not in names.slices and not is_value:
        _note_slice(found, names, problems)


def _check_drains(spec: Fields, contract: Contract, names: Names, problems: Problems) -> None:
    single = {s.name for s in contract.slices if not s.by}
    for found in _drained(spec):
        if found.value not in names.slices:
            _note_slice(found, names, problems)
        elif found.value in single:
            hint = "drain needs a slice with 'by', such as {name: replica, by: [replica]}"
            problems.add(found.place, found.path, f"slice {found.value!r} has no 'by'", hint)


def _drained(spec: Fields) -> Iterator[Found]:
    for rule in spec.items("escalation"):
        for level in rule.value.items("levels"):
            for action in level.value.items("actions"):
                kind, arguments = action.value
                if kind == "drain" and "slice" in arguments:
                    yield arguments.at("slice")
