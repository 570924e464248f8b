"""What a valid contract may still get wrong: warnings with the numbers and a way out."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from paritas.contracts.budget import declared_levels, forecasts
from paritas.contracts.catalogue import CATALOGUE, Test
from paritas.contracts.model import Clause, Contract, Escalation, Place, Stage
from paritas.contracts.plausible import floor_of, rounding_sd
from paritas.contracts.windows import window_text
from paritas.records import Role, State

__all__ = ["Lint", "LintWarning", "answers", "lint"]

PAIRS_AT_MOST = 2000  # clause x slice pairs; each tenfold asks for one more unit of log10 evidence
SHORT_WINDOW_S, SHORT_WINDOW_STEPS = 1.0, 1000  # shorter ones were measured to alarm falsely
RARE = 0.01
GATED = (Stage.OFFLINE_CI, Stage.SHADOW, Stage.CANARY)


class Lint(StrEnum):
    """The closed list of warnings."""

    NEVER_PASSES = "never-passes"
    BUDGET_INSUFFICIENT = "budget-insufficient"
    BUDGET_UNWATCHED = "budget-unwatched"
    BUDGET_VACUOUS = "budget-vacuous"
    NO_HORIZON = "no-horizon"
    VACUOUS = "vacuous"
    BELOW_ROUNDING = "below-rounding"
    SLICE_UNUSED = "slice-unused"
    TOO_MANY_PAIRS = "too-many-pairs"
    NOBODY_TOLD = "nobody-told"
    RULE_IDLE = "rule-idle"
    NO_REFERENCE = "no-reference"
    NO_IDENTITY = "no-identity"
    WINDOW_SHORT = "window-short"
    SAMPLED_RARELY = "sampled-rarely"
    SAMPLED_GROUPS = "sampled-groups"


@dataclass(frozen=True, slots=True)
class LintWarning:
    """One thing that a person should look at; the contract loads all the same."""

    place: Place
    code: Lint
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.place}: [{self.code}] {self.message}\n  hint: {self.hint}"


def lint(contract: Contract) -> tuple[LintWarning, ...]:
    """Return every warning, in the order of the file.

    Examples
    --------
    >>> from paritas.contracts.load import load_preset
    >>> lint(load_preset("dense-bf16"))
    ()
    """
    found = [warning for check in _CHECKS for warning in check(contract)]
    return tuple(sorted(found, key=lambda w: (w.place.file, w.place.line, w.place.column)))


def _at(place: Place | None, contract: Contract) -> Place:
    return place or Place(contract.file, 1, 1)


def never_passes(contract: Contract) -> Iterator[LintWarning]:
    """A gate needs a PASS of every clause; some statistics can be refuted but never certified."""
    gated = {gate.stage for gate in contract.promotion.gates} & set(GATED)
    for clause in contract.clauses:
        stages = gated & set(clause.stages or GATED)
        if stages and not CATALOGUE[clause.statistic].certifiable:
            names = ", ".join(stage for stage in GATED if stage in stages)
            message = (
                f"clause {clause.id}: no data can certify {clause.statistic}, so the gates {names} never pass"
            )
            hint = "write stages: [full] to keep it as a monitor" + _certifiable_hint(clause)
            yield LintWarning(_at(clause.place, contract), Lint.NEVER_PASSES, message, hint)


def _certifiable_hint(clause: Clause) -> str:
    is_numeric = clause.statistic in {"kl_k3", "chi_square", "logprob_abs_diff", "ess"}
    return ", or use tv, which can be certified" if is_numeric else ""


def budget_gaps(contract: Contract) -> Iterator[LintWarning]:
    """Every declared level wants one clause that keeps it."""
    budget = contract.budget
    if budget is None:
        return
    place, known = _at(budget.place, contract), forecasts(contract)
    for level, declared in declared_levels(budget).items():
        own = [f for f in known if f.level == level]
        if not own:
            hint = "add the clause; its limit may be left out and is then derived (paritas contract budget)"
            yield LintWarning(place, Lint.BUDGET_UNWATCHED, f"no clause says anything about {level}", hint)
        elif not any(f.is_sufficient for f in own):
            numbers = "; ".join(f"{f.clause} at {f.limit:g} allows {f.forecast:.3g}" for f in own)
            hint = "tighten one, or leave its limit out to derive it; all of them still bind"
            message = f"no clause alone keeps {level} {declared:g}: {numbers}"
            yield LintWarning(place, Lint.BUDGET_INSUFFICIENT, message, hint)


def budget_shape(contract: Contract) -> Iterator[LintWarning]:
    """A budget as wide as the range asks nothing; one without a horizon derives nothing."""
    budget = contract.budget
    if budget is None:
        return
    place = _at(budget.place, contract)
    if budget.reward_drift is not None and budget.reward_range is not None:
        low, high = budget.reward_range
        if budget.reward_drift >= high - low:
            message = f"reward_drift {budget.reward_drift:g} is as wide as the reward range {high - low:g}"
            yield LintWarning(place, Lint.BUDGET_VACUOUS, message, "declare a smaller drift")
    is_sequence = budget.reward_drift is not None or budget.sequence_tv is not None
    if is_sequence and budget.max_tokens is None:
        message = "no max_tokens: nothing can be derived for a token, nor forecast from it"
        yield LintWarning(place, Lint.NO_HORIZON, message, "write max_tokens: the longest response")


def vacuous(contract: Contract) -> Iterator[LintWarning]:
    """A limit at the end of the statistic's range can never be exceeded."""
    for clause in contract.clauses:
        if fault := _vacuous(clause):
            place = _at(clause.place, contract)
            yield LintWarning(
                place, Lint.VACUOUS, f"clause {clause.id}: {fault}", "tighten it or remove the clause"
            )


