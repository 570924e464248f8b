"""The error tree of Paritas: one base, a code, a hint.

::

    ParitasError            code "paritas"
    ├── UsageError          "usage"      the command line is wrong: a person must act
    ├── ContractError       "contract"   the contract file is wrong: a person must act
    ├── RecordError         "record"     one input record is wrong: it is counted and named
    ├── TransientError      "transient"  the same call may work later: back off and retry
    └── PermanentError      "permanent"  the same input always fails: drop it and count it

`TransientError` or `PermanentError` decides retry; nothing else does.
"""

from typing import ClassVar

__all__ = [
    "ContractError",
    "ParitasError",
    "PermanentError",
    "RecordError",
    "TransientError",
    "UsageError",
]


class ParitasError(Exception):
    """Anything this package raises on purpose.

    Parameters
    ----------
    message : str
        What is wrong, with its place (``file:line:column``) when there is one.
    hint : str
        What to do about it; empty when the message already says so.

    Examples
    --------
    >>> print(ContractError("a.yaml:3:28: unknown field 'limt'", hint="did you mean 'limit'?").render())
    [contract] a.yaml:3:28: unknown field 'limt'
      hint: did you mean 'limit'?
    """

    code: ClassVar[str] = "paritas"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def render(self) -> str:
        """Return the two lines a person reads: code and message, then the hint."""
        return _two_lines(self.code, str(self), self.hint)


class UsageError(ParitasError):
    """The command line, a file name or an option is wrong."""

    code = "usage"


class ContractError(ParitasError):
    """A contract file is wrong; the message starts with ``file:line:column``.

    Parameters
    ----------
    message : str
        What is wrong; several problems stand one a line.
    hint : str
        What to do about it, where there is one problem only.
    problems : tuple of (str, str)
        Message and hint of every problem found; by default the one above.
    """

    code = "contract"

    def __init__(self, message: str, *, hint: str = "", problems: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems or ((message, hint),)

    def render(self) -> str:
        """Return two lines for every problem: code and message, then the hint."""
        return "\n".join(_two_lines(self.code, *problem) for problem in self.problems)


class RecordError(ParitasError):
    """One input record is wrong; the reader counts it under `reason` and goes on.

    Parameters
    ----------
    message : str
        What is wrong, starting with ``file:line``.
    reason : str
        The bounded category under which it is counted, e.g. ``bad_json``.
    hint : str
        What to do about it.
    """

    code = "record"

    def __init__(self, message: str, *, reason: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class TransientError(ParitasError):
    """The same call may work later: back off and try again."""

    code = "transient"


class PermanentError(ParitasError):
    """The same input always fails: drop it and count it."""

    code = "permanent"


def _two_lines(code: str, message: str, hint: str) -> str:
    head = f"[{code}] {message}"
    return f"{head}\n  hint: {hint}" if hint else head
