"""What changed in the clauses, which way it goes, and where they no longer bind."""

from collections.abc import Iterator

from paritas.contracts.diff_changes import Change, Effect, compared, directed, directed_set, keyed, shown
from paritas.contracts.model import Clause, Contract, Stage
from paritas.contracts.windows import window_text

__all__ = ["clause_changes"]

# What a larger option does, with everything else equal (docs/mathematics.md D9: beta falls as cap and clip grow).
_LARGER = {
    ("mean_ratio", "cap"): Effect.TIGHTENS,
    ("gradient_bias", "cap"): Effect.LOOSENS,
    ("gradient_bias", "clip"): Effect.LOOSENS,
    ("phantom_clip_rate", "clip"): Effect.LOOSENS,
    ("ratio_tail", "above"): Effect.LOOSENS,
    ("phantom_clip_rate", "clip_high"): Effect.LOOSENS,
    ("ppo_clip_rate", "clip"): Effect.LOOSENS,
    ("ppo_clip_rate", "clip_high"): Effect.LOOSENS,
    ("gspo_clip_rate", "clip"): Effect.LOOSENS,
    ("gspo_clip_rate", "clip_high"): Effect.LOOSENS,
    ("dpo_margin_drift", "beta"): Effect.TIGHTENS,
    ("confidence_drift", "smoothing"): Effect.LOOSENS,
}


def clause_changes(before: Contract, after: Contract) -> Iterator[Change]:
    """Yield the changes of every clause, by id; a new clause tightens, a lost one loosens."""
    old, new = ({clause.id: clause for clause in c.clauses} for c in (before, after))
    for name, first, second in keyed(old, new):
        path = f"clauses.{name}"
        if first is None or second is None:
            yield from compared(path, _summary(first), _summary(second), Effect.INCOMPARABLE)
        elif (first.statistic, first.family) != (second.statistic, second.family):
            yield Change(f"{path}.statistic", first.statistic, second.statistic, Effect.INCOMPARABLE)
        else:
            yield from _limits(path, first, second)
            yield from _options(path, first, second)
            yield from _scope(path, (before, first), (after, second))


def _summary(clause: Clause | None) -> str | None:
    if clause is None:
        return None
    limits = (("at_most", clause.at_most), ("at_least", clause.at_least))
    return " ".join([clause.statistic, *(f"{side} {shown(v)}" for side, v in limits if v is not None)])


def _limits(path: str, old: Clause, new: Clause) -> Iterator[Change]:
    yield from directed(f"{path}.at_most", old.at_most, new.at_most, more=Effect.LOOSENS)
    yield from directed(f"{path}.at_least", old.at_least, new.at_least, more=Effect.TIGHTENS)
    yield from _floors(path, old, new)
    if old.derived != new.derived:  # beyond a derived limit only the certificate is lost
        effect = Effect.LOOSENS if new.derived else Effect.TIGHTENS
        yield Change(f"{path}.derived", str(old.derived), str(new.derived), effect)


def _floors(path: str, old: Clause, new: Clause) -> Iterator[Change]:
    """A relative limit binds besides the ceiling, so having one tightens."""
    if old.floor is not None and new.floor is not None and old.floor.name == new.floor.name:
        yield from directed(f"{path}.floor.times", old.floor.times, new.floor.times, more=Effect.LOOSENS)
    else:
        yield from compared(f"{path}.floor", old.floor, new.floor, Effect.INCOMPARABLE)


def _options(path: str, old: Clause, new: Clause) -> Iterator[Change]:
    yield from directed(f"{path}.quantile", old.quantile, new.quantile, more=Effect.TIGHTENS)
    yield from _within(path, old, new)
    for option in ("above", "cap", "clip", "clip_high", "beta", "temperature", "smoothing"):
        effect = _LARGER.get((old.statistic, option), Effect.INCOMPARABLE)
        yield from directed(f"{path}.{option}", getattr(old, option), getattr(new, option), more=effect)
    yield from compared(f"{path}.reward_range", old.reward_range, new.reward_range, Effect.INCOMPARABLE)
    yield from _windows(path, old, new)
    yield from directed_set(f"{path}.agents", set(old.agents), set(new.agents), more=Effect.TIGHTENS)
    yield from compared(f"{path}.source", old.source, new.source, Effect.NEUTRAL)


def _windows(path: str, old: Clause, new: Clause) -> Iterator[Change]:
    """A longer window asks for more time and less independence; neither is simply stricter."""
    first, second = window_text(old), window_text(new)
    if first != second:
        yield Change(f"{path}.window", shown(first), shown(second), Effect.INCOMPARABLE)
    if old.baseline != new.baseline:
        yield Change(f"{path}.baseline", shown(old.baseline), shown(new.baseline), Effect.INCOMPARABLE)


def _within(path: str, old: Clause, new: Clause) -> Iterator[Change]:
    """A longer deadline is easier to keep; none at all means the contract's own pairing time."""
    yield from directed(f"{path}.within_s", old.within_s, new.within_s, more=Effect.LOOSENS)


def _scope(path: str, before: tuple[Contract, Clause], after: tuple[Contract, Clause]) -> Iterator[Change]:
    slices = [set(clause.slices or (s.name for s in contract.slices)) for contract, clause in (before, after)]
    yield from directed_set(f"{path}.slices", slices[0], slices[1], more=Effect.TIGHTENS)
    stages = [set(map(str, clause.stages or Stage)) for _, clause in (before, after)]
    yield from directed_set(f"{path}.stages", stages[0], stages[1], more=Effect.TIGHTENS)
