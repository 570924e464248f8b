"""`paritas routes`: what is wanted of the routers and what is so; overrides by a person."""

import argparse
from collections.abc import Callable
from pathlib import Path

__all__ = ["register"]


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "routes",
        help="show routes, or override one",
        description="Shows what is wanted of each router, why, what it shows, and the audit log.",
    )
    _add_common(parser)
    parser.add_argument("--policy", default="", help="only this policy")
    parser.add_argument(
        "--audit", type=int, default=10, metavar="N", help="lines of the audit log (default 10)"
    )
    parser.set_defaults(run=_lazy("show"))
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    _register_override(verbs)
    _register_expire(verbs)


def _add_common(parser: argparse.ArgumentParser, *, default: object = None) -> None:
    add = parser.add_argument
    add("--target", default=default, help="gRPC address of the controller (default: that of the running one)")
    add("--data", type=Path, default=default, help="folder of the running controller")
    add(
        "--token-file",
        metavar="FILE",
        type=Path,
        default=default,
        help="token to show, where access is declared (default: PARITAS_TOKEN_FILE)",
    )
    add("--ca", metavar="FILE", type=Path, default=default, help="whom to trust; without it there is no TLS")
    add("--json", action="store_true", default=default or False, help="write one JSON object")


def _register_override(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "override",
        help="win over every incident for a while, within the safety limits",
        description="An override has an author, a reason and an end.",
    )
    _add_common(parser, default=argparse.SUPPRESS)  # what stood before the verb stays
    add = parser.add_argument
    add("--policy", required=True, help="whose requests")
    add("--slice", default="all", help="which of them (default: all)")
    add("--weights", default="", metavar="K=S,...", help="share of each kernel: inference=0.5,reference=0.5")
    add("--shadow", default="", metavar="K=S,...", help="share copied to a kernel")
    add("--drain", default="", metavar="NAME,...", help="replicas that must be out")
    add("--admit", default="", metavar="NAME,...", help="replicas that must be in")
    add("--release", default="", metavar="HOLD,...", help="holds that are lifted, such as hold_refit")
    add("--yields", action="store_true", help="an incident may move requests away all the same")
    add("--for", dest="lasts", required=True, metavar="TIME", help="how long, such as 30m")
    add("--author", required=True, help="who says so")
    add("--reason", required=True, help="why")
    parser.set_defaults(run=_lazy("override"))


def _register_expire(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser("expire", help="end an override now", description="Ends an override now.")
    _add_common(parser, default=argparse.SUPPRESS)
    parser.add_argument("override", metavar="ID", help="as `routes` shows it")
    parser.add_argument("--author", required=True, help="who says so")
    parser.set_defaults(run=_lazy("expire"))


def _lazy(verb: str) -> Callable[[argparse.Namespace], int]:
    """gRPC is imported when a verb runs, not when the command line is read."""

    def run(arguments: argparse.Namespace) -> int:
        from paritas.commands import routes_verbs

        code: int = getattr(routes_verbs, verb)(arguments)
        return code

    return run
