"""Contract → its resolved document: defaults, preset and derived limits written out, and the digest."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from paritas.contracts.build_scope import ESTIMATOR_TAKES
from paritas.contracts.catalogue import CATALOGUE
from paritas.contracts.durations import duration_text
from paritas.contracts.model import (
    Budget,
    Clause,
    Compare,
    Contract,
    ContractTest,
    Escalation,
    Expectation,
    Family,
    Gate,
    Operator,
    Requirement,
    Slice,
)
from paritas.contracts.table import API_VERSION, KIND
from paritas.contracts.windows import window_text
from paritas.records import Role

__all__ = ["canonical_json", "digest_of", "resolved"]

Plain = dict[str, Any]

SCALAR_OPTIONS = (
    *("quantile", "above", "cap", "clip", "clip_high"),
    *("beta", "temperature", "smoothing", "baseline"),
)


def resolved(contract: Contract) -> Plain:
    """Return the contract as a JSON-ready document that stands alone and loads to an equal contract."""
    metadata = {"name": contract.name, "version": contract.version, "owner": contract.owner}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": _told({**metadata, "applied_preset": contract.preset}),
        "spec": _told(_spec(contract)),
    }


def canonical_json(contract: Contract) -> str:
    """Return the resolved document with sorted keys and no spaces: what the digest is taken of."""
    return json.dumps(resolved(contract), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_of(contract: Contract) -> str:
    """Return BLAKE2b-128 of `canonical_json`, 32 lowercase hex characters.

    Comments, the order of keys, the file's name and the way a number or duration is written do
    not change it; the order of clauses and rules does.
    """
    return hashlib.blake2b(canonical_json(contract).encode(), digest_size=16).hexdigest()


def _told(values: Mapping[str, Any]) -> Plain:
    """Leave out what is not declared."""
    return {key: value for key, value in values.items() if value not in (None, "", (), [], {})}


def _spec(contract: Contract) -> Plain:
    return {
        "policy": contract.policy,
        "kernels": {str(role): _identity(fields) for role, fields in contract.kernels.items()},
        "compare": _compare(contract.compare),
        "slices": [_slice(s) for s in contract.slices],
        "false_alarms": {
            "at_most": contract.false_alarms.at_most,
            "per": duration_text(contract.false_alarms.per_s),
        },
        "budget": None if contract.budget is None else _budget(contract.budget),
        "clauses": _clauses(contract.clauses),
        "escalation": [_rule(rule) for rule in contract.escalation],
        "on_controller_loss": contract.on_controller_loss,
        "refit": contract.refit and {"tokens": contract.refit.tokens, "alpha": contract.refit.alpha},
        "promotion": {str(gate.stage): _gate(gate) for gate in contract.promotion.gates} or None,
        "tests": [_test(test) for test in contract.tests],
    }


def _identity(fields: Mapping[str, object]) -> Plain:
    known = {key: value for key, value in fields.items() if not key.startswith("extra.")}
    extra = {key.removeprefix("extra."): value for key, value in fields.items() if key.startswith("extra.")}
    return {**known, "extra": extra} if extra else known


def _compare(compare: Compare) -> Plain:
    weights = {"within": {"versions": compare.weights_within}} if compare.weights_within else "equal"
    sampled = compare.sampled_at_least
    sampling = {} if sampled is None else {"sampling": {"at_least": sampled}}
    within = duration_text(compare.pair_within_s)
    against = {} if compare.against is Role.INFERENCE else {"against": compare.against.value}
    return {"weights": weights, "unit": compare.unit, "pair_within": within, **sampling, **against}


def _slice(part: Slice) -> Plain:
    match = part.match
    matched = match and {
        "labels": [_requirement(r) for r in match.labels],
        "tokens": [_requirement(r) for r in match.tokens],
    }
    return _told(
        {
            "name": part.name,
            "by": list(part.by),
            "match": matched,
            "at_most": part.at_most if part.by else None,
        }
    )


def _requirement(requirement: Requirement) -> Plain:
    base = {"field": requirement.field, "op": str(requirement.op)}
    if requirement.op in (Operator.IN, Operator.NOT_IN):
        return {**base, "values": list(requirement.values)}
    return {**base, "value": requirement.values[0]} if requirement.values else base


def _budget(budget: Budget) -> Plain:
    names = (
        "reward_drift",
        "sequence_tv",
        "gradient_bias",
        "token_tv",
        "max_tokens",
        "mean_tokens",
        "temperature",
        "score_norm",
    )
    estimator = budget.estimator and _estimator(budget)
    reward_range = None if budget.reward_range is None else list(budget.reward_range)
    return _told(
        {**{n: getattr(budget, n) for n in names}, "reward_range": reward_range, "estimator": estimator}
    )


def _estimator(budget: Budget) -> Plain:
    estimator = budget.estimator
    if estimator is None:
        return {}
    cap = estimator.cap if "cap" in ESTIMATOR_TAKES[estimator.kind] else None
    return _told({"kind": estimator.kind, "cap": cap, "low": estimator.low, "clip": estimator.clip})


def _clauses(clauses: tuple[Clause, ...]) -> Plain:
    return _told({str(f): [_clause(c) for c in clauses if c.family is f] for f in Family})


def _clause(clause: Clause) -> Plain:
    plain = {name: getattr(clause, name) for name in (*("id", "statistic"), *SCALAR_OPTIONS, "source")}
    lists = {"slices": list(clause.slices), "stages": [str(s) for s in clause.stages]}
    lists |= {"agents": list(clause.agents)}
    within = None if clause.within_s is None else duration_text(clause.within_s)
    reward_range = None if clause.reward_range is None else list(clause.reward_range)
    told = {
        "window": window_text(clause),
        "within": within,
        "reward_range": reward_range,
        "derived": True if clause.derived else None,
    }
    return _told({**plain, **lists, **_limits(clause), **told})


def _limits(clause: Clause) -> Plain:
    is_time = CATALOGUE[clause.statistic].unit == "seconds"
    sides = {"at_most": clause.at_most, "at_least": clause.at_least}
    told = {side: value for side, value in sides.items() if value is not None}
    if clause.floor is not None:
        return {
            s: {"floor": clause.floor.name, "times": clause.floor.times, "ceiling": _ceiling(v, is_time)}
            for s, v in told.items()
        }
    return {side: _ceiling(value, is_time) for side, value in told.items()}


def _ceiling(value: float, is_time: bool) -> float | str:
    return duration_text(value) if is_time else value


def _rule(rule: Escalation) -> Plain:
    when = {
        "family": [str(f) for f in rule.when.family],
        "clause": list(rule.when.clause),
        "slice": list(rule.when.slice),
        "state": [str(s) for s in rule.when.state],
    }
    levels = [
        {
            "severity": str(level.severity),
            "after": duration_text(level.after_s),
            "actions": [{action.kind: dict(action.arguments)} for action in level.actions],
        }
        for level in rule.levels
    ]
    times = {"for": duration_text(rule.for_s), "keep_firing_for": duration_text(rule.keep_firing_for_s)}
    return {"when": _told(when), "levels": levels, **times}


def _gate(gate: Gate) -> Plain:
    durations = {"bake": gate.bake_s, "deadline": gate.deadline_s}
    told = {name: None if value is None else duration_text(value) for name, value in durations.items()}
    at_least = {"sequences": gate.at_least_sequences} if gate.at_least_sequences else None
    alpha = None if gate.stage == "full" else gate.alpha
    lists = {"steps": list(gate.steps), "demote_on": [str(s) for s in gate.demote_on]}
    return _told(
        {"alpha": alpha, "suite": gate.suite, "share": gate.share, "at_least": at_least, **lists, **told}
    )


def _test(test: ContractTest) -> Plain:
    is_one = test.serve == test.train
    given = {"trace": test.serve} if is_one else {"serve": test.serve, "train": test.train}
    return {"name": test.name, "given": given, "expect": [_expectation(e) for e in test.expect]}


def _expectation(expectation: Expectation) -> Plain:
    count = expectation.at_most_sequences
    plain = {"clause": expectation.clause, "slice": expectation.slice, "state": str(expectation.state)}
    at_most = None if count is None else f"{count} sequences"
    return _told({**plain, "at_most": at_most, "cause": expectation.cause})
