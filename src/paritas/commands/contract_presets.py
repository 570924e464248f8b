"""What `paritas contract presets` tells: every preset in a line, or one with the source of each limit."""

from textwrap import fill

from paritas.contracts.load import load_preset, preset_names, preset_summary
from paritas.contracts.model import Clause
from paritas.contracts.problems import did_you_mean
from paritas.errors import UsageError

__all__ = ["limit_text", "presets_json", "presets_page"]

WIDTH = 100


def presets_page(name: str | None) -> str:
    """Return the list of presets, or the page of one.

    Raises
    ------
    UsageError
        The package has no such preset, with the closest name.

    Examples
    --------
    >>> print(presets_page("bitwise").splitlines()[8])
      ratio-tail  ratio_tail at_most 0, above 1.00001
    """
    if name is not None:
        return _page(_known(name))
    names = preset_names()
    width = max(map(len, names))
    indent = " " * (width + 2)
    lines = [fill(f"{one:<{width}}  {preset_summary(one)}", WIDTH, subsequent_indent=indent) for one in names]
    hint = "Use one by its name where a contract is asked for, or start from it with spec.preset."
    return "\n".join([*lines, "", hint, ""])


def presets_json(name: str | None) -> list[dict[str, object]]:
    """Return the presets, or one, as plain values."""
    names = preset_names() if name is None else (_known(name),)
    return [_plain(one) for one in names]


def _known(name: str) -> str:
    if name not in preset_names():
        raise UsageError(f"unknown preset {name!r}", hint=did_you_mean(name, preset_names()))
    return name


def _page(name: str) -> str:
    preset = load_preset(name)
    base = f"starts from {preset.preset}; " if preset.preset else ""
    head = f"{name} {preset.version}  ({base}paritas contract schema {name} prints all of it)"
    parts = [head, "", _wrapped(preset_summary(name), ""), ""]
    width = max(len(clause.id) for clause in preset.clauses)
    for clause in preset.clauses:
        source = " ".join(clause.source.split())
        parts += [f"  {clause.id:<{width}}  {limit_text(clause)}", _wrapped(source, " " * 6)]
    return "\n".join(parts) + "\n"


def _wrapped(text: str, indent: str) -> str:
    """Wrapped between words only: an address stays whole."""
    return fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def limit_text(clause: Clause) -> str:
    """Return a clause's statistic, limit and options in one line."""
    side, limit = ("at_most", clause.at_most) if clause.at_most is not None else ("at_least", clause.at_least)
    options = {name: getattr(clause, name) for name in ("above", "cap", "clip", "quantile")}
    told = [f"{name} {value:g}" for name, value in options.items() if value is not None]
    told += [f"stages {'+'.join(clause.stages)}"] if clause.stages else []
    return ", ".join([f"{clause.statistic} {side} {limit:g}", *told])


def _plain(name: str) -> dict[str, object]:
    preset = load_preset(name)
    clauses = [
        {"id": c.id, "limit": limit_text(c), "source": " ".join(c.source.split())} for c in preset.clauses
    ]
    return {
        "name": name,
        "version": preset.version,
        "preset": preset.preset,
        "says": preset_summary(name),
        "clauses": clauses,
    }
