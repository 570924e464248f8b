"""Options that say what a kernel is to draw: how many responses, how long, from which law."""

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from paritas.records import Sampling

if TYPE_CHECKING:
    from paritas.collectors.kernels import Prompt, Suite

__all__ = ["add_drawing_options", "drawing_of"]


def add_drawing_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    whole, share = _whole, _number
    add = parser.add_argument
    add(
        "--samples", metavar="N", type=whole("a whole number from 1", 1), default=1, help="responses a prompt"
    )
    add(
        "--max-tokens", metavar="N", type=whole("a whole number from 1", 1), default=128, help="of a response"
    )
    add("--seed", metavar="N", type=whole("a whole number from 0", 0), default=0, help="of the whole run")
    add("--temperature", metavar="T", type=share("a number above 0", 0.0, 100.0, open_low=True), default=1.0)
    add("--top-p", metavar="P", type=share("above 0 and at most 1", 0.0, 1.0, open_low=True), default=1.0)
    add("--top-k", metavar="K", type=whole("a whole number from 0", 0), default=0, help="0: all tokens")
    add("--min-p", metavar="P", type=share("from 0 to 1", 0.0, 1.0), default=0.0)
    add(
        "--top-logprobs",
        metavar="K",
        type=whole("a whole number from 1", 1),
        default=20,
        help="most likely tokens to record at each position (default: 20)",
    )


def drawing_of(prompts: Sequence["Prompt"], arguments: argparse.Namespace) -> tuple["Suite", Sampling]:
    """Return the suite and the law that the options say."""
    from paritas.collectors.kernels import Suite

    law = Sampling(arguments.temperature, arguments.top_p, arguments.top_k, arguments.min_p)
    return Suite(tuple(prompts), arguments.samples, arguments.max_tokens, arguments.seed), law


def _whole(says: str, least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or not least <= int(text) < 1 << 31:
            raise argparse.ArgumentTypeError(f"{text!r} is not {says}")
        return int(text)

    return read


def _number(says: str, low: float, high: float, *, open_low: bool = False) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high or (open_low and value == low):
            raise argparse.ArgumentTypeError(f"{text!r} is not {says}")
        return value

    return read
