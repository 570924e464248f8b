"""`paritas certify`: run both kernels over a prompt suite and judge them at the gate `offline_ci`."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.attempts import add_attempt_option
from paritas.commands.drawing_options import add_drawing_options, drawing_of
from paritas.commands.floor_limits import add_floor_options, load_with_floors
from paritas.commands.output import say
from paritas.errors import UsageError
from paritas.records import Role

if TYPE_CHECKING:
    from paritas.commands.certify_run import Plan
    from paritas.contracts.model import Contract

__all__ = ["register"]

GIVEN_HINT = "--prompts FILE takes a .jsonl or .txt file"
DECLARED_HINT = "the contract's gate offline_ci names it, beside the contract; --prompts FILE gives another"


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "certify",
        help="run both kernels over a prompt suite and judge them, for CI",
        description="Draws responses from the inference kernel with fixed seeds, scores the same tokens with the "
        "training kernel, and judges both at the gate offline_ci. Two kernels of this machine give whole "
        "distributions: exact total variation, oscillation and argmax flips. "
        "Exit code: 0 all conforming, 1 violated, 3 undecided or no data, 64 usage or contract error.",
        epilog="KERNEL is hf:DIR[,dtype=…][,attention=eager|sdpa|…][,quantization=…][,device=…]; for --train also "
        ",temperature=… ,top_p=… ,top_k=… ,min_p=… (the law it scores under; the default is the sampling "
        "temperature, never its truncation); for --inference also hf:…,kv_cache=fp8_e4m3, "
        "vllm:URL[,model=NAME][,logprobs_mode=raw_logprobs|processed_logprobs] and llamacpp:FILE[,threads=N].",
    )
    parser.add_argument(
        "contract", metavar="CONTRACT", help="a contract file, or the name of a shipped preset"
    )
    parser.add_argument("--train", metavar="KERNEL", required=True, help="hf:DIR")
    parser.add_argument(
        "--inference", metavar="KERNEL", required=True, help="hf:DIR, vllm:URL or llamacpp:FILE"
    )
    parser.add_argument(
        "--prompts",
        metavar="FILE",
        type=Path,
        help=".jsonl: objects with prompt, messages or prompt_token_ids, id and labels; .txt: one prompt a line "
        "(default: the suite that the contract's gate offline_ci names)",
    )
    add_drawing_options(parser)
    add_floor_options(parser)
    add_attempt_option(parser)
    _add_output(parser)
    parser.set_defaults(run=run)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of tables")
    parser.add_argument(
        "--junit", metavar="FILE", type=Path, help="write JUnit XML: a test case a clause and slice"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        help="keep serve.jsonl.gz and train.jsonl.gz, which `paritas check` reads, report.json and junit.xml",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run, judge, show and keep; return the exit code of the judgement."""
    from paritas.commands.certify_files import check_writable, write_report
    from paritas.commands.certify_run import certify

    contract = load_with_floors(arguments.contract, arguments)
    plan = _plan(contract, arguments)
    if arguments.junit is not None:
        check_writable(arguments.junit)  # not first after the run, which takes long
    found = certify(contract, plan, out=arguments.out)
    if arguments.junit is not None:
        write_report(arguments.junit, found.junit())
    if arguments.json:
        say(json.dumps(found.as_dict(), indent=2, allow_nan=False) + "\n")
    else:
        found.show()
    return int(found.judgement.exit_code)


def _plan(contract: "Contract", arguments: argparse.Namespace) -> "Plan":
    """Check everything that costs nothing before a model is loaded."""
    from paritas.collectors.kernels import parse_spec, read_prompts
    from paritas.commands.certify_run import Plan

    train = parse_spec(arguments.train, Role.TRAIN)
    inference = parse_spec(arguments.inference, Role.INFERENCE)
    prompts = (
        read_prompts(arguments.prompts, missing_hint=GIVEN_HINT)
        if arguments.prompts is not None
        else read_prompts(_declared_suite(contract), missing_hint=DECLARED_HINT)
    )
    suite, drawn = drawing_of(prompts, arguments)
    return Plan(train, inference, suite, drawn, arguments.top_logprobs, arguments.attempt)


def _declared_suite(contract: "Contract") -> Path:
    """The suite the contract names, beside the contract's file."""
    from paritas.commands.offline import gate_of

    suite = gate_of(contract).suite
    if not suite:
        raise UsageError(
            "no prompts", hint="give --prompts FILE, or a suite in the contract's gate offline_ci"
        )
    return Path(contract.file).parent / suite
