"""Slices: which named parts of the traffic a sequence belongs to, and which of its tokens count."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.model import Match, Operator, Requirement, Slice
from paritas.detectors.evidence import PairBatch
from paritas.detectors.lengths import LENGTH, length_bucket
from paritas.detectors.pairs import PairOutcome

__all__ = ["LabelReader", "SliceBook", "labels_match", "name_value", "token_mask"]

JOINS = re.compile(r",|%(?=2C|25)")  # what joins keys in a name, and what looks like its escape


@dataclass(slots=True)
class SliceBook:
    """Names the slice instances of outcomes; remembers which values of a `by` slice it has seen.

    Attributes
    ----------
    slices : sequence of Slice
        As declared.
    seen : dict
        Instance names of each `by` slice in order of appearance, at most `Slice.at_most`.
    """

    slices: Sequence[Slice]
    seen: dict[str, list[str]] = field(default_factory=dict)

    def instances(self, outcome: PairOutcome) -> Iterator[tuple[Slice, str]]:
        """Yield (declared slice, instance name) for each slice the outcome belongs to."""
        labels = labels_of(outcome)
        for declared in self.slices:
            if declared.match is not None and not labels_match(declared.match, labels):
                continue
            name = self._name(declared, labels)
            if name:
                yield declared, name

    def order(self, declared: Slice, name: str) -> int:
        """Number of the instance in order of appearance, from 1; 1 for a slice without `by`."""
        return self.seen[declared.name].index(name) + 1 if declared.by else 1

    def _name(self, declared: Slice, labels: Mapping[str, str]) -> str:
        """Instance name; empty when a `by` key is not reported."""
        if not declared.by:
            return declared.name
        if any(key not in labels for key in declared.by):
            return ""
        name = _instance(declared, labels)
        seen = self.seen.setdefault(declared.name, [])
        if name not in seen:
            if len(seen) >= declared.at_most:
                return self._other(declared, seen)
            seen.append(name)
        return name

    def _other(self, declared: Slice, seen: list[str]) -> str:
        """The instance that takes every value beyond `at_most`."""
        name = f"{declared.name}=other"
        if name not in seen:
            seen.append(name)
        return name


def _instance(declared: Slice, labels: Mapping[str, str]) -> str:
    """``key=value``, with the slice's name in front where it selects: it may share its keys with another."""
    values = ",".join(name_value(key, labels[key]) for key in declared.by)
    return f"{declared.name}:{values}" if declared.match is not None else values


def name_value(key: str, value: str) -> str:
    """``key=value``; a comma is written ``%2C``, so that no value looks like another key.

    Keys hold no ``=``, so names tell keys and values for certain: only ``%2C`` and ``%25`` are escapes.

    Examples
    --------
    >>> name_value("replica", "r2"), name_value("rate", "50%"), name_value("task", "math,replica=r1")
    ('replica=r2', 'rate=50%', 'task=math%2Creplica=r1')
    """
    return f"{key}={JOINS.sub(_escaped, value)}"


def _escaped(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def labels_of(outcome: PairOutcome) -> dict[str, str]:
    """Labels a selector may name: attributes, plus run, group, length bucket and what the kernels said."""
    labels = {"run_id": outcome.run_id, "group_id": outcome.group_id}
    if outcome.pair is not None:
        pair = outcome.pair
        labels |= {"weights_version": pair.weights_version, LENGTH: length_bucket(pair)}
        for kernel in (pair.inference, pair.train):
            labels |= {f"{kernel.role.value}.{k}": str(v) for k, v in kernel.fields().items()}
    return {k: v for k, v in labels.items() if v} | dict(outcome.attributes)


class LabelReader:
    """Reads of an outcome the labels on which its slices depend, and no others.

    Examples
    --------
    >>> LabelReader([Slice("all"), Slice("replica", by=("replica",))]).names
    ('replica',)
    """

    def __init__(self, slices: Sequence[Slice]) -> None:
        needed = [need.field for s in slices if s.match is not None for need in s.match.labels]
        self.names = tuple(sorted({*needed, *(key for s in slices for key in s.by)}))

    def key(self, outcome: PairOutcome) -> tuple[str | None, ...]:
        """Value of each label, None where it is not reported."""
        told = outcome.attributes
        if LENGTH in self.names and outcome.pair is not None:
            told = {LENGTH: length_bucket(outcome.pair), **told}
        try:
            return tuple([told[name] for name in self.names])
        except KeyError:
            pass
        labels = labels_of(outcome)
        return tuple([labels.get(name) for name in self.names])


def labels_match(match: Match, labels: Mapping[str, str]) -> bool:
    """Whether every label requirement holds.

    Examples
    --------
    >>> need = Match(labels=(Requirement("slice", Operator.IN, ("math", "code")),))
    >>> labels_match(need, {"slice": "math"}), labels_match(need, {})
    (True, False)
    """
    return all(_label_holds(r, labels) for r in match.labels)


def _label_holds(need: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(need.field)
    if need.op in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        return (value is not None) is (need.op is Operator.EXISTS)
    if need.op is Operator.NOT_IN:
        return value not in {str(v) for v in need.values}
    if value is None:
        return False
    if need.op is Operator.IN:
        return value in {str(v) for v in need.values}
    return _compare(need, np.array([_number(value)]))[0].item() is True


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _compare(need: Requirement, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Apply a comparison; NaN never satisfies it."""
    limit = float(need.values[0])
    match need.op:
        case Operator.GT:
            return values > limit
        case Operator.GTE:
            return values >= limit
        case Operator.LT:
            return values < limit
        case _:
            return values <= limit


def token_mask(match: Match | None, batch: PairBatch) -> NDArray[np.bool_] | None:
    """Tokens of `batch` that a slice selects, shape (m,); None means all."""
    if match is None or not match.tokens:
        return None
    mask = np.ones(len(batch.log_ratio), dtype=bool)
    for need in match.tokens:
        mask &= _tokens_hold(need, batch)
    return mask


def _tokens_hold(need: Requirement, batch: PairBatch) -> NDArray[np.bool_]:
    if need.field == "phase":
        phase = np.where(batch.position == 0, "prefill", "decode")
        inside = np.isin(phase, [str(v) for v in need.values])
        return inside if need.op is Operator.IN else ~inside
    values = _token_values(need.field, batch)
    if need.op in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        return np.isnan(values) ^ (need.op is Operator.EXISTS)
    if need.op in (Operator.IN, Operator.NOT_IN):
        inside = np.isin(values, [float(v) for v in need.values])
        return inside if need.op is Operator.IN else ~inside
    return _compare(need, values)


def _token_values(name: str, batch: PairBatch) -> NDArray[np.float64]:
    """Column a token requirement names, shape (m,); NaN where it was not reported.

    A trace is one turn, so `turn` is the trace's label, the same for all its tokens.
    """
    if name == "logprob":
        return batch.logprob_q
    if name == "position":
        return batch.position.astype(np.float64)
    turns = [_number(pair.attributes.get(name, "")) for pair in batch.pairs]
    return np.repeat(np.array(turns, dtype=np.float64), batch.counts())
