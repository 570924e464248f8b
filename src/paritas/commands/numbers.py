"""What every number that a user sees means: definition, unit, source, and what it cannot see.

Statistics say it themselves, in the catalogue (`paritas contract explain`).  Everything else stands in
`numbers.yaml`: fields of verdicts and reports, columns, metrics.  docs/numbers.md shows it all, and a test
walks what the commands print and fails at a number without its text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.resources import files
from textwrap import fill

import yaml

__all__ = ["Group", "Number", "groups", "lacks", "number_page"]


@dataclass(frozen=True, slots=True)
class Number:
    """What one number means.

    Attributes
    ----------
    name : str
        As it is shown; may hold ``*``.
    says : str
        Definition; empty where the code that shows the number says it.
    unit, source, blind : str
        Unit; where definition or value come from; what it cannot see.
    """

    name: str
    says: str
    unit: str
    source: str
    blind: str

    def fits(self, name: str) -> bool:
        """Return whether this is about the number `name`.

        Examples
        --------
        >>> Number("values[].*", "", "", "", "").fits("values[].units")
        True
        """
        return re.fullmatch(".*".join(map(re.escape, self.name.split("*"))), name) is not None


@dataclass(frozen=True)
class Group:
    """Numbers that are shown in one place.

    Attributes
    ----------
    where : str
        Where a user meets them, in Markdown.
    numbers : tuple of Number
        In the order of the file: the first that fits a name is about it.
    """

    key: str
    title: str
    where: str
    numbers: tuple[Number, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Number]:
        """Numbers by their own name."""
        return {number.name: number for number in self.numbers}

    def find(self, name: str) -> Number | None:
        """Return what is said of a number: under its own name, else under the first pattern that fits."""
        fitting = (number for number in self.numbers if number.fits(name))
        return self.by_name.get(name) or next(fitting, None)


def groups() -> Mapping[str, Group]:
    """Read `numbers.yaml`.

    Examples
    --------
    >>> groups()["verdicts"].find("upper").source
    'docs/mathematics.md D16'
    """
    told = yaml.safe_load((files("paritas") / "numbers.yaml").read_text("utf-8"))
    return {key: _group(key, part) for key, part in told.items()}


def _group(key: str, part: Mapping[str, object]) -> Group:
    common = {"says": "", "unit": "", "source": part.get("source", ""), "blind": part.get("blind", "")}
    written = part["numbers"]
    assert isinstance(written, dict)
    numbers = (
        Number(name, **{k: str(v) for k, v in (common | own).items()}) for name, own in written.items()
    )
    return Group(key, str(part["title"]), str(part["where"]), tuple(numbers))


def lacks(number: Number) -> tuple[str, ...]:
    """Return the parts that are not said.

    Examples
    --------
    >>> lacks(Number("tv", "distance", "probability", " ", ""))
    ('source', 'blind')
    """
    return tuple(f.name for f in fields(number) if not getattr(number, f.name).strip())


WIDTH, INDENT = 92, 11  # as of `paritas contract explain`


def number_page(name: str) -> str:
    """Return what is said of every number of that name; empty where there is none.

    Examples
    --------
    >>> print(number_page("log10_e").splitlines()[0])
    log10_e (Verdicts; unit: log10 of an e-value)
    """
    found = ((group, number) for group in groups().values() if (number := group.find(name)) is not None)
    return "\n".join(_page(name, group, number) for group, number in found)


def _page(name: str, group: Group, number: Number) -> str:
    rows = (("shown in", group.where), ("source", number.source), ("blind to", number.blind))
    wrapped = (
        fill(f"{title:<{INDENT}}{text}", WIDTH, subsequent_indent=" " * INDENT) for title, text in rows
    )
    head = f"{name} ({group.title}; unit: {number.unit})"
    says = ["", fill(number.says, WIDTH)] if number.says else []
    return "\n".join([head, *says, "", *wrapped, ""])
