"""`paritas floor`: how much a kernel drifts from itself, as a signed file that limits refer to."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.errors import UsageError
from paritas.records import Role

if TYPE_CHECKING:
    from paritas.contracts.floors import MeasuredFloor

__all__ = ["register"]


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "floor",
        help="measure how much a kernel drifts from itself, for limits relative to it",
        description="One kernel against itself (a trainer at two micro-batch sizes, an engine at two batch sizes) is "
        "the least drift a limit can ask for. The measurement is a signed file; a contract's "
        "{floor: NAME, times: 1.5, ceiling: 0.04} resolves against it.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _register_measure(verbs)
    _register_verify(verbs)
    _register_key(verbs)


def _register_measure(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser("measure", help="compare two recordings of one kernel and sign what they show")
    add = parser.add_argument
    add("contract", metavar="CONTRACT", help="whose statistics are measured: a file or a shipped preset")
    add("name", metavar="NAME", help="what limits call the floor, such as train_vs_train")
    add("--role", choices=(Role.TRAIN.value, Role.INFERENCE.value), required=True, help="which kernel it is")
    add("--one", metavar="FILE", type=Path, required=True, help="a recording of the kernel")
    add("--other", metavar="FILE", type=Path, required=True, help="one of the same tokens, batched otherwise")
    add("--key", metavar="FILE", type=Path, required=True, help="private key, Ed25519 in PEM")
    add("-o", "--out", metavar="FILE", type=Path, required=True, help="where the signed floor goes")
    add("--model", default="", help="whose weights they hold (default: the contract's policy)")
    add("--seed", type=int, default=0, help="seed of the recordings, to be written down")
    add("--alpha", type=_share, default=0.05, help="error probability of all limits together (default: 0.05)")
    parser.set_defaults(run=_measure)


def _register_verify(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser("verify", help="verify a floor's signature and show what it says")
    parser.add_argument("floor", metavar="FILE", type=Path)
    parser.add_argument("--key", metavar="FILE", type=Path, required=True, help="public key, Ed25519 in PEM")
    parser.add_argument("--json", action="store_true", help="write what was signed, as JSON")
    parser.set_defaults(run=_verify)


def _register_key(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser("key", help="make an Ed25519 key pair as PEM files")
    parser.add_argument("private", metavar="PRIVATE", type=Path, help="signs; keep it")
    parser.add_argument("public", metavar="PUBLIC", type=Path, help="verifies; give it away")
    parser.set_defaults(run=_make_key)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return value


def _measure(arguments: argparse.Namespace) -> int:
    from paritas.clock import SystemClock
    from paritas.commands.floor_measure import Asked, measure
    from paritas.contracts.floors import write_floor
    from paritas.contracts.floors.files import private_key
    from paritas.contracts.load import load_named

    key = private_key(arguments.key)  # before the recordings are read, which may take long
    told = {name: getattr(arguments, name) for name in ("name", "one", "other", "model", "seed", "alpha")}
    floor = measure(
        load_named(arguments.contract), Asked(role=Role(arguments.role), **told), clock=SystemClock()
    )
    if not floor.values:
        raise UsageError(
            f"{arguments.one}: nothing to measure", hint="do the recordings hold log-probabilities?"
        )
    write_floor(arguments.out, floor, key)
    sys.stdout.write(_told(floor) + f"signed in {arguments.out}\n")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from paritas.contracts.floors import read_floor
    from paritas.contracts.floors.files import public_key

    floor = read_floor(arguments.floor, public_key(arguments.key))
    if arguments.json:
        sys.stdout.write(json.dumps(json.loads(floor.payload()), indent=2, sort_keys=True) + "\n")
    else:
        sys.stdout.write(_told(floor) + "signature: good\n")
    return 0


def _make_key(arguments: argparse.Namespace) -> int:
    from paritas.contracts.floors import key_pair

    key_pair(arguments.private, arguments.public)
    sys.stdout.write(f"private key: {arguments.private}\npublic key: {arguments.public}\n")
    return 0


def _told(floor: "MeasuredFloor") -> str:
    """What a floor says, for a person."""
    kernel = ", ".join(f"{k} {v}" for k, v in floor.kernel.items()) or "not reported"
    varied = ", ".join(f"{k} {one} and {other}" for k, (one, other) in floor.varied.items())
    lines = [
        f"floor {floor.name} of {floor.model or 'a model that was not told'}, {floor.measured_at}",
        f"{floor.role} kernel: {kernel}" + (f"; {varied}" if varied else ""),
    ]
    for v in floor.values:
        options = ", ".join(
            f"{k} {o:g}" if isinstance(o, float) else f"{k} {o}" for k, o in v.options.items()
        )
        name = v.statistic + (f" ({options})" if options else "")
        units = f"{v.units} units, {v.tokens} tokens"
        lines.append(f"  {name}: at most {v.upper:.4g}, mean {v.estimate:.4g} ({units})")
    return "\n".join(lines) + "\n"
