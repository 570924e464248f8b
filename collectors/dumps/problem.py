"""What is wrong with one line or file of a dump: a record, so that nothing has to be raised."""

from dataclasses import dataclass
from enum import StrEnum

from paritas.errors import RecordError

__all__ = ["LineError", "Problem", "ProblemReason"]


class ProblemReason(StrEnum):
    """The bounded list of categories under which problems are counted."""

    # of one line
    NOT_TEXT = "not_text"  # bytes that are no UTF-8
    BAD_JSON = "bad_json"
    NOT_OBJECT = "not_object"  # JSON, but no object
    TOO_DEEP = "too_deep"  # nested beyond what the parser follows
    LINE_TOO_LONG = "line_too_long"
    TRUNCATED_LINE = "truncated_line"  # the last line, cut off
    MISSING_KEY = "missing_key"
    BAD_TYPE = "bad_type"
    BAD_VALUE = "bad_value"
    BAD_TOKEN_ID = "bad_token_id"  # noqa: S105 - an id in a vocabulary, no password
    LENGTH_MISMATCH = "length_mismatch"
    NOT_LOGPROBS = "not_logprobs"  # the file says that its numbers are logits
    UNKNOWN_SCHEMA = "unknown_schema"
    # of a file or folder
    EMPTY_FILE = "empty_file"
    TRUNCATED_GZIP = "truncated_gzip"
    CORRUPT_GZIP = "corrupt_gzip"
    UNSTABLE_STEP = "unstable_step"  # a step folder its writer has not finished
    FILE_SHRANK = "file_shrank"  # a followed file was cut and is read again
    FILE_REPLACED = "file_replaced"  # a followed file was rotated


@dataclass(frozen=True, slots=True)
class Problem:
    """One line or file that could not be read, with its place and what to do.

    Attributes
    ----------
    file : str
        The file as it was named to the reader.
    line : int
        From 1; 0 when the whole file is meant.
    column : int
        Character from 1; 0 when the whole line is meant.

    Examples
    --------
    >>> print(Problem("a.jsonl", 3, ProblemReason.NOT_OBJECT, "a list, not an object").render())
    a.jsonl:3: a list, not an object
    """

    file: str
    line: int
    reason: ProblemReason
    message: str
    hint: str = ""
    column: int = 0

    @property
    def place(self) -> str:
        """Return ``file``, ``file:line`` or ``file:line:column``."""
        numbers = [number for number in (self.line, self.column) if number]
        return ":".join([self.file, *map(str, numbers)])

    def render(self) -> str:
        """Return the one or two lines a person reads."""
        head = f"{self.place}: {self.message}"
        return f"{head}\n  hint: {self.hint}" if self.hint else head

    def error(self) -> RecordError:
        """Return the same as an error, for a caller that wants to stop at the first problem."""
        return RecordError(f"{self.place}: {self.message}", reason=self.reason, hint=self.hint)


class LineError(Exception):
    """What a decoder raises about the line it holds; the reader adds the place.

    It never leaves this package: `Problem` does.
    """

    def __init__(self, reason: ProblemReason, message: str, *, hint: str = "", column: int = 0) -> None:
        super().__init__(message)
        self.reason, self.hint, self.column = reason, hint, column

    def at(self, file: str, line: int) -> Problem:
        """Return the problem with its place."""
        return Problem(file, line, self.reason, str(self), self.hint, self.column)
