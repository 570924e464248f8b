"""From the sample to the digest: complete, or unknown for a reason."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from paritas.collectors.weights.sampling import Sample, Sampled

__all__ = ["Digest", "Unknown", "digest_of", "merge"]

FORM = "w1"  # names this recipe; digests of different recipes are not compared


class Unknown(StrEnum):
    """Why there is no digest."""

    NOTHING = "nothing"  # no tensor of the sample is here
    PARTS = "parts"  # elements or layers are in other processes
    REPLICAS = "replicas"  # two copies of an element differ: a fault in itself
    DTYPE = "dtype"  # rounding to bfloat16 would not give the same on both sides
    ADAPTERS = "adapters"  # the program adds to the weights what is not in them
    LAYOUT = "layout"  # stored in a way that is not known


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest, or the reason why there is none.

    Attributes
    ----------
    text : str
        ``w1:`` and 32 hexadecimal characters; empty when not known.
    elements : int
        Elements it stands on.
    unknown : Unknown or None
    """

    text: str = ""
    elements: int = 0
    unknown: Unknown | None = None


def digest_of(sample: Sample, *, layers: int) -> Digest:
    """Digest a sample if nothing of it is missing.

    Parameters
    ----------
    sample : Sample
    layers : int
        Layers of the whole model; a process that holds some of them knows a part only.
    """
    if not sample.tensors:
        return Digest(unknown=Unknown.NOTHING)
    if sample.layers != frozenset(range(layers)) or not all(p.known.all() for p in sample.tensors.values()):
        return Digest(unknown=Unknown.PARTS)
    text = hashlib.blake2b(digest_size=16, person=b"paritas.weights")
    for name, part in sorted(sample.tensors.items()):
        text.update(f"{len(name)}:{name}{part.shape}".encode())
        text.update(part.bits.astype("<u2").tobytes())
    elements = sum(part.bits.size for part in sample.tensors.values())
    return Digest(f"{FORM}:{text.hexdigest()}", elements)


def merge(parts: Iterable[Sample]) -> Sample | Unknown:
    """Put together what several processes know; ranks may hold copies, which must agree."""
    whole: dict[str, Sampled] = {}
    layers: frozenset[int] = frozenset()
    for part in parts:
        layers |= part.layers
        for name, new in part.tensors.items():
            joined = _joined(whole.get(name, new), new)
            if isinstance(joined, Unknown):
                return joined
            whole[name] = joined
    return Sample(whole, layers)


def _joined(old: Sampled, new: Sampled) -> Sampled | Unknown:
    if old.shape != new.shape:
        return Unknown.LAYOUT
    both = old.known & new.known
    if np.any(old.bits[both] != new.bits[both]):
        return Unknown.REPLICAS
    return Sampled(old.shape, old.known | new.known, np.where(new.known, new.bits, old.bits))
