"""How verdicts, causes and accounting look in a terminal."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import isfinite
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paritas.commands.offline import Judgement
from paritas.commands.offline_refit import RefitResult, refit_line
from paritas.commands.patient_console import PatientConsole
from paritas.contracts.floors import floor_notes
from paritas.detectors.lengths import shortest_of
from paritas.detectors.refit import RefitState
from paritas.records import Finding, Reason, State, TokenStatus, Verdict

__all__ = ["finding_line", "number", "show_judgement", "state_text", "verdict_table", "wide_console"]

COLOURS = {
    State.CONFORMING: "green",
    State.VIOLATED: "bold red",
    State.UNDECIDED: "yellow",
    State.NO_DATA: "dim",
}
Justify = Literal["left", "right"]
COLUMNS: tuple[tuple[str, Justify], ...] = (
    ("clause", "left"),
    ("slice", "left"),
    ("state", "left"),
    ("estimate", "right"),
    ("95 % limits", "right"),
    ("limit", "right"),
    ("log₁₀e", "right"),
    ("seqs", "right"),
    ("why", "left"),
)
MAX_ROWS = 14
GATE_ORDER = (RefitState.REJECTED, RefitState.HELD, RefitState.ACCEPTED)
WIDTH = 120  # the widest row of real recordings takes 112
SHOWN_PEERS = (
    "verl:training/rollout_probs_diff_mean",
    "trl:sampling/sampling_logp_difference/mean",
    "nemo_rl:train/token_mult_prob_error",
    "prime_rl:mismatch_kl/all/mean",
)


def number(value: float) -> str:
    """Four significant digits; a dash where there is none.

    Examples
    --------
    >>> number(0.0180412), number(float("nan"))
    ('0.01804', '–')
    """
    return f"{value:.4g}" if isfinite(value) else "–"


def state_text(state: State) -> str:
    """State with its colour, as rich markup."""
    return f"[{COLOURS[state]}]{state.value}[/]"


def wide_console() -> Console:
    """A console that never cuts a number: a table row may be longer than a narrow terminal."""
    size = Console().size  # both are given: with a width alone rich takes 80 columns of TERM=dumb, and cuts
    return PatientConsole(width=max(size.width, WIDTH), height=size.height, soft_wrap=True, highlight=False)


def verdict_table(verdicts: Iterable[Verdict]) -> Table:
    """One row a clause and slice; numbers keep their columns, the reason may wrap."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in COLUMNS:
        table.add_column(name, justify=justify, no_wrap=name != "why", overflow="fold")
    for v in verdicts:
        table.add_row(*_cells(v))
    return table


def _cells(v: Verdict) -> Sequence[str]:
    limits = f"{number(v.lower)} … {number(v.upper)}" if isfinite(v.lower) else "–"
    return (
        v.clause,
        escape(v.slice),
        state_text(v.state),
        number(v.estimate),
        limits,
        number(v.limit),
        _evidence(v),
        str(v.units),
        _why(v),
    )


def _evidence(v: Verdict) -> str:
    """log10 of the odds against "the limit is kept", and what the budget asks for."""
    if not isfinite(v.log10_e) or not isfinite(v.threshold_log10):
        return "–"
    return f"{v.log10_e:.1f}/{v.threshold_log10:.1f}"


def _why(v: Verdict) -> str:
    if v.reason is Reason.NEEDS_MORE_UNITS and v.needed_units > v.units:
        return f"~{v.needed_units - v.units} more for a pass"
    return v.reason.value.replace("_", " ")


def finding_line(finding: Finding) -> str:
    """One line of rich markup: slice, cause, confidence, the facts."""
    facts = ", ".join(f"{k} {number(v) if isinstance(v, float) else v}" for k, v in finding.facts.items())
    head = f"[bold]{finding.cause}[/] in {escape(finding.slice)} ({finding.confidence:.0%})"
    return f"{head}: {escape(facts)}\n    [italic]{escape(finding.advice)}[/]"


def show_judgement(judgement: Judgement, console: Console | None = None) -> None:
    """Write the whole judgement: verdicts, causes, accounting, peers' numbers."""
    out = console or wide_console()
    contract = judgement.contract
    out.print(f"[bold]{escape(contract.name)}[/] {contract.version}  {_headline(judgement)}\n")
    out.print(verdict_table(_shown(judgement.verdicts)))
    _show_rest(out, judgement.verdicts)
    _show_lengths(out, judgement.verdicts)
    if judgement.diagnosis:
        out.print("\n[bold]likely causes[/]")
        for finding in _distinct(judgement.diagnosis):
            out.print("  " + finding_line(finding))
    if judgement.refit is not None:
        _show_refit(out, judgement.refit)
    _show_consequences(out, judgement)
    _show_assumptions(out, judgement)
    _show_accounting(out, judgement)


