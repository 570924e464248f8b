"""`paritas contract`: write, check, explain, compare and test kernel contracts.

Exit codes: 0 fine, 1 findings (a warning with ``--strict``, a change that may loosen, a failed
test), 64 the contract or the command line is wrong.
"""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

__all__ = ["register"]

Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  # argparse has no public name for what add_subparsers returns


def register(subparsers: Verbs) -> None:
    """Add ``contract`` and its verbs; each parser's default `run` maps the arguments to an exit code."""
    contract = subparsers.add_parser("contract", help="write, check, explain, compare and test contracts")
    verbs = contract.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_init(verbs)
    _add_lint(verbs)
    _add_show(verbs)
    _add_diff(verbs)
    _add_cluster(verbs)


def _verb(
    verbs: Verbs,
    name: str,
    summary: str,
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=summary, description=summary)
    parser.set_defaults(run=_runner(name))
    return parser


def _add_init(verbs: Verbs) -> None:
    init = _verb(verbs, "init", "write a first contract, with comments")
    init.add_argument("--preset", default="dense-bf16", help="contract to start from (default: dense-bf16)")
    init.add_argument("--name", default="my-policy", help="name of the new contract")
    init.add_argument("-o", "--output", metavar="FILE", help="file to write (default: standard output)")


def _add_lint(verbs: Verbs) -> None:
    check = _verb(verbs, "lint", "check contracts: errors, and what is valid but unwise")
    check.add_argument("files", nargs="+", metavar="FILE", help="contract file or preset name")
    check.add_argument("--strict", action="store_true", help="exit 1 on warnings")
    check.add_argument("--json", action="store_true", help="print JSON")


def _add_show(verbs: Verbs) -> None:
    page = _verb(verbs, "explain", "say what a statistic or another shown number is, or list the statistics")
    page.add_argument(
        "statistic", nargs="?", help="such as tv, or log10_e of a verdict; all statistics if left out"
    )
    presets = _verb(verbs, "presets", "list the shipped presets, or show one with the source of each limit")
    presets.add_argument("name", nargs="?", metavar="NAME", help="show this one; all of them if left out")
    presets.add_argument("--json", action="store_true", help="print JSON")
    budget = _verb(verbs, "budget", "derive limits from the budget and forecast upward")
    budget.add_argument("file", metavar="FILE", help="contract file or preset name")
    budget.add_argument("--json", action="store_true", help="print JSON")
    schema = _verb(verbs, "schema", "print the JSON Schema, or a contract with everything resolved")
    schema.add_argument(
        "file", nargs="?", metavar="FILE", help="print this contract as its resolved document"
    )
    schema.add_argument(
        "--crd", action="store_true", help="print the Kubernetes CustomResourceDefinition instead"
    )


def _add_cluster(verbs: Verbs) -> None:
    export = _verb(verbs, "export", "print a contract as the object of a Kubernetes cluster")
    export.add_argument("file", metavar="FILE", help="contract file or preset name")
    export.add_argument("--namespace", metavar="NAME", default="", help="namespace to write into it")
    back = _verb(verbs, "import", "print the contract that is in an object of a Kubernetes cluster")
    back.add_argument(
        "file",
        metavar="FILE",
        help="what kubectl get kernelcontracts NAME -o yaml wrote; - for standard input",
    )


def _add_diff(verbs: Verbs) -> None:
    diff = _verb(verbs, "diff", "say what changed between two contracts and whether it loosens")
    diff.add_argument("before", metavar="OLD", help="contract file or preset name")
    diff.add_argument("after", metavar="NEW", help="contract file or preset name")
    diff.add_argument("--json", action="store_true", help="print JSON")
    test = _verb(verbs, "test", "run the tests that a contract carries")
    test.add_argument("file", metavar="FILE", help="contract file")
    test.add_argument("--json", action="store_true", help="print JSON")


def _runner(verb: str) -> Callable[[argparse.Namespace], int]:
    """Import the verbs only when one runs: the parser is built for every command."""

    def run(arguments: argparse.Namespace) -> int:
        module = "contract_cluster" if verb in {"export", "import"} else "contract_verbs"
        code: int = getattr(import_module(f"paritas.commands.{module}"), f"run_{verb}")(arguments)
        return code

    return run
