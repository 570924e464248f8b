"""Checked fields → clauses: what the catalogue knows about a statistic, its options and its limit."""

from collections.abc import Iterator
from dataclasses import replace

from paritas.contracts.build_scope import ESTIMATOR_TAKES
from paritas.contracts.catalogue import CATALOGUE, Side, Statistic
from paritas.contracts.durations import Seconds
from paritas.contracts.found import Fields, Found
from paritas.contracts.model import Budget, Clause, Estimator, Family, Floor, Stage
from paritas.contracts.problems import Problems
from paritas.contracts.windows import WINDOW_HINT, parse_window

__all__ = ["DEFAULT_CAP", "DERIVABLE", "build_clauses"]

DEFAULT_CAP = 2.0  # what verl, SkyRL, ms-swift and open-instruct ship for token-level truncation

# Statistics whose limit the budget can give (docs/mathematics.md F).
DERIVABLE = frozenset(
    {
        *("gradient_bias", "kl_k3", "logit_oscillation", "sequence_tv", "tv", "tv_topk"),
        *("reward_gain", "reward_loss"),
    }
)

EMPTY = Clause("", Family.NUMERICAL, "")

OPTIONS = (
    *("quantile", "above", "cap", "clip", "clip_high"),
    *("beta", "temperature", "smoothing", "reward_range", "within"),
    *("window", "baseline", "agents"),
)
NEEDED = {
    "quantile": "write quantile: 0.99, the share of units that must keep the limit",
    "above": "write above: 2.0, the ratio beyond which a token counts",
    "clip": "write clip: 0.2, the clip range of your loss",
    "beta": "write beta: 0.1, the factor of your loss",
}
HAS_DEFAULT = frozenset({("gradient_bias", "clip")})


def build_clauses(section: Fields, budget: Budget | None, problems: Problems) -> tuple[Clause, ...]:
    """Return the sound clauses of all four families, in the order of the file."""
    return tuple(_all_clauses(section, budget, problems))


def _all_clauses(section: Fields, budget: Budget | None, problems: Problems) -> Iterator[Clause]:
    for family in Family:
        for item in section.items(family):
            if item.is_sound and (clause := _clause(family, item.value, budget, problems)) is not None:
                yield clause


def _clause(family: Family, fields: Fields, budget: Budget | None, problems: Problems) -> Clause | None:
    statistic = CATALOGUE[fields.get("statistic")]
    before = len(problems)
    _check_options(statistic, fields, problems)
    _check_sides(statistic, fields, budget, problems)
    _check_estimator(statistic, fields, budget, problems)
    _check_reward_range(fields, problems)
    _check_window(fields, problems)
    limits = [_limit(statistic, fields, side, problems) for side in (Side.AT_MOST, Side.AT_LEAST)]
    if len(problems) > before:
        return None
    cap, clip = _cap(statistic, fields, budget), _clip(statistic, fields, budget)
    checked = replace(EMPTY, at_most=limits[0], at_least=limits[1], cap=cap, clip=clip)
    checked = replace(checked, reward_range=_reward_range(statistic, fields, budget))
    return _plain_clause(family, fields, checked)


def _plain_clause(family: Family, fields: Fields, checked: Clause) -> Clause:
    """Fill in what needs no catalogue."""
    statistic = fields.get("statistic")
    window_s, window_steps = _window(CATALOGUE[statistic], fields)
    return replace(
        checked,
        id=fields.get("id"),
        family=family,
        statistic=statistic,
        floor=_floor(fields, CATALOGUE[statistic].side),
        quantile=fields.get("quantile"),
        above=fields.get("above"),
        clip_high=fields.get("clip_high"),
        beta=fields.get("beta"),
        temperature=fields.get("temperature"),
        smoothing=fields.get("smoothing"),
        within_s=_plain(fields.get("within")),
        window_s=window_s,
        window_steps=window_steps,
        baseline=fields.get("baseline", CATALOGUE[statistic].baseline or None),
        agents=fields.values("agents"),
        slices=fields.values("slices"),
        stages=tuple(Stage(s) for s in fields.values("stages")),
        derived=fields.get("derived", False),
        source=fields.get("source", ""),
        place=fields.place,
    )


def _check_options(statistic: Statistic, fields: Fields, problems: Problems) -> None:
    for option in OPTIONS:
        if option in fields and option not in statistic.options:
            at, takes = fields.at(option), ", ".join(statistic.options) or "no options"
            problems.add(at.place, at.path, f"{statistic.name} takes no {option!r}", f"it takes: {takes}")
        is_needed = option in NEEDED and (statistic.name, option) not in HAS_DEFAULT
        if is_needed and option in statistic.options and option not in fields:
            problems.add(fields.place, fields.path, f"{statistic.name} needs {option!r}", NEEDED[option])


def _check_sides(statistic: Statistic, fields: Fields, budget: Budget | None, problems: Problems) -> None:
    wrong = [side for side in (Side.AT_MOST, Side.AT_LEAST) if side in fields and side != statistic.side]
    for side in wrong:
        at = fields.at(side)
        hint = "remove it" if statistic.side is Side.NEITHER else f"write {statistic.side}"
        problems.add(at.place, at.path, f"{statistic.name} takes no '{side}'", hint)
    is_missing = statistic.side is not Side.NEITHER and statistic.side not in fields and not wrong
    if is_missing and not (budget is not None and statistic.name in DERIVABLE):
        hint = f"write {statistic.side}: a limit in {statistic.unit}" + _budget_hint(statistic)
        problems.add(fields.place, fields.path, f"{statistic.name} needs '{statistic.side}'", hint)