def _show_refit(out: Console, refit: RefitResult) -> None:
    """What the refit gate says of each version, the rejected ones first, and what does not count for it."""
    counts = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in sorted(refit.sequences.items()))
    out.print(f"\n[bold]refit gate[/]  sequences: {counts or 'none with a weights version'}")
    for one in sorted(refit.versions, key=lambda one: GATE_ORDER.index(one.state))[:MAX_ROWS]:
        out.print(f"  {escape(refit_line(one))}")
    if (hidden := len(refit.versions) - MAX_ROWS) > 0:
        out.print(f"[dim]  and {hidden} more; --json has them all[/]")
    for finding in _distinct(refit.diagnosis):
        out.print("  " + finding_line(finding))


def _show_consequences(out: Console, judgement: Judgement) -> None:
    """What rounding cannot explain, each clause in its first slice; what cap would do; which floors bind."""
    first = {one.clause: one for one in reversed(judgement.implausible)}
    lines = [f"[bold]not rounding[/]  {escape(str(one))}" for one in reversed(first.values())]
    if judgement.cap is not None:
        lines.append(f"[bold]recommended cap[/]  {escape(str(judgement.cap))}")
    if judgement.level.attempt is not None:
        lines.append(f"[bold]gate[/]  {escape(str(judgement.level))}")
    lines += [f"[bold]floor[/]  {escape(note)}" for note in floor_notes(judgement.contract)]
    if lines:
        out.print("\n" + "\n".join(lines))


def _show_assumptions(out: Console, judgement: Judgement) -> None:
    """What each certificate rests on, in its first slice; every failed premise, wherever it failed."""
    shown: set[str] = set()
    for (clause, name), ledger in judgement.assumptions.items():
        entries = ledger.failed if clause in shown else ledger.entries
        shown.add(clause)
        if entries:
            out.print(f"\n[bold]{escape(clause)} in {escape(name)} rests on[/]")
        for entry in entries:
            mark = entry.standing.value if entry.holds else f"[red]{entry.standing.value}, fails[/]"
            out.print(f"  {entry.assumption.value.replace('_', ' ')}: {mark} ({escape(entry.detail)})")


def _headline(judgement: Judgement) -> str:
    counts = {state: sum(v.state is state for v in judgement.verdicts) for state in State}
    return ", ".join(f"{n} {state_text(state)}" for state, n in counts.items() if n)


def _shown(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """What a person needs: everything violated, and every clause in its first slice."""
    first = [next(group) for _, group in groupby(verdicts, key=lambda v: v.clause)]
    worst = sorted((v for v in verdicts if v.state is State.VIOLATED), key=lambda v: -v.log10_e)
    rest = [v for v in first if v.state is not State.VIOLATED]
    return [*worst[:MAX_ROWS], *rest]


def _distinct(findings: Sequence[Finding]) -> list[Finding]:
    """The first finding of each cause, which is the plain slice's or the strongest; slices that stand out stay."""
    seen: set[str] = set()
    kept = []
    for finding in findings:
        if finding.cause not in seen or finding.cause == "isolated_slice":
            kept.append(finding)
        seen.add(finding.cause)
    return kept


def _show_rest(out: Console, verdicts: Sequence[Verdict]) -> None:
    hidden = len(verdicts) - len(_shown(verdicts))
    if hidden:
        out.print(f"[dim]and {hidden} more rows; --json has them all[/]")


def _show_lengths(out: Console, verdicts: Sequence[Verdict]) -> None:
    """Estimates by length bucket, shortest first: what grows with length shows as a trend."""
    told = sorted((v for v in verdicts if shortest_of(v.slice) >= 0 and v.units), key=lambda v: v.clause)
    if told:
        out.print("\n[bold]by length[/], in tokens: estimate (sequences)")
    for clause, group in groupby(told, key=lambda v: v.clause):
        buckets = sorted(group, key=lambda v: shortest_of(v.slice))
        shown = ", ".join(f"{v.slice.partition('=')[2]} {number(v.estimate)} ({v.units})" for v in buckets)
        out.print(f"  {clause}: {shown}")


def _show_accounting(out: Console, judgement: Judgement) -> None:
    pairs = ", ".join(f"{n} {name}" for name, n in judgement.pairs.items() if n)
    out.print(f"\n[bold]accounting[/]  sequences: {pairs or 'none'}")
    if judgement.sampling:
        told = ", ".join(f"{n} {name}" for name, n in judgement.sampling.items() if n)
        out.print(f"  sampling probability: {told}")
    for role, account in judgement.accounting.roles.items():
        counts = zip(TokenStatus, account.by_status, strict=True)
        told = ", ".join(f"{n} {status.name.lower()}" for status, n in counts if n)
        out.print(f"  {role} tokens: {told or 'none'}")
    for problem in judgement.problems[:5]:
        out.print("  [yellow]" + escape(problem.render()) + "[/]")
    peers = ", ".join(
        f"{name} {number(judgement.rosetta[name])}" for name in SHOWN_PEERS if name in judgement.rosetta
    )
    if peers:
        out.print(f"[bold]as others print it[/]  {peers}")
