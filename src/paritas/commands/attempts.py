"""`--attempt`: which try of one candidate this is."""

import argparse

__all__ = ["add_attempt_option", "whole_from_one"]

SAYS = "which try of this candidate it is, from 1: later ones ask for more evidence (default: 1 where the contract declares the gate offline_ci)"


def add_attempt_option(parser: argparse.ArgumentParser) -> None:
    """Add `--attempt`."""
    parser.add_argument("--attempt", metavar="N", type=whole_from_one, help=SAYS)


def whole_from_one(text: str) -> int:
    """Return the number.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is no whole number from 1.
    """
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:10]) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)
