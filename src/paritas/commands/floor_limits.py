"""`--floors`: contracts whose limits are relative to measured floors."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.commands.contract_watch import ContractWatch
    from paritas.contracts.model import Contract

__all__ = ["add_floor_options", "contract_watch", "floor_lines", "load_with_floors"]


def add_floor_options(parser: argparse.ArgumentParser) -> None:
    """Add `--floors` and the key that verifies them."""
    parser.add_argument(
        "--floors",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a signed floor that limits of the contract name (paritas floor); may be given several times",
    )
    parser.add_argument(
        "--floors-key", metavar="FILE", type=Path, help="public key the floors were signed by, Ed25519 in PEM"
    )


def load_with_floors(name: str, arguments: argparse.Namespace) -> "Contract":
    """Read a contract and make its limits absolute by the floors that were given.

    Raises
    ------
    UsageError, ContractError
        As `load_named`; a floor without a good signature, or of another kernel than the contract's.
    """
    from paritas.contracts.load import load_named

    contract = load_named(name)
    if not arguments.floors:
        if arguments.floors_key is not None:
            raise UsageError("--floors-key verifies floors: give it with --floors FILE")
        return contract
    if arguments.floors_key is None:
        raise UsageError(
            "--floors needs --floors-key FILE",
            hint="the public key they were signed by: an unverified floor loosens limits for anybody",
        )
    from paritas.contracts.floors import read_floor, with_floors
    from paritas.signing import public_key

    key = public_key(arguments.floors_key)
    return with_floors(contract, [(str(path), read_floor(path, key)) for path in arguments.floors])


def contract_watch(arguments: argparse.Namespace) -> "ContractWatch":
    """Read a contract with its floors, and watch the files it came from.

    Raises
    ------
    UsageError, ContractError
        As `load_with_floors`.
    """
    from paritas.commands.contract_watch import ContractWatch

    key = [] if arguments.floors_key is None else [arguments.floors_key]
    files = [Path(arguments.contract), *arguments.floors, *key]
    return ContractWatch(lambda: load_with_floors(arguments.contract, arguments), files)


def floor_lines(contract: "Contract") -> str:
    """One line for each limit relative to a floor, for the console; empty where there is none."""
    if all(clause.floor is None for clause in contract.clauses):
        return ""
    from paritas.contracts.floors import floor_notes

    return "".join(f"floor: {note}\n" for note in floor_notes(contract))
