"""Synthetic pairs of kernels with one known fault each, drawn by the package's own generator of faults."""

from functools import cache

from paritas.detectors.diagnosis.faults import FAULTS, Case, outcomes

SEEDS = (900, 901, 902)  # neither trained nor benchmarked on


def worst(name):
    """Return the worst severity of a fault."""
    return FAULTS[name].severities[-1]


def case(name, severity=None, *, kernel="bf16", share=None, seed=SEEDS[0]):
    """Return a fault in all of the traffic, or in the place it has by nature."""
    place = share or FAULTS[name].place or "all" if name in FAULTS else "all"
    return Case(
        name, worst(name) if severity is None and name in FAULTS else severity or 0.0, kernel, place, seed
    )


# every fault where it is neither mild nor hidden
CASES = tuple(case(name) for name in FAULTS)


@cache
def drawn(one):
    """Outcomes of a case, drawn once."""
    return tuple(outcomes(one))


def pairs_of(one):
    """Pairs of a case."""
    return [o.pair for o in drawn(one) if o.pair is not None]
