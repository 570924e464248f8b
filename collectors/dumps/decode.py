"""The loop every reader shares: a line becomes its traces, or one problem."""

from collections.abc import Callable, Iterable, Iterator

from paritas.collectors.dumps.fields import Row, parse_row
from paritas.collectors.dumps.lines import Line
from paritas.collectors.dumps.problem import LineError, Problem, ProblemReason
from paritas.records import TokenTrace

__all__ = ["Decoder", "decode_line", "decode_lines"]

# (fields of one line, index of the line from 0) -> its traces; raises LineError.
Decoder = Callable[[Row, int], tuple[TokenTrace, ...]]


def decode_lines(
    lines: Iterable[Line | Problem], decode: Decoder, *, file: str
) -> Iterator[TokenTrace | Problem]:
    """Yield the traces of every line in order, and a problem in place of a line that has none."""
    for line in lines:
        if isinstance(line, Problem):
            yield line
        else:
            yield from decode_line(line, decode, file=file)


def decode_line(line: Line, decode: Decoder, *, file: str) -> tuple[TokenTrace | Problem, ...]:
    """Return the traces of one line, or one problem with its place; never raises for content."""
    try:
        return decode(row_of(line), line.number - 1)
    except LineError as error:
        return (error.at(file, line.number),)


def row_of(line: Line) -> Row:
    """Parse a line; one that has no end and is no JSON was cut off."""
    if line.content is None:
        raise LineError(
            ProblemReason.LINE_TOO_LONG,
            "longer than the limit",
            hint="is this JSON Lines, one sequence a line?",
        )
    try:
        return parse_row(line.content)
    except LineError as error:
        if line.whole or error.reason is ProblemReason.NOT_OBJECT:
            raise
        raise LineError(
            ProblemReason.TRUNCATED_LINE,
            "the last line is cut off",
            hint="was the writer stopped, or is it still writing?",
        ) from error
