"""The verbs of `paritas contract`: arguments in, text on standard output and an exit code out."""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

from paritas.commands.contract_presets import presets_json, presets_page
from paritas.commands.jsonable import finite
from paritas.commands.numbers import number_page
from paritas.commands.output import say
from paritas.contracts.budget import declared_levels, derived, forecasts
from paritas.contracts.catalogue import CATALOGUE
from paritas.contracts.diff import compare_contracts
from paritas.contracts.dump import resolved
from paritas.contracts.explain import explain, overview
from paritas.contracts.lint import lint
from paritas.contracts.load import load_named, preset_names
from paritas.contracts.model import Contract
from paritas.contracts.problems import did_you_mean
from paritas.contracts.schema import json_schema
from paritas.contracts.starter import starter_text
from paritas.contracts.table_scalars import NAME
from paritas.contracts.testing import TestResult, run_tests
from paritas.errors import UsageError

__all__ = [
    "run_budget",
    "run_diff",
    "run_explain",
    "run_init",
    "run_lint",
    "run_presets",
    "run_schema",
    "run_test",
]

OK, FINDINGS = 0, 1


def _say(*lines: str) -> None:
    say("".join(f"{line}\n" for line in lines))


def _say_json(value: object) -> None:
    _say(json.dumps(value, indent=2, ensure_ascii=False))


def run_init(args: argparse.Namespace) -> int:
    """Write the starter contract; never over an existing file."""
    if args.preset not in preset_names():
        raise UsageError(f"unknown preset {args.preset!r}", hint=did_you_mean(args.preset, preset_names()))
    if not re.fullmatch(NAME.pattern, args.name):
        raise UsageError(f"{args.name!r} is no name of a contract", hint=NAME.hint)
    text = starter_text(name=args.name, preset=args.preset, file=args.output or "FILE")
    if args.output is None:
        sys.stdout.write(text)
        return OK
    _write_new(Path(args.output), text)
    _say(f"{args.output} written; check it with: paritas contract lint {args.output}")
    return OK


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path}: exists already", hint="choose another name, or remove it") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def run_lint(args: argparse.Namespace) -> int:
    """Load every contract and print its warnings."""
    contracts = [load_named(name) for name in args.files]
    warnings = [(contract, lint(contract)) for contract in contracts]
    if args.json:
        _say_json([_lint_row(contract, found) for contract, found in warnings])
    else:
        for contract, found in warnings:
            _say(*map(str, found), _lint_summary(contract, len(found)))
    return FINDINGS if args.strict and any(found for _, found in warnings) else OK


def _lint_row(contract: Contract, found: Iterable[object]) -> dict[str, object]:
    return {
        "file": contract.file,
        "name": contract.name,
        "digest": contract.digest,
        "warnings": [_row(w) for w in found],
    }


def _row(warning: object) -> dict[str, str]:
    return {name: str(getattr(warning, name)) for name in ("place", "code", "message", "hint")}


def _lint_summary(contract: Contract, count: int) -> str:
    size = f"{_plural(len(contract.clauses), 'clause')}, {_plural(len(contract.slices), 'slice')}"
    found = _plural(count, "warning")
    return f"{contract.file}: {contract.name} {contract.version} ({contract.digest[:8]}): {size}, {found}"