def _budget_hint(statistic: Statistic) -> str:
    return ", or declare spec.budget to derive it" if statistic.name in DERIVABLE else ""


def _limit(statistic: Statistic, fields: Fields, side: Side, problems: Problems) -> float | None:
    """Return the absolute limit on that side after checking its unit and range."""
    if side not in fields or side != statistic.side:
        return None
    at: Found = fields.at(side)
    if isinstance(at.value, Fields):
        at = at.value.at("ceiling")
    if fault := _limit_fault(statistic, at.value, fields.get("cap", DEFAULT_CAP)):
        problems.add(at.place, at.path, *fault)
    return float(at.value)


def _limit_fault(statistic: Statistic, value: float, cap: float) -> tuple[str, str] | None:
    """Return what is wrong with a limit and the hint, or None."""
    is_duration = isinstance(value, Seconds)
    if statistic.unit == "seconds" and not is_duration:
        return (
            f"{statistic.name} is a duration, got number {value:g}",
            f"durations carry a unit: write {value:g}s" + (f" or {value:g}ms" if value >= 10 else ""),
        )
    if statistic.unit != "seconds" and is_duration:
        return f"{statistic.name} is in {statistic.unit}, got a duration", "write a plain number"
    if value > statistic.hi:
        hint = (
            f"a share: write {value / 100:g} for {value:g} %"
            if statistic.hi == 1 and statistic.unit != "nats"
            else ""
        )
        return f"must be at most {statistic.hi:g}, got {value:g}", hint
    if statistic.name == "mean_ratio" and not 1 <= value <= cap:
        return (
            f"must be between 1 and the cap {cap:g}, got {value:g}",
            "a healthy pair has mean 1: write 1.002",
        )
    return None


def _floor(fields: Fields, side: Side) -> Floor | None:
    limit = fields.get(side)
    return Floor(limit.get("floor"), limit.get("times")) if isinstance(limit, Fields) else None


def _cap(statistic: Statistic, fields: Fields, budget: Budget | None) -> float | None:
    """Fill in the truncation: the clause's own, else the estimator's, else the usual one."""
    if "cap" in fields or "cap" not in statistic.options:
        return _plain(fields.get("cap"))
    if statistic.name != "gradient_bias":
        return DEFAULT_CAP
    estimator = _estimator(fields, budget)
    return estimator.cap if "cap" in ESTIMATOR_TAKES[estimator.kind] else None


def _clip(statistic: Statistic, fields: Fields, budget: Budget | None) -> float | None:
    is_own = "clip" in fields or statistic.name != "gradient_bias"
    return _plain(fields.get("clip")) if is_own else _estimator(fields, budget).clip


def _reward_range(statistic: Statistic, fields: Fields, budget: Budget | None) -> tuple[float, float] | None:
    """The clause's own range, else the budget's."""
    if "reward_range" in fields:
        low, high = fields.values("reward_range")
        return float(low), float(high)
    takes = "reward_range" in statistic.options and budget is not None
    return budget.reward_range if takes and budget is not None else None


def _estimator(fields: Fields, budget: Budget | None) -> Estimator:
    """The budget's estimator; without one, clipping if the clause names a clip range only."""
    if budget is not None and budget.estimator is not None:
        return budget.estimator
    return Estimator("clip" if "clip" in fields and "cap" not in fields else "tis")


def _check_estimator(statistic: Statistic, fields: Fields, budget: Budget | None, problems: Problems) -> None:
    kind = _estimator(fields, budget).kind
    for option in ("cap", "clip"):
        if statistic.name == "gradient_bias" and option in fields and option not in ESTIMATOR_TAKES[kind]:
            at = fields.at(option)
            takes = ", ".join(o for o in ESTIMATOR_TAKES[kind] if o != "low") or "nothing"
            problems.add(at.place, at.path, f"estimator {kind!r} takes no {option!r}", f"it takes: {takes}")


def _check_reward_range(fields: Fields, problems: Problems) -> None:
    values = fields.values("reward_range")
    if len(values) == 2 and values[0] >= values[1]:
        at, told = fields.at("reward_range"), f"{values[0]:g} and {values[1]:g}"
        problems.add(at.place, at.path, f"the lowest reward must be below the highest, got {told}", "")


def _check_window(fields: Fields, problems: Problems) -> None:
    at = fields.at("window")
    try:
        parse_window(at.value or "1s")
    except ValueError:
        problems.add(at.place, at.path, f"{at.value!r} is no window: nothing fits in", WINDOW_HINT)


def _window(statistic: Statistic, fields: Fields) -> tuple[float | None, int | None]:
    """The clause's own window, else the catalogue's."""
    text = fields.get("window", statistic.window)
    return parse_window(text) if text else (None, None)


def _plain(value: float | None) -> float | None:
    """Drop the `Seconds` type, which serves the reader only."""
    return None if value is None else float(value)
