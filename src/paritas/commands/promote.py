"""`paritas promote`: take a candidate from offline_ci over shadow and canary to full, gate by gate."""

import argparse
from collections.abc import Callable
from pathlib import Path

from paritas.commands.floor_limits import add_floor_options

__all__ = ["register"]

EXITS = (
    "Exit code: 0 advanced, passed or running; 1 violated, rolled back, demoted or aborted; 3 undecided, "
    "blocked or paused; 64 usage or contract error."
)


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "promote",
        help="promote a candidate, each gate by signed evidence",
        description="A promotion passes the gates its contract declares, each by a signed verdict. " + EXITS,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _register_start(verbs)
    _register_status(verbs)
    _register_advance(verbs)
    _register_abort(verbs)
    _register_submit(verbs)
    _register_verify(verbs)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", help="gRPC address of the controller (default: that of the running one)")
    parser.add_argument("--data", type=Path, help="folder of the running controller")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="token to show, where access is declared (default: PARITAS_TOKEN_FILE)",
    )
    parser.add_argument("--ca", metavar="FILE", type=Path, help="whom to trust; without it there is no TLS")
    parser.add_argument("--json", action="store_true", help="write one JSON object")


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, says: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=says, description=f"{says}. {EXITS}")
    return parser


def _register_start(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _verb(verbs, "start", "begin a promotion at the first gate of its contract")
    add = parser.add_argument
    add("contract", metavar="CONTRACT", help="a contract file that declares gates")
    add(
        "--from-check",
        metavar="REPORT",
        type=Path,
        help="JSON of `check` or `certify`, which names the kernels",
    )
    add("--inference", metavar="DIGEST", default="", help="identity digest of the inference kernel")
    add("--train", metavar="DIGEST", default="", help="of the training kernel")
    add("--reference", metavar="DIGEST", default="", help="of the kernel that traffic falls back to")
    add("--weights", metavar="DIGEST", default="", help="digest of the weights, or their version")
    add("--id", dest="promotion", metavar="ID", default="", help="name of the promotion (default: made up)")
    add_floor_options(parser)
    _add_actor(parser)
    _add_common(parser)
    parser.set_defaults(run=_run("start"))


def _register_status(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _verb(verbs, "status", "show one promotion with its evidence, or all that are not over")
    parser.add_argument("promotion", metavar="ID", nargs="?", default="")
    parser.add_argument("--all", action="store_true", help="also those that are over")
    _add_common(parser)
    parser.set_defaults(run=_run("status"))


def _register_advance(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    says = "go on after a pause, as another attempt; or under a tightened contract"
    parser = _verb(verbs, "advance", says)
    parser.add_argument("promotion", metavar="ID")
    parser.add_argument("--contract", metavar="CONTRACT", help="another version of the contract")
    add_floor_options(parser)
    _add_actor(parser)
    _add_common(parser)
    parser.set_defaults(run=_run("advance"))


def _register_abort(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _verb(verbs, "abort", "stop a promotion for good")
    parser.add_argument("promotion", metavar="ID")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the record")
    _add_actor(parser)
    _add_common(parser)
    parser.set_defaults(run=_run("abort"))


def _add_actor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--actor", metavar="NAME", default="", help="who decides (default: the user's name)")


def _register_submit(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _verb(verbs, "submit", "sign a judgement and give it as evidence")
    add = parser.add_argument
    add("promotion", metavar="ID")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--from-check", metavar="REPORT", type=Path, help="JSON of `check` or `certify`")
    source.add_argument("--envelope", metavar="FILE", type=Path, help="evidence that is signed already")
    add("--key", metavar="FILE", type=Path, help="private key, Ed25519 in PEM, for --from-check")
    add("--expires", metavar="DURATION", default="24h", help="how long the evidence holds (default: 24h)")
    add("--from", dest="begun", metavar="TIME", help="when the first sequence began, ISO 8601 with zone")
    add("--to", dest="ended", metavar="TIME", help="when the last one began (default for both: the report's)")
    add(
        "--missing", metavar="NAME", action="append", default=[], help="what should have reported and did not"
    )
    add("-o", "--out", metavar="FILE", type=Path, help="also write the envelope")
    _add_common(parser)
    parser.set_defaults(run=_run("submit"))


def _register_verify(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    says = "verify an envelope's signature without a controller, and show what it says"
    parser = _verb(verbs, "verify", says)
    parser.add_argument("envelope", metavar="FILE", type=Path)
    parser.add_argument(
        "--key", metavar="FILE", type=Path, required=True, help="public key in PEM, or a folder of them"
    )
    parser.add_argument("--json", action="store_true", help="write what was signed, as JSON")
    parser.set_defaults(run=_run("verify"))


def _run(verb: str) -> Callable[[argparse.Namespace], int]:
    """Load the rest only when the verb runs."""

    def run(arguments: argparse.Namespace) -> int:
        from paritas.commands import promote_verbs

        code: int = getattr(promote_verbs, verb)(arguments)
        return code

    return run
