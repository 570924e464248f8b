"""The option ``--routes`` of the commands that run a controller."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.controller.routing.declared import Declared

__all__ = ["add_routes_option", "declared_routes"]


def add_routes_option(parser: argparse.ArgumentParser) -> None:
    """Add it to a parser."""
    parser.add_argument(
        "--routes",
        metavar="FILE",
        type=Path,
        help="routes.yaml: replicas, limits and router; incidents then move routes, in a dry run unless it says otherwise",
    )


def declared_routes(
    arguments: argparse.Namespace, *, on_loss: str = "hold", policy: str = ""
) -> "tuple[Declared, ...]":
    """Read the file, if one is named.

    Parameters
    ----------
    on_loss : str
        Fail mode of a fleet that declares none.
    policy : str
        Must be among the fleets, unless it is empty: nothing else would ever move.

    Raises
    ------
    UsageError
        The file cannot be read, or has no fleet of `policy`.
    ConfigError
        It is not valid.
    """
    if arguments.routes is None:
        return ()
    from paritas.clock import SystemClock
    from paritas.commands.routes_file import load_routes
    from paritas.controller.routing.model import FailMode

    routes = load_routes(arguments.routes, clock=SystemClock(), fail_mode=FailMode(on_loss))
    if policy and policy not in {one.fleet.policy for one in routes}:
        message = f"{arguments.routes}: no fleet is of policy {policy!r}, which the contract binds"
        raise UsageError(message, hint=f"write policy: {policy}")
    return routes