def _vacuous(clause: Clause) -> str:
    high = _highest(clause)
    if clause.at_most is not None and clause.at_most >= high:
        return f"{clause.statistic} never exceeds {high:g}, so at_most {clause.at_most:g} asks nothing"
    if clause.at_least is not None and clause.at_least <= CATALOGUE[clause.statistic].lo:
        return f"{clause.statistic} is never below {clause.at_least:g}, so at_least asks nothing"
    return ""


def _highest(clause: Clause) -> float:
    """Largest value one unit can have; gradient bias is 1 for every estimator that uses the ratio."""
    if clause.statistic == "mean_ratio":
        return clause.cap or float("inf")
    is_weighted = clause.statistic == "gradient_bias" and (clause.cap is not None)
    return 1.0 if is_weighted else CATALOGUE[clause.statistic].hi


def below_rounding(contract: Contract) -> Iterator[LintWarning]:
    """A limit below what the declared number formats do to a healthy pair fires every day."""
    rounding = rounding_sd(contract)
    if rounding is None:
        return
    sd, fmt = rounding
    tokens = contract.budget and contract.budget.mean_tokens  # the longest response would exaggerate
    for clause in contract.clauses:
        floor = floor_of(clause, sd, int(tokens) if tokens else None)
        if floor is not None and clause.at_most is not None and clause.at_most < floor:
            message = f"clause {clause.id}: {fmt} rounding alone gives {clause.statistic} about {floor:.2g}, the limit is {clause.at_most:.2g}"
            hint = "raise the limit to 1.5 times what you measure, or declare batch_invariant kernels"
            yield LintWarning(_at(clause.place, contract), Lint.BELOW_ROUNDING, message, hint)


def slice_unused(contract: Contract) -> Iterator[LintWarning]:
    """A slice that no clause looks at takes its share of the false-alarm budget and says nothing."""
    used = {name for clause in contract.clauses for name in clause.slices}
    if any(not clause.slices for clause in contract.clauses):
        return  # a clause without slices binds all of them
    for part in contract.slices:
        if part.name not in used:
            hint = "name it in a clause's slices, or leave slices out there to bind every slice"
            message = f"slice {part.name} is declared but no clause uses it"
            yield LintWarning(_at(part.place, contract), Lint.SLICE_UNUSED, message, hint)


def too_many_pairs(contract: Contract) -> Iterator[LintWarning]:
    """Clauses and slices share one false-alarm budget: many pairs make every alarm slow."""
    sizes = {part.name: part.at_most + 1 if part.by else 1 for part in contract.slices}
    pairs = sum(sizes[name] for clause in contract.clauses for name in clause.slices or sizes)
    if pairs > PAIRS_AT_MOST:
        alarms = contract.false_alarms
        message = f"{pairs} clause-slice pairs share {alarms.at_most:g} false alarms per {alarms.per_s / 86_400:g} days"
        hint = "lower at_most of the 'by' slices, or name fewer slices in the clauses"
        yield LintWarning(Place(contract.file, 1, 1), Lint.TOO_MANY_PAIRS, message, hint)


