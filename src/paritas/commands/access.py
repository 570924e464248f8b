"""`paritas access`: names, roles and tokens of those who may call a controller."""

import argparse
import sys
from pathlib import Path

__all__ = ["register"]

ROLES = ("subscriber", "actor", "admin")


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "access",
        help="who may call a controller",
        description="Writes and shows the file of paritas control --access.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    add = verbs.add_parser("add", help="add a name; prints its token, once")
    add.add_argument("name", help="who it is")
    add.add_argument(
        "--role", choices=ROLES, default="subscriber", help="what they may do (default: subscriber)"
    )
    add.add_argument("--subject", default="", help="a name in their certificate, instead of a token")
    add.set_defaults(run=run_add)
    shown = verbs.add_parser("list", help="show names and roles")
    shown.set_defaults(run=run_list)
    for verb in (add, shown):
        verb.add_argument("--file", type=Path, required=True, help="the access file")


def run_add(arguments: argparse.Namespace) -> int:
    """Add a line and print the token."""
    from paritas.controller.access.grants import add_grant
    from paritas.controller.access.roles import Role

    token = add_grant(arguments.file, arguments.name, Role(arguments.role), subject=arguments.subject)
    if token:
        sys.stdout.write(f"{token}\n")
        sys.stderr.write(
            "Keep it in a file; it is not kept here. A running controller reads the file at its start.\n"
        )
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Print a line a name."""
    from paritas.controller.access.grants import load_grants

    for grant in load_grants(arguments.file).grants:
        sys.stdout.write(f"{grant.name}\t{grant.role}\t{grant.subject or 'token'}\n")
    return 0
