"""Problems of a contract file: collected, so that a person sees all of them in one go."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from paritas.contracts.model import Place
from paritas.errors import ContractError

__all__ = ["SHOWN_AT_MOST", "Problem", "Problems", "did_you_mean", "shorten"]

SHOWN_AT_MOST = 20  # a screenful; a file with more has usually one cause
CLEAR_CHARS = 4  # a name this long inside a known one is meant: bf16 in dense-bf16
MEANT_AT_MOST = 3
SHORT_CHARS = 40  # a quoted value longer than this hides the message


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a contract: where, which field, what, and what to do."""

    place: Place
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.path}: {self.message}" if self.path else f"{self.place}: {self.message}"


class Problems:
    """Collects problems while a file is read; raises them together.

    Examples
    --------
    >>> problems = Problems()
    >>> problems.add(Place("a.yaml", 3, 5), "spec", "unknown field 'limt'", "did you mean 'limit'?")
    >>> problems.raise_if_any()
    Traceback (most recent call last):
    ...
    paritas.errors.ContractError: a.yaml:3:5: spec: unknown field 'limt'
    """

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, place: Place, path: str, message: str, hint: str = "") -> None:
        """Note one problem; the same one twice (through an alias) counts once."""
        self._found.setdefault(Problem(place, path, message, hint))

    def in_order(self) -> list[Problem]:
        """Return what was found in the order of the file."""
        return sorted(self._found, key=lambda p: (p.place.line, p.place.column))

    def raise_if_any(self) -> None:
        """Raise one ContractError that carries every problem, if there is any."""
        if self._found:
            raise self.error()

    def error(self) -> ContractError:
        """Return the ContractError: a line a problem, at most `SHOWN_AT_MOST` of them."""
        pairs = [(str(p), p.hint) for p in self.in_order()]
        shown, rest = pairs[:SHOWN_AT_MOST], len(pairs) - SHOWN_AT_MOST
        if rest > 0:
            shown.append((f"and {rest} more problems", "mend the first ones and run again"))
        hint = pairs[0][1] if len(pairs) == 1 else ""
        return ContractError("\n".join(text for text, _ in shown), hint=hint, problems=tuple(shown))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the closest known name, or with all of them.

    Examples
    --------
    >>> did_you_mean("limt", ["limit", "slices"])
    "did you mean 'limit'?"
    >>> did_you_mean("zzz", ["limit", "slices"])
    'known: limit, slices'
    """
    names = [str(one) for one in known]
    inside = [one for one in names if len(name) >= CLEAR_CHARS and name in one]
    close = inside[:MEANT_AT_MOST] or get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {', '.join(names)}"


def shorten(text: str) -> str:
    """Return `text` quoted and cut to a length that leaves the message readable."""
    return repr(text if len(text) <= SHORT_CHARS else text[: SHORT_CHARS - 1] + "…")
