"""The closed catalogue of statistics: unit, range, test, reference, and what each cannot see.

`detectors.statistics` computes them under the same names; a test compares the two lists.
Notation: q is the inference kernel (tokens are drawn from it), p the training kernel,
``ell = log p - log q`` of a sampled token in nats, ``w = exp(ell)``, W the product of w over
a sequence.
"""

from collections.abc import Mapping
from types import MappingProxyType

from paritas.contracts.catalogue_objectives import OBJECTIVE_ENTRIES
from paritas.contracts.catalogue_ratio import RATIO_ENTRIES
from paritas.contracts.catalogue_service import SERVICE_ENTRIES
from paritas.contracts.statistic import Need, Side, Statistic, Test

__all__ = ["CATALOGUE", "Need", "Side", "Statistic", "Test", "find"]

CATALOGUE: Mapping[str, Statistic] = MappingProxyType(
    {entry.name: entry for entry in (*RATIO_ENTRIES, *OBJECTIVE_ENTRIES, *SERVICE_ENTRIES)}
)


def find(name: str) -> Statistic:
    """Return the entry called `name`.

    Raises
    ------
    KeyError
        If the catalogue has no such statistic.

    Examples
    --------
    >>> find("tv").unit
    'probability'
    """
    return CATALOGUE[name]
