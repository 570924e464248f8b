"""`paritas repair`: what capping, clipping and masking cost, and which cap fits the bias budget."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.output import say
from paritas.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from paritas.contracts.model import Contract
    from paritas.detectors.cap import Recommendation
    from paritas.detectors.pairs import PairOutcome
    from paritas.detectors.repair import Price

__all__ = ["budget_of", "register"]


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "repair",
        help="what capping, clipping or masking the ratio costs, and the recommended cap",
        description="For each candidate: tokens it touches, sequences and correct answers it drops, effective sample "
        "that is left, and the bias that remains, certified. The recommended cap is the smallest whose certified "
        "bias fits the budget. Exit code: 0 a cap fits or no budget was given, 3 none fits.",
    )
    parser.add_argument("contract", metavar="CONTRACT", help="a contract file, or a shipped preset")
    parser.add_argument("--serve", metavar="FILE", type=Path, help="recording of the inference kernel")
    parser.add_argument("--train", metavar="FILE", type=Path, help="recording of the training kernel")
    parser.add_argument("--dump", metavar="PATH", type=Path, help="a dump that holds both kernels")
    parser.add_argument(
        "--bias",
        metavar="BETA",
        type=_beta,
        help="tolerated bias in units of A_max G (default: the contract's budget, else its gradient_bias clause)",
    )
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of a table")
    parser.set_defaults(run=run)


def _beta(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 2.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0 and at most 2")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Price and show; return 3 where a budget is given and no cap is certified to keep it."""
    from paritas.contracts.load import load_named
    from paritas.detectors.cap import recommend_cap
    from paritas.detectors.repair import price_repairs
    from paritas.detectors.sampling import is_sample

    contract = load_named(arguments.contract)
    outcomes = _outcomes(contract, arguments)
    if is_sample(outcomes):
        raise UsageError(
            "some sequences were recorded with a sampling_probability below 1, and prices are of all sequences",
            hint="give a recording of every sequence",
        )
    by_group = contract.compare.unit == "group"
    reward_range = contract.budget and contract.budget.reward_range
    prices = price_repairs(outcomes, by_group=by_group, reward_range=reward_range or (0.0, 1.0))
    if not prices:
        raise UsageError("nothing pairs", hint="paritas check says why, sequence by sequence")
    beta = arguments.bias or budget_of(contract)
    cap = None if beta is None else recommend_cap(outcomes, beta, by_group=by_group)
    (_write_json if arguments.json else _show)(prices, cap)
    return 3 if cap is not None and cap.cap is None else 0


def _outcomes(contract: "Contract", arguments: argparse.Namespace) -> "list[PairOutcome]":
    from paritas.commands.offline import dumped, read_outcomes, recorded

    pair = (arguments.serve, arguments.train)
    if arguments.dump is not None and any(pair):
        raise UsageError("--dump holds both kernels: give it without --serve and --train")
    if arguments.dump is not None:
        return read_outcomes(contract, dumped(arguments.dump))
    if not all(pair):
        raise UsageError("no input", hint="give --serve FILE --train FILE, or --dump PATH")
    return read_outcomes(contract, recorded(*pair, contract.compare.against))


def budget_of(contract: "Contract") -> float | None:
    """Return the tolerated bias: the budget's, else the tightest limit of a `gradient_bias` clause."""
    if contract.budget is not None and contract.budget.gradient_bias is not None:
        return contract.budget.gradient_bias
    limits = (c.at_most for c in contract.clauses if c.statistic == "gradient_bias")
    return min((limit for limit in limits if limit is not None), default=None)


def _write_json(prices: "Sequence[Price]", cap: "Recommendation | None") -> None:
    told = {
        "repairs": [{"name": str(p.repair), **asdict(p)} for p in prices],
        "recommended_cap": None if cap is None else {**asdict(cap), "says": str(cap)},
    }
    say(json.dumps(told, indent=2, allow_nan=False) + "\n")


def _show(prices: "Sequence[Price]", cap: "Recommendation | None") -> None:
    from paritas.commands.report import wide_console

    out = wide_console()
    out.print(_table(prices))
    out.print(
        f"\n{prices[0].sequences} sequences, {prices[0].tokens} tokens; limits hold for all rows together"
    )
    if cap is None:
        out.print("[bold]recommended cap[/]  give --bias, or a gradient_bias in the contract, to fit one to")
    else:
        out.print(f"[bold]recommended cap[/]  {cap}")


def _table(prices: "Sequence[Price]") -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    names = ("repair", "tokens touched", "seqs touched", "seqs lost", "ess", "bias", "bias at most")
    with_rewards = prices[0].correct is not None
    for name in (*names, *(("correct touched", "correct lost") if with_rewards else ())):
        table.add_column(name, justify="left" if name == "repair" else "right", no_wrap=True)
    for price in prices:
        table.add_row(*_cells(price), *(_answers(price) if with_rewards else ()))
    return table


def _cells(price: "Price") -> tuple[str, ...]:
    return (
        str(price.repair),
        _counted(price.touched, price.tokens),
        _counted(price.sequences_touched, price.sequences),
        str(price.sequences_lost),
        f"{price.ess:.4f}",
        f"{price.bias.estimate:.4g}",
        f"{price.bias.upper:.4g}",
    )


def _answers(price: "Price") -> tuple[str, str]:
    return f"{price.correct_touched} of {price.correct}", str(price.correct_lost)


def _counted(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.2%})"