def _plural(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def run_explain(args: argparse.Namespace) -> int:
    """Print a statistic's page, or what any other shown number means."""
    name = args.statistic
    told = "" if name is None or name in CATALOGUE else number_page(name)
    sys.stdout.write(overview() if name is None else told or explain(name))
    return OK


def run_presets(args: argparse.Namespace) -> int:
    """List the presets, or show one."""
    if args.json:
        _say_json(presets_json(args.name))
    else:
        sys.stdout.write(presets_page(args.name))
    return OK


def run_schema(args: argparse.Namespace) -> int:
    """Print the JSON Schema, the definition for a cluster, or one contract resolved."""
    if args.crd:
        from paritas.commands.contract_cluster import say_definition

        return say_definition(args)
    _say_json(json_schema() if args.file is None else resolved(load_named(args.file)))
    return OK


def run_budget(args: argparse.Namespace) -> int:
    """Print what the budget gives downward and what the clauses give upward."""
    contract = load_named(args.file)
    if contract.budget is None:
        raise UsageError(
            f"{args.file}: declares no budget",
            hint="add spec.budget, such as {sequence_tv: 0.1, max_tokens: 1024}",
        )
    if args.json:
        _say_json(_budget_json(contract))
    else:
        _print_budget(contract)
    return OK


def _budget_json(contract: Contract) -> dict[str, object]:
    down = [
        {n: getattr(d, n) for n in ("level", "quantity", "value", "unit", "equation")}
        for d in derived(contract)
    ]
    up = [
        {n: getattr(f, n) for n in ("clause", "limit", "level", "declared", "forecast", "is_sufficient")}
        for f in forecasts(contract)
    ]
    declared = {} if contract.budget is None else declared_levels(contract.budget)
    return {"declared": declared, "derived": finite(down), "forecasts": up}


def _print_budget(contract: Contract) -> None:
    down = [(d.level, d.quantity, _number(d.value), d.unit, d.equation) for d in derived(contract)]
    up = [
        (
            f.clause,
            _number(f.limit),
            f.level,
            _number(f.forecast),
            _number(f.declared),
            "yes" if f.is_sufficient else "no",
        )
        for f in forecasts(contract)
    ]
    _table(
        "Derived: each line alone keeps the declared level",
        ("declared", "quantity", "at most", "unit", "equation"),
        down,
    )
    _table(
        "Forecast: what a clause alone guarantees",
        ("clause", "limit", "level", "at most", "declared", "sufficient"),
        up,
    )


def _number(value: float) -> str:
    return "no constraint" if value == float("inf") else f"{value:.4g}"


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print with rich where it is installed, else in plain columns."""
    try:
        console, table = import_module("paritas.commands.patient_console"), import_module("rich.table")
    except ModuleNotFoundError:
        _plain_table(title, head, rows)
        return
    grid = table.Table(title=title, title_justify="left")
    for name in head:
        grid.add_column(name, overflow="fold")  # a number that is cut is another number
    for row in rows:
        grid.add_row(*row)
    console.PatientConsole(file=sys.stdout).print(grid)


def _plain_table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    _say(
        title,
        *(
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in (head, *rows)
        ),
        "",
    )


def run_diff(args: argparse.Namespace) -> int:
    """Print every change with its effect; 1 if one may loosen or the version does not fit."""
    difference = compare_contracts(load_named(args.before), load_named(args.after))
    if args.json:
        rows = [
            {n: str(getattr(c, n)) for n in ("effect", "path", "before", "after")} for c in difference.changes
        ]
        _say_json(
            {"changes": rows, "may_loosen": difference.may_loosen, "version_fault": difference.version_fault}
        )
    else:
        _say(*map(str, difference.changes), *filter(None, [difference.version_fault]))
        _say("may loosen the contract" if difference.may_loosen else "does not loosen the contract")
    return FINDINGS if difference.may_loosen else OK


def run_test(args: argparse.Namespace) -> int:
    """Run the contract's own tests with the detectors."""
    from paritas.commands.carried import judge_carried

    contract = load_named(args.file)
    if not contract.tests:
        raise UsageError(f"{args.file}: carries no tests", hint="add spec.tests")
    results = list(run_tests(contract, judge_carried))
    if args.json:
        _say_json(
            [{"name": r.name, "passed": r.is_passed, "misses": list(map(str, r.misses))} for r in results]
        )
    else:
        _say(*(_result_text(result) for result in results))
    return OK if all(r.is_passed for r in results) else FINDINGS


def _result_text(result: TestResult) -> str:
    head = f"{'ok  ' if result.is_passed else 'FAIL'}  {result.name}"
    return "\n".join([head, *(f"      {miss}" for miss in result.misses)])