def nobody_told(contract: Contract) -> Iterator[LintWarning]:
    """A violation that no rule answers changes a page and nothing else."""
    if not contract.escalation:
        hint = "add spec.escalation, or start from a preset"
        yield LintWarning(
            Place(contract.file, 1, 1), Lint.NOBODY_TOLD, "no escalation: nobody is told of a violation", hint
        )
        return
    for clause in contract.clauses:
        if not any(
            answers(rule, clause) and State.VIOLATED in rule.when.state for rule in contract.escalation
        ):
            message = f"clause {clause.id}: no escalation rule answers its violation"
            hint = f"add a rule with when: {{family: {clause.family}, state: violated}}"
            yield LintWarning(_at(clause.place, contract), Lint.NOBODY_TOLD, message, hint)


def answers(rule: Escalation, clause: Clause) -> bool:
    """Whether a rule can be about a clause, whatever the slice and the state."""
    is_family = not rule.when.family or clause.family in rule.when.family
    return is_family and (not rule.when.clause or clause.id in rule.when.clause)


def rule_idle(contract: Contract) -> Iterator[LintWarning]:
    """A rule whose family and clause exclude each other never fires."""
    for number, rule in enumerate(contract.escalation):
        if not any(answers(rule, clause) for clause in contract.clauses):
            message = f"escalation[{number}] answers no clause of the contract"
            yield LintWarning(
                Place(contract.file, 1, 1), Lint.RULE_IDLE, message, "check its family and clause"
            )


def no_reference(contract: Contract) -> Iterator[LintWarning]:
    """Rerouting to a reference that is not declared cannot be checked."""
    kinds = {
        (a.kind, a.arguments.get("to"))
        for r in contract.escalation
        for level in r.levels
        for a in level.actions
    }
    if contract.kernels and ("reroute", "reference") in kinds and Role.REFERENCE not in contract.kernels:
        message = "a rule reroutes to the reference kernel, which is not declared"
        yield LintWarning(
            Place(contract.file, 1, 1), Lint.NO_REFERENCE, message, "declare spec.kernels.reference"
        )


def no_identity(contract: Contract) -> Iterator[LintWarning]:
    """`kernel_identity` compares with what `kernels` declares."""
    for clause in contract.clauses:
        if CATALOGUE[clause.statistic].test is Test.STATE and not contract.kernels:
            message = f"clause {clause.id}: no kernel is declared, so there is nothing to compare"
            hint = "declare spec.kernels, for example inference: {engine: vllm, dtype: bfloat16}"
            yield LintWarning(_at(clause.place, contract), Lint.NO_IDENTITY, message, hint)


def window_short(contract: Contract) -> Iterator[LintWarning]:
    """Requests of one moment share their load: a test that takes them for independent alarms falsely."""
    for clause in contract.clauses:
        is_short = (clause.window_s or SHORT_WINDOW_S) < SHORT_WINDOW_S
        if is_short or (clause.window_steps or SHORT_WINDOW_STEPS) < SHORT_WINDOW_STEPS:
            message = f"clause {clause.id}: requests {window_text(clause)} apart share their load, and the test takes them for independent"
            hint = "write window: 1s or longer, or window: 1000 steps or more"
            yield LintWarning(_at(clause.place, contract), Lint.WINDOW_SHORT, message, hint)


def sampling(contract: Contract) -> Iterator[LintWarning]:
    """Weights shrink every unit's evidence; members of a group must have been kept together."""
    at_least, place = contract.compare.sampled_at_least, Place(contract.file, 1, 1)
    if at_least is not None and at_least < RARE:
        message = f"sampling at_least {at_least:g}: a sequence kept for certain counts {at_least:g} times, so decisions take about {1 / at_least:g} times as many"
        yield LintWarning(place, Lint.SAMPLED_RARELY, message, "keep more of the ordinary sequences")
    if at_least is not None and contract.compare.unit == "group":
        message = "the unit is a group: all of its sequences must have been kept with one probability"
        yield LintWarning(place, Lint.SAMPLED_GROUPS, message, "sample by group_id, or write unit: sequence")


_CHECKS = (
    never_passes,
    budget_gaps,
    budget_shape,
    vacuous,
    below_rounding,
    slice_unused,
    too_many_pairs,
    nobody_told,
    rule_idle,
    no_reference,
    no_identity,
    window_short,
    sampling,
)
