"""Checked fields → what happens: escalation rules, promotion gates and the contract's own tests."""

from itertools import pairwise

from paritas.contracts.found import Fields, Found
from paritas.contracts.model import (
    ContractTest,
    Escalation,
    Expectation,
    Family,
    Gate,
    Level,
    Promotion,
    Refit,
    Stage,
    When,
)
from paritas.contracts.problems import Problems
from paritas.records import Action, Severity, State

__all__ = ["build_escalation", "build_promotion", "build_refit", "build_tests"]


def build_escalation(items: tuple[Found, ...], problems: Problems) -> tuple[Escalation, ...]:
    """Return the sound escalation rules in the order of the file."""
    return tuple(_rule(item.value, problems) for item in items if item.is_sound)


def _rule(fields: Fields, problems: Problems) -> Escalation:
    levels = tuple(_level(item.value) for item in fields.items("levels"))
    for (earlier, later), item in zip(pairwise(levels), fields.items("levels")[1:], strict=True):
        if later.after_s <= earlier.after_s:
            at = item.value.at("after")
            problems.add(at.place, at.path, "levels must come in order of 'after'", "write a longer 'after'")
    keep = fields.get("keep_firing_for", Escalation.__dataclass_fields__["keep_firing_for_s"].default)
    return Escalation(_when(fields.record("when")), levels, float(fields.get("for", 0.0)), float(keep))


def _when(fields: Fields) -> When:
    states = tuple(State(s) for s in fields.values("state")) or (State.VIOLATED,)
    families = tuple(Family(f) for f in fields.values("family"))
    return When(families, fields.values("clause"), fields.values("slice"), states)


def _level(fields: Fields) -> Level:
    actions = tuple(_action(*item.value) for item in fields.items("actions"))
    return Level(Severity(fields.get("severity")), actions, float(fields.get("after", 0.0)))


def _action(kind: str, arguments: Fields) -> Action:
    defaults = {"share": 1.0} if kind == "reroute" else {}
    return Action(kind, {**defaults, **{name: found.value for name, found in arguments.found.items()}})


def build_promotion(section: Fields, problems: Problems) -> Promotion:
    """Return the declared gates in the order of the stages."""
    return Promotion(
        tuple(_gate(stage, section.record(stage), problems) for stage in Stage if stage in section)
    )


def _gate(stage: Stage, fields: Fields, problems: Problems) -> Gate:
    steps = fields.values("steps")
    if any(later <= earlier for earlier, later in pairwise(steps)):
        at = fields.at("steps")
        problems.add(at.place, at.path, "steps must grow", "write [0.01, 0.05, 0.25]")
    bake, deadline = (fields.get(name) for name in ("bake", "deadline"))
    return Gate(
        stage,
        alpha=fields.get("alpha", 0.01),
        suite=fields.get("suite", ""),
        share=fields.get("share"),
        steps=steps,
        bake_s=None if bake is None else float(bake),
        deadline_s=None if deadline is None else float(deadline),
        at_least_sequences=fields.record("at_least").get("sequences", 0),
        demote_on=tuple(State(s) for s in fields.values("demote_on")),
    )


def build_refit(fields: Fields) -> Refit:
    """Return the declared refit gate."""
    return Refit(fields.get("tokens"), fields.get("alpha", Refit.__dataclass_fields__["alpha"].default))


def build_tests(items: tuple[Found, ...], problems: Problems) -> tuple[ContractTest, ...]:
    """Return the tests the contract carries."""
    return tuple(_test(item.value, problems) for item in items if item.is_sound)


def _test(fields: Fields, problems: Problems) -> ContractTest:
    given = fields.record("given")
    _check_given(given, problems)
    one = given.get("trace", "")
    expect = tuple(_expectation(item.value, problems) for item in fields.items("expect"))
    return ContractTest(
        fields.get("name"), given.get("serve", one), given.get("train", one), expect, fields.place
    )


def _check_given(given: Fields, problems: Problems) -> None:
    names = [name for name in ("trace", "serve", "train") if name in given]
    if names not in (["trace"], ["serve", "train"]):
        got = " and ".join(names) or "nothing"
        hint = "write {trace: FILE}, or {serve: FILE, train: FILE}"
        problems.add(given.place, given.path, f"expected one recording or both sides, got {got}", hint)


def _expectation(fields: Fields, problems: Problems) -> Expectation:
    state, within = State(fields.get("state")), fields.get("at_most")
    if within is not None and state is not State.VIOLATED:
        at, hint = fields.at("at_most"), "remove it: every other state is judged at the end"
        problems.add(at.place, at.path, "at_most counts the sequences to a violation", hint)
    count = None if within is None else int(within.split()[0])
    return Expectation(fields.get("clause"), fields.get("slice"), state, count, fields.get("cause", ""))
