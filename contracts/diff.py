"""Two versions of a contract → what changed, and whether it loosens the contract."""

from collections.abc import Iterator
from dataclasses import dataclass

from paritas.contracts.diff_changes import Change, Effect, compared, directed, directed_set, keyed, shown
from paritas.contracts.diff_clauses import clause_changes
from paritas.contracts.model import Budget, Contract, Estimator, Gate, Level, When

__all__ = ["Change", "Difference", "Effect", "compare_contracts"]


@dataclass(frozen=True, slots=True)
class Difference:
    """All changes between two contracts, and what the version should have become."""

    before: str
    after: str
    changes: tuple[Change, ...]

    @property
    def may_loosen(self) -> bool:
        """Whether any change loosens, or cannot be ordered: what is not known to be safe is not."""
        return any(c.effect in (Effect.LOOSENS, Effect.INCOMPARABLE) for c in self.changes)

    @property
    def version_fault(self) -> str:
        """What is wrong with the new version; empty if it fits the changes."""
        old, new = _numbers(self.before), _numbers(self.after)
        if self.changes and new <= old:
            return f"changed, but the version went from {self.before} to {self.after}"
        if self.may_loosen and new[:2] <= old[:2]:
            return f"may loosen: the version must be at least {old[0]}.{old[1] + 1}.0, not {self.after}"
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def compare_contracts(before: Contract, after: Contract) -> Difference:
    """Return every semantic change from `before` to `after`; comments and order of keys are none.

    Examples
    --------
    >>> from paritas.contracts.load import load_preset
    >>> difference = compare_contracts(load_preset("dense-bf16"), load_preset("fp16"))
    >>> [str(c) for c in difference.changes if c.path.startswith("clauses.token-tv.at")]
    ['tightens  clauses.token-tv.at_most: 0.04 -> 0.006']
    """
    changes = (change for part in _PARTS for change in part(before, after))
    return Difference(before.version, after.version, tuple(changes))


def _head(before: Contract, after: Contract) -> Iterator[Change]:
    for name in ("name", "owner", "preset"):
        yield from compared(f"metadata.{name}", getattr(before, name), getattr(after, name), Effect.NEUTRAL)
    for name in ("policy", "on_controller_loss"):
        yield from compared(name, getattr(before, name), getattr(after, name), Effect.INCOMPARABLE)


def _kernels(before: Contract, after: Contract) -> Iterator[Change]:
    """A declared identity field is a demand: adding one tightens, dropping one loosens."""
    old = {
        f"kernels.{role}.{name}": v for role, fields in before.kernels.items() for name, v in fields.items()
    }
    new = {
        f"kernels.{role}.{name}": v for role, fields in after.kernels.items() for name, v in fields.items()
    }
    for path, first, second in keyed(old, new):
        yield from compared(path, first, second, Effect.INCOMPARABLE)


def _compare(before: Contract, after: Contract) -> Iterator[Change]:
    """Pairing across more versions or a longer time lets more in."""
    old, new = before.compare, after.compare
    yield from directed("compare.weights.within", old.weights_within, new.weights_within, more=Effect.LOOSENS)
    yield from directed("compare.pair_within_s", old.pair_within_s, new.pair_within_s, more=Effect.LOOSENS)
    first, second = shown(old.sampled_at_least), shown(new.sampled_at_least)
    if first != second:  # neither weighing nor a smaller weight is simply stricter
        yield Change("compare.sampling.at_least", first, second, Effect.INCOMPARABLE)
    yield from compared("compare.unit", old.unit, new.unit, Effect.INCOMPARABLE)
    yield from compared("compare.against", old.against.value, new.against.value, Effect.INCOMPARABLE)


def _false_alarms(before: Contract, after: Contract) -> Iterator[Change]:
    """Fewer false alarms allowed means more evidence wanted: violations are found later."""
    rates = [c.false_alarms.at_most / c.false_alarms.per_s * 86_400 for c in (before, after)]
    yield from directed("false_alarms.per_day", rates[0], rates[1], more=Effect.TIGHTENS)


def _slices(before: Contract, after: Contract) -> Iterator[Change]:
    """Which clauses lose or gain a slice is said there; here is what a slice itself means."""
    old, new = ({part.name: part for part in c.slices} for c in (before, after))
    for path, first, second in keyed(old, new):
        if first is None or second is None:
            yield Change(f"slices.{path}", shown(first and path), shown(second and path), Effect.NEUTRAL)
            continue
        yield from compared(f"slices.{path}.by", first.by, second.by, Effect.INCOMPARABLE)
        yield from compared(f"slices.{path}.match", first.match, second.match, Effect.INCOMPARABLE)
        yield from directed(f"slices.{path}.at_most", first.at_most, second.at_most, more=Effect.TIGHTENS)


def _budget(before: Contract, after: Contract) -> Iterator[Change]:
    old, new = before.budget or Budget(), after.budget or Budget()
    for name in ("reward_drift", "sequence_tv", "gradient_bias", "token_tv"):
        yield from directed(f"budget.{name}", getattr(old, name), getattr(new, name), more=Effect.LOOSENS)
    for name in ("max_tokens", "mean_tokens"):
        yield from directed(f"budget.{name}", getattr(old, name), getattr(new, name), more=Effect.TIGHTENS)
    yield from directed("budget.reward_range", _width(old), _width(new), more=Effect.TIGHTENS)
    yield from compared("budget.temperature", old.temperature, new.temperature, Effect.INCOMPARABLE)
    yield from _estimator(old.estimator, new.estimator)


