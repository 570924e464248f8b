"""Checked fields → what is compared: kernels, pairing, slices, false alarms, budget."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from paritas.contracts.found import Fields, Found
from paritas.contracts.model import (
    Budget,
    Compare,
    Estimator,
    FalseAlarms,
    Match,
    Operator,
    Requirement,
    Slice,
)
from paritas.contracts.problems import Problems
from paritas.records import Role

__all__ = [
    "ESTIMATOR_TAKES",
    "TOKEN_FIELDS",
    "build_budget",
    "build_compare",
    "build_false_alarms",
    "build_kernels",
    "build_slices",
]

TOKEN_FIELDS = ("position", "phase", "turn", "logprob")
ESTIMATOR_TAKES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"none": (), "tis": ("cap",), "mis": ("cap", "low"), "clip": ("clip",), "ppo_min": ("cap", "clip")}
)
PHASES = ("prefill", "decode")
NUMERIC = frozenset({Operator.GT, Operator.GTE, Operator.LT, Operator.LTE})
LISTED = frozenset({Operator.IN, Operator.NOT_IN})


def build_kernels(section: Fields) -> dict[Role, dict[str, object]]:
    """Return the declared identity of each role; ``extra`` keys as ``extra.KEY``."""
    return {role: _identity(section.record(role)) for role in Role if role in section}


def _identity(kernel: Fields) -> dict[str, object]:
    known = {name: found.value for name, found in kernel.found.items() if name != "extra"}
    return {**known, **{f"extra.{k}": f.value for k, f in sorted(kernel.record("extra").found.items())}}


def build_compare(section: Fields) -> Compare:
    """Return what may be paired, defaults filled in."""
    weights = section.get("weights")
    within = weights.record("within").get("versions") if isinstance(weights, Fields) else 0
    default = Compare()
    return Compare(
        within,
        section.get("unit", default.unit),
        float(section.get("pair_within", default.pair_within_s)),
        section.record("sampling").get("at_least"),
        Role(section.get("against", default.against)),
    )


def build_false_alarms(section: Fields, problems: Problems) -> FalseAlarms:
    """Return the false-alarm budget; the period must be positive."""
    if section.get("per") == 0:
        at = section.at("per")
        problems.add(at.place, at.path, "must be above 0", "write 7d")
    return FalseAlarms(float(section.get("at_most")), float(section.get("per")))


def build_slices(items: tuple[Found, ...], problems: Problems) -> tuple[Slice, ...]:
    """Return the sound slices in the order of the file."""
    slices = [_slice(item.value, problems) for item in items if item.is_sound]
    return tuple(s for s in slices if s is not None)


def _slice(fields: Fields, problems: Problems) -> Slice | None:
    before = len(problems)
    if "at_most" in fields and "by" not in fields:
        at = fields.at("at_most")
        problems.add(at.place, at.path, "at_most needs 'by'", "a slice without 'by' is one slice")
    match = _match(fields.record("match"), problems) if "match" in fields else None
    if len(problems) > before:
        return None
    return Slice(fields.get("name"), fields.values("by"), match, fields.get("at_most", 64), fields.place)


def _match(fields: Fields, problems: Problems) -> Match:
    labels = tuple(_requirement(item.value, problems) for item in fields.items("labels"))
    tokens = tuple(_token_requirement(item.value, problems) for item in fields.items("tokens"))
    return Match(labels, tokens)


def _token_requirement(fields: Fields, problems: Problems) -> Requirement:
    name, at = fields.get("field"), fields.at("field")
    if name not in TOKEN_FIELDS:
        hint = f"token fields: {', '.join(TOKEN_FIELDS)}; labels stand under match.labels"
        problems.add(at.place, at.path, f"unknown token field {name!r}", hint)
    elif name == "phase":
        _check_phase(fields, problems)
    return _requirement(fields, problems)


def _check_phase(fields: Fields, problems: Problems) -> None:
    if Operator(fields.get("op")) not in LISTED:
        at = fields.at("op")
        problems.add(at.place, at.path, "phase takes In or NotIn", "write op: In, values: [decode]")
    for item in fields.items("values"):
        if item.value not in PHASES:
            problems.add(item.place, item.path, f"unknown phase {item.value!r}", "phases: prefill, decode")


def _requirement(fields: Fields, problems: Problems) -> Requirement:
    op = Operator(fields.get("op"))
    wanted = "value" if op in NUMERIC else "values" if op in LISTED else ""
    for name in ("value", "values"):
        if (name in fields) != (name == wanted):
            _note_operand(fields, op, name, problems)
    values: tuple[Any, ...] = fields.values("values") if wanted == "values" else ()
    return Requirement(fields.get("field"), op, (fields.get("value"),) if wanted == "value" else values)


def _note_operand(fields: Fields, op: Operator, name: str, problems: Problems) -> None:
    at = fields.at(name)
    if name in fields:
        problems.add(at.place, at.path, f"{op} takes no {name!r}", "remove it, or choose another op")
    else:
        example = "value: 32768" if name == "value" else "values: [a, b]"
        problems.add(at.place, at.path, f"{op} needs {name!r}", f"write {example}")


def build_budget(fields: Fields, problems: Problems) -> Budget | None:
    """Return the declared tolerances; None if they contradict each other."""
    before = len(problems)
    _check_reward(fields, problems)
    estimator = _estimator(fields.record("estimator"), problems) if "estimator" in fields else None
    if "gradient_bias" in fields and estimator is None:
        at = fields.at("gradient_bias")
        problems.add(
            at.place, at.path, "gradient_bias needs an estimator", "write estimator: {kind: tis, cap: 2.0}"
        )
    if len(problems) > before:
        return None
    levels = ("reward_drift", "sequence_tv", "gradient_bias", "token_tv")
    plain = (*levels, "max_tokens", "mean_tokens", "score_norm")
    return Budget(
        **{name: fields.get(name) for name in plain},
        reward_range=fields.values("reward_range") or None,
        temperature=fields.get("temperature", 1.0),
        estimator=estimator,
        place=fields.place,
    )


def _check_reward(fields: Fields, problems: Problems) -> None:
    if "reward_drift" in fields and "reward_range" not in fields:
        at = fields.at("reward_drift")
        problems.add(at.place, at.path, "reward_drift needs reward_range", "write reward_range: [0, 1]")
    low_high = fields.values("reward_range")
    if low_high and low_high[0] >= low_high[1]:
        at = fields.at("reward_range")
        problems.add(
            at.place, at.path, "the lowest reward must be below the highest", "write [lowest, highest]"
        )
    longest, mean = fields.get("max_tokens"), fields.get("mean_tokens")
    if longest is not None and mean is not None and mean > longest:
        at = fields.at("mean_tokens")
        problems.add(
            at.place, at.path, f"mean_tokens is above max_tokens {longest}", "exchange the two numbers"
        )


def _estimator(fields: Fields, problems: Problems) -> Estimator:
    kind = fields.get("kind")
    takes = ESTIMATOR_TAKES[kind]
    for name in ("cap", "low", "clip"):
        if name in fields and name not in takes:
            at = fields.at(name)
            hint = f"it takes: {', '.join(takes) or 'nothing'}"
            problems.add(at.place, at.path, f"estimator {kind!r} takes no {name!r}", hint)
    if "clip" in takes and "clip" not in fields:
        problems.add(fields.place, fields.path, f"estimator {kind!r} needs 'clip'", "write clip: 0.2")
    return Estimator(kind, fields.get("cap", 2.0), fields.get("low"), fields.get("clip"))
