"""Which clauses the refit gate judges by (docs/repair.md)."""

from paritas.contracts.found import Fields
from paritas.contracts.model import Clause, Contract, Stage
from paritas.contracts.problems import Problems

__all__ = ["REFIT_STATISTICS", "check_refit", "is_refit_clause"]

REFIT_STATISTICS = ("tv", "mean_ratio")  # bounded, of sampled tokens alone, and resolved by a few sequences


def is_refit_clause(contract: Contract, clause: Clause) -> bool:
    """Whether a clause declares a limit that binds whole sequences in production and bets can refute."""
    whole = {part.name for part in contract.slices if part.match is None}
    binds = not clause.stages or Stage.FULL in clause.stages
    applies = bool(whole & set(clause.slices)) if clause.slices else bool(whole)
    is_limit = clause.at_most is not None and clause.at_most > 0.0 and not clause.derived
    return clause.statistic in REFIT_STATISTICS and binds and applies and is_limit and clause.quantile is None


def check_refit(spec: Fields, contract: Contract, problems: Problems) -> None:
    """Note a refit gate that no clause gives a limit; `contract` has its limits derived."""
    if contract.refit is not None and not any(is_refit_clause(contract, c) for c in contract.clauses):
        at, hint = spec.at("refit"), "declare one that binds every stage, in a slice without match"
        message = "the refit gate needs a tv or mean_ratio clause with a limit of its own"
        problems.add(at.place, at.path, message, hint)
