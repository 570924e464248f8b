"""Readers of what trainers and engines leave on disk: bytes in, traces and named problems out.

A reader is a source.  It streams, holds one line at a time, and never raises for what a line
holds: a line ends as its `TokenTrace`s or as one `Problem`.  What a person must mend (a path
that is not there, a file nobody knows) is a `UsageError` at once.
"""

from paritas.collectors.dumps.follow import follow
from paritas.collectors.dumps.nemo_rl import read_nemo_rl
from paritas.collectors.dumps.options import ReadOptions
from paritas.collectors.dumps.prime_rl import read_prime_rl
from paritas.collectors.dumps.problem import Problem, ProblemReason
from paritas.collectors.dumps.read import read_dump
from paritas.collectors.dumps.recognise import DumpFormat, recognise
from paritas.collectors.dumps.recorded import read_recorded

__all__ = [
    "DumpFormat",
    "Problem",
    "ProblemReason",
    "ReadOptions",
    "follow",
    "read_dump",
    "read_nemo_rl",
    "read_prime_rl",
    "read_recorded",
    "recognise",
]
