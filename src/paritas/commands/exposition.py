"""Families of numbers → the text that Prometheus reads.  Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from paritas.agent.health import Health

__all__ = ["ESCAPED", "Family", "counter", "exposition", "gauge", "health_families", "labelled", "shown"]

ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Family:
    """One metric and its samples, by the values of its labels.

    Attributes
    ----------
    name, kind, says : str
        Full name; ``counter`` or ``gauge``; help text.
    labels : tuple of str
        Names of the labels.
    samples : mapping of tuple of str to float
        One value for every name of `labels` → the number.
    """

    name: str
    kind: str
    says: str
    labels: tuple[str, ...]
    samples: Mapping[tuple[str, ...], float]


def counter(name: str, says: str, value: float) -> Family:
    """Return a counter without labels."""
    return Family(name, "counter", says, (), {(): value})


def gauge(name: str, says: str, value: float) -> Family:
    """Return a gauge without labels."""
    return Family(name, "gauge", says, (), {(): value})


def labelled(label: str, samples: Mapping[str, float]) -> tuple[tuple[str], Mapping[tuple[str, ...], float]]:
    """Return the last two fields of a family with one label."""
    return (label,), {(value,): number for value, number in samples.items()}


def health_families(prefix: str, health: Health, reasons: type[StrEnum]) -> Iterator[Family]:
    """Yield whether a process does its work, and what stops it; every reason is there from the start."""
    holds = {str(reason): float(reason in health.reasons) for reason in reasons}
    yield gauge(f"{prefix}_ready", "1 if it does its work (/readyz)", float(health.is_ready))
    says = "1 for each reason that holds"
    yield Family(f"{prefix}_not_ready", "gauge", says, *labelled("reason", holds))


def exposition(families: Iterable[Family], *, common: Mapping[str, str] | None = None) -> str:
    """Return the exposition text; `common` labels stand first on every sample.

    Examples
    --------
    >>> told = Family("x_ready", "gauge", "is ready", *labelled("of", {"a": 1.0}))
    >>> print(exposition([told], common={"contract": "c"}), end="")
    # HELP x_ready is ready
    # TYPE x_ready gauge
    x_ready{contract="c",of="a"} 1
    """
    return "".join(line for family in families for line in _lines(family, common or {}))


def _lines(family: Family, common: Mapping[str, str]) -> Iterator[str]:
    yield f"# HELP {family.name} {family.says}\n# TYPE {family.name} {family.kind}\n"
    for values, sample in family.samples.items():
        pairs = [*common.items(), *zip(family.labels, values, strict=True)]
        told = ",".join(f'{name}="{value.translate(ESCAPED)}"' for name, value in pairs)
        yield f"{family.name}{{{told}}} {shown(sample)}\n" if told else f"{family.name} {shown(sample)}\n"


def shown(value: float) -> str:
    """As Prometheus spells a number: infinity and no number have words of their own.

    Examples
    --------
    >>> shown(3.0), shown(float("-inf")), shown(float("nan"))
    ('3', '-Inf', 'NaN')
    """
    return f"{value:.17g}".replace("inf", "Inf").replace("nan", "NaN")