def _width(budget: Budget) -> float | None:
    return None if budget.reward_range is None else budget.reward_range[1] - budget.reward_range[0]


def _estimator(old: Estimator | None, new: Estimator | None) -> Iterator[Change]:
    """With the same kind, more of the ratio used means less bias to certify (D9)."""
    if old is None or new is None or old.kind != new.kind:
        yield from compared("budget.estimator", old, new, Effect.INCOMPARABLE)
        return
    for name in ("cap", "clip"):
        path = f"budget.estimator.{name}"
        yield from directed(path, getattr(old, name), getattr(new, name), more=Effect.LOOSENS)
    yield from directed("budget.estimator.low", old.low, new.low, more=Effect.TIGHTENS)


def _escalation(before: Contract, after: Contract) -> Iterator[Change]:
    """Rules are known by what they answer; two rules that answer the same are told apart by order."""
    old, new = ({_rule_key(i, c): rule for i, rule in enumerate(c.escalation)} for c in (before, after))
    for path, first, second in keyed(old, new):
        if first is None or second is None:
            yield from compared(path, first and "declared", second and "declared", Effect.INCOMPARABLE)
            continue
        yield from directed(f"{path}.for_s", first.for_s, second.for_s, more=Effect.LOOSENS)
        keep = (first.keep_firing_for_s, second.keep_firing_for_s)
        yield from directed(f"{path}.keep_firing_for_s", *keep, more=Effect.TIGHTENS)
        yield from _levels(path, first.levels, second.levels)


def _rule_key(index: int, contract: Contract) -> str:
    when = contract.escalation[index].when
    twins = sum(rule.when == when for rule in contract.escalation[:index])
    return f"escalation[{_when_text(when)}]" + (f"#{twins + 1}" if twins else "")


def _when_text(when: When) -> str:
    parts = [("family", when.family), ("clause", when.clause), ("slice", when.slice), ("state", when.state)]
    return " ".join(f"{name}={','.join(values)}" for name, values in parts if values)


def _levels(path: str, old: tuple[Level, ...], new: tuple[Level, ...]) -> Iterator[Change]:
    first = {(str(level.severity), shown(a)) for level in old for a in level.actions}
    second = {(str(level.severity), shown(a)) for level in new for a in level.actions}
    told = [{f"{severity}: {action}" for severity, action in pairs} for pairs in (first, second)]
    yield from directed_set(f"{path}.actions", told[0], told[1], more=Effect.TIGHTENS)
    if told[0] == told[1]:
        yield from compared(f"{path}.levels", old, new, Effect.INCOMPARABLE)


def _refit(before: Contract, after: Contract) -> Iterator[Change]:
    """A refit gate keeps sequences back; more of them, or fewer false rejections, is not simply stricter."""
    old, new = before.refit, after.refit
    if old is None or new is None:
        yield from compared("refit", old and "gated", new and "gated", Effect.INCOMPARABLE)
        return
    yield from compared("refit.tokens", old.tokens, new.tokens, Effect.INCOMPARABLE)
    yield from directed("refit.alpha", old.alpha, new.alpha, more=Effect.TIGHTENS)


def _promotion(before: Contract, after: Contract) -> Iterator[Change]:
    old, new = ({str(gate.stage): gate for gate in c.promotion.gates} for c in (before, after))
    for stage, first, second in keyed(old, new):
        if first is None or second is None:
            yield from compared(
                f"promotion.{stage}", first and "gated", second and "gated", Effect.INCOMPARABLE
            )
        else:
            yield from _gate(f"promotion.{stage}", first, second)


def _gate(path: str, old: Gate, new: Gate) -> Iterator[Change]:
    yield from directed(f"{path}.alpha", old.alpha, new.alpha, more=Effect.LOOSENS)
    sequences = (old.at_least_sequences, new.at_least_sequences)
    yield from directed(f"{path}.at_least_sequences", *sequences, more=Effect.TIGHTENS)
    yield from directed(f"{path}.bake_s", old.bake_s, new.bake_s, more=Effect.TIGHTENS)
    yield from compared(f"{path}.deadline_s", old.deadline_s, new.deadline_s, Effect.NEUTRAL)
    for name in ("suite", "share", "steps"):
        yield from compared(f"{path}.{name}", getattr(old, name), getattr(new, name), Effect.INCOMPARABLE)
    demoting = (set(map(str, old.demote_on)), set(map(str, new.demote_on)))
    yield from directed_set(f"{path}.demote_on", *demoting, more=Effect.TIGHTENS)


def _tests(before: Contract, after: Contract) -> Iterator[Change]:
    """Tests limit nothing in production."""
    old, new = ({test.name: test for test in c.tests} for c in (before, after))
    for name, first, second in keyed(old, new):
        yield from compared(f"tests.{name}", first, second, Effect.NEUTRAL)


_PARTS = (
    _head,
    _kernels,
    _compare,
    _false_alarms,
    _slices,
    _budget,
    clause_changes,
    _escalation,
    _refit,
    _promotion,
    _tests,
)
