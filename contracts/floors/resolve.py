"""Limits relative to a floor → absolute limits: times the measured upper limit, at most the ceiling."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from paritas.contracts.catalogue import CATALOGUE
from paritas.contracts.derive import estimator_of
from paritas.contracts.dump import digest_of
from paritas.contracts.floors.record import FloorValue, MeasuredFloor, options_of
from paritas.contracts.model import Clause, Contract
from paritas.errors import UsageError

__all__ = ["floor_notes", "options_in", "with_floors"]

AGAIN_HINT = "measure it again: paritas floor measure"


def with_floors(contract: Contract, floors: Sequence[tuple[str, MeasuredFloor]]) -> Contract:
    """Return the contract with every limit that names one of the floors made absolute.

    A clause whose floor is not among them keeps its ceiling.  The digest is that of the new limits.

    Parameters
    ----------
    floors : sequence of (file, floor)
        The file is what errors name.

    Raises
    ------
    UsageError
        Two floors have one name; one is of another kernel or model than the contract's, is not
        named by it, or lacks a statistic that the contract asks of it.
    """
    by_name: dict[str, tuple[str, MeasuredFloor]] = {}
    for file, floor in floors:
        if floor.name in by_name:
            message = f"{file}: a floor {floor.name} is also in {by_name[floor.name][0]}"
            raise UsageError(message, hint="give each floor once")
        _check(contract, file, floor)
        by_name[floor.name] = (file, floor)
    clauses = tuple(_limited(contract, clause, by_name) for clause in contract.clauses)
    changed = replace(contract, clauses=clauses)
    return replace(changed, digest=digest_of(changed))


def floor_notes(contract: Contract) -> tuple[str, ...]:
    """Say of each limit that names a floor what binds: the floor, or its ceiling and why.

    Examples
    --------
    >>> from paritas.contracts.load import load_text
    >>> text = '''
    ... apiVersion: paritas.dev/v1
    ... kind: KernelContract
    ... metadata: {name: example, version: 1.0.0}
    ... spec:
    ...   clauses:
    ...     numerical:
    ...       - {id: token-tv, statistic: tv, at_most: {floor: aa, times: 1.5, ceiling: 0.04}}
    ... '''
    >>> print(*floor_notes(load_text(text, "example.yaml")))
    token-tv: no floor aa was given, so its ceiling 0.04 binds
    """
    return tuple(_note(clause) for clause in contract.clauses if clause.floor is not None)


def _note(clause: Clause) -> str:
    assert clause.floor is not None  # asked of such clauses only
    floor, limit = clause.floor, clause.at_most if clause.at_most is not None else clause.at_least
    if clause.at_most is None:
        return f"{clause.id}: a floor makes upper limits only, so its ceiling {limit:g} binds"
    if floor.measured is None:
        return f"{clause.id}: no floor {floor.name} was given, so its ceiling {limit:g} binds"
    asked = floor.times * floor.measured
    told = f"{floor.times:g} times the floor {floor.name} of {floor.measured:.4g}"
    if asked > clause.at_most:
        return f"{clause.id}: {told} is above its ceiling, which binds: {limit:g}"
    return f"{clause.id}: {told} binds: {limit:.4g}"


def options_in(contract: Contract, clause: Clause) -> dict[str, float | str]:
    """`options_of` a clause, with the estimator that the contract gives a `gradient_bias`."""
    if clause.statistic != "gradient_bias":
        return options_of(clause)
    estimator = estimator_of(contract, clause)
    told = options_of(replace(clause, cap=estimator.cap, clip=estimator.clip), estimator.kind)
    return told if estimator.low is None else {**told, "low": estimator.low}


def _limited(contract: Contract, clause: Clause, floors: Mapping[str, tuple[str, MeasuredFloor]]) -> Clause:
    if clause.floor is None or clause.at_most is None or clause.floor.name not in floors:
        return clause
    file, floor = floors[clause.floor.name]
    value = floor.value(clause.statistic, options_in(contract, clause))
    if value is None or clause.quantile is not None:
        raise UsageError(f"{file}: {_lacks(contract, clause, floor)}", hint=_hint(clause))
    return _bound(clause, value)


def _bound(clause: Clause, value: FloorValue) -> Clause:
    assert clause.floor is not None and clause.at_most is not None  # noqa: PT018 -- one fact: it has such a limit
    limit = min(clause.floor.times * value.upper, clause.at_most)
    return replace(clause, at_most=limit, floor=replace(clause.floor, measured=value.upper))


def _lacks(contract: Contract, clause: Clause, floor: MeasuredFloor) -> str:
    options = ", ".join(f"{k} {v}" for k, v in options_in(contract, clause).items())
    asked = clause.statistic + (f" ({options})" if options else "")
    return f"the floor {floor.name} holds no {asked}, which clause {clause.id} asks of it"


def _hint(clause: Clause) -> str:
    entry = CATALOGUE[clause.statistic]
    if clause.quantile is not None:
        return "a floor is a mean: a quantile takes an absolute limit"
    if not entry.certifiable:
        return f"{clause.statistic} is unbounded and has no valid upper limit: write an absolute limit"
    return "measure the floor with this contract: paritas floor measure"


def _check(contract: Contract, file: str, floor: MeasuredFloor) -> None:
    if floor.name not in {c.floor.name for c in contract.clauses if c.floor is not None}:
        message = f"{file}: no clause of {contract.name} names the floor {floor.name}"
        raise UsageError(message, hint=f"write at_most: {{floor: {floor.name}, times: 1.5, ceiling: …}}")
    if contract.policy and floor.model and contract.policy != floor.model:
        message = f"{file}: the floor {floor.name} is of the model {floor.model}, the contract's policy is {contract.policy}"
        raise UsageError(message, hint=AGAIN_HINT)
    declared = contract.kernels.get(floor.role)
    if not declared:
        message = f"{file}: the contract declares no {floor.role} kernel, so nothing says that the floor {floor.name} is of its kernel"
        raise UsageError(message, hint=f"declare it under spec.kernels.{floor.role}")
    if differing := next(_differences(declared, floor), ""):
        raise UsageError(f"{file}: the floor {floor.name} is of another kernel: {differing}", hint=AGAIN_HINT)


def _differences(declared: Mapping[str, object], floor: MeasuredFloor) -> Iterator[str]:
    """Declared fields that the measured kernel does not show."""
    for name, wanted in declared.items():
        shown = floor.kernel.get(name)
        if shown is None or _text(shown) != _text(wanted):
            told = "was not reported" if shown is None else f"was {_text(shown)}"
            yield f"{name} {told}, the contract declares {_text(wanted)}"


def _text(value: object) -> str:
    """Booleans as in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)
