"""`paritas floor`: how much a kernel drifts from itself, as a signed file that limits refer to."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.drawing_options import add_drawing_options, drawing_of
from paritas.errors import UsageError
from paritas.records import Role

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from paritas.commands.floor_run import Run
    from paritas.contracts.floors import MeasuredFloor
    from paritas.contracts.model import Contract

__all__ = ["register"]

SIZE_MOST = 1024


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
    parser = verbs.add_parser(
        "measure",
        help="run a kernel at two batch sizes, or compare two recordings of it, and sign what that shows",
        epilog="KERNEL is hf:DIR with the options of `paritas certify`, or vllm:URL for --role inference, whose batch "
        "size is how many responses are asked for at once.",
    )
    add = parser.add_argument
    add("contract", metavar="CONTRACT", help="whose statistics are measured: a file or a shipped preset")
    add("name", metavar="NAME", help="what limits call the floor, such as train_vs_train")
    add("--role", choices=(Role.TRAIN.value, Role.INFERENCE.value), required=True, help="which kernel it is")
    add("--kernel", metavar="KERNEL", help="run this kernel at two batch sizes")
    add("--batch-sizes", metavar="N,M", type=_sizes, help="of the two runs (default: 1,8)")
    add(
        "--prompts",
        metavar="FILE",
        type=Path,
        help="what it answers: .jsonl or .txt, as of `paritas certify`",
    )
    add(
        "--keep",
        metavar="DIR",
        type=Path,
        help="keep the recordings of both runs, one.jsonl.gz and other.jsonl.gz",
    )
    add("--one", metavar="FILE", type=Path, help="in place of a run: a recording of the kernel")
    add("--other", metavar="FILE", type=Path, help="and one of the same tokens, batched otherwise")
    add("--key", metavar="FILE", type=Path, required=True, help="private key, Ed25519 in PEM")
    add("-o", "--out", metavar="FILE", type=Path, required=True, help="where the signed floor goes")
    add("--model", default="", help="whose weights they hold (default: the contract's policy)")
    add("--alpha", type=_share, default=0.05, help="error probability of all limits together (default: 0.05)")
    add_drawing_options(parser)
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


def _sizes(text: str) -> tuple[int, int]:
    parts = text.split(",")
    sizes = [
        int(p) for p in parts if p.isascii() and p.isdecimal() and len(p) < 5 and 1 <= int(p) <= SIZE_MOST
    ]
    if len(parts) != 2 or len(sizes) != 2 or sizes[0] == sizes[1]:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not two unequal numbers from 1 to {SIZE_MOST}, such as 1,8"
        )
    return sizes[0], sizes[1]


def _measure(arguments: argparse.Namespace) -> int:
    from paritas.contracts.load import load_named
    from paritas.signing import private_key

    key = private_key(arguments.key)  # before anything is read or run, which may take long
    contract = load_named(arguments.contract)
    run = _run(arguments)
    if run is None:
        return _sign(contract, arguments, (arguments.one, arguments.other), key)
    from paritas.commands.certify_files import recording_folder
    from paritas.commands.floor_measure import measured_clauses
    from paritas.commands.floor_run import ONE, OTHER, record

    measured_clauses(contract)
    with recording_folder(arguments.keep) as folder:
        if note := record(run, folder):
            sys.stdout.write(f"{note}\n")
        return _sign(contract, arguments, (folder / ONE, folder / OTHER), key)


def _run(arguments: argparse.Namespace) -> "Run | None":
    """What is to be run; None where recordings are given."""
    pair = (arguments.one, arguments.other)
    if arguments.kernel is None:
        _require_recordings(arguments)
        return None
    if any(pair):
        raise UsageError("--kernel makes both recordings: give it without --one and --other")
    if arguments.prompts is None:
        raise UsageError("no prompts", hint="give --prompts FILE: what the kernel answers")
    from paritas.collectors.kernels import parse_spec, read_prompts
    from paritas.commands.floor_run import Run

    kernel = parse_spec(arguments.kernel, Role(arguments.role), flag="--kernel")
    suite, law = drawing_of(read_prompts(arguments.prompts), arguments)
    return Run(kernel, arguments.batch_sizes or (1, 8), suite, law, arguments.top_logprobs)


def _require_recordings(arguments: argparse.Namespace) -> None:
    for name in ("batch_sizes", "prompts", "keep"):
        if getattr(arguments, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} is for a kernel that is run: give it with --kernel")
    if not all((arguments.one, arguments.other)):
        hint = "give --kernel KERNEL --prompts FILE, or --one FILE --other FILE"
        raise UsageError("nothing to measure", hint=hint)


def _sign(
    contract: "Contract", arguments: argparse.Namespace, files: tuple[Path, Path], key: "Ed25519PrivateKey"
) -> int:
    """Measure two recordings, write the floor and say what is in it."""
    from paritas.clock import SystemClock
    from paritas.commands.floor_measure import Asked, measure
    from paritas.contracts.floors import write_floor

    told = {name: getattr(arguments, name) for name in ("name", "model", "seed", "alpha")}
    asked = Asked(role=Role(arguments.role), one=files[0], other=files[1], **told)
    floor = measure(contract, asked, clock=SystemClock())
    if not floor.values:
        raise UsageError(f"{files[0]}: nothing to measure", hint="do the recordings hold log-probabilities?")
    write_floor(arguments.out, floor, key)
    sys.stdout.write(_told(floor) + f"signed in {arguments.out}\n")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from paritas.contracts.floors import read_floor
    from paritas.signing import public_key

    floor = read_floor(arguments.floor, public_key(arguments.key))
    if arguments.json:
        sys.stdout.write(json.dumps(json.loads(floor.payload()), indent=2, sort_keys=True) + "\n")
    else:
        sys.stdout.write(_told(floor) + "signature: good\n")
    return 0


def _make_key(arguments: argparse.Namespace) -> int:
    from paritas.signing import key_pair

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
