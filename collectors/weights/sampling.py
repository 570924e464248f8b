"""Which elements are looked at: a function of name and full shape, so every process chooses the same."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.weights.naming import is_vocabulary, layer_of

__all__ = ["Piece", "Sample", "SamplePlan", "Sampled", "bf16_bits", "positions", "sample"]

Indices = tuple[NDArray[np.int64], ...]
# Engines add rows to a vocabulary so that it divides well; the first rows are the same everywhere.
VOCABULARY_ROWS = 8192
VOCABULARY_AT_LEAST = 16384  # below this, padding could decide whether a tensor is looked at


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """How much is looked at; both kernels must use the same plan.

    Attributes
    ----------
    seed : str
        Another seed looks at other elements.
    share : float
        Of all tensors, chosen by name: the choice does not depend on what else there is.
    elements : int
        Of each of them.
    """

    seed: str = "paritas"
    share: float = 0.25
    elements: int = 64

    def takes(self, name: str) -> bool:
        """Whether this tensor is looked at."""
        return int.from_bytes(self._hash(name, "tensor"), "big") < self.share * 2**64

    def numbers(self, name: str) -> NDArray[np.uint64]:
        """Return the random numbers of a tensor, shape (elements,); the same on every machine."""
        blocks = (self._hash(name, str(number)) for number in range(self.elements))
        return np.frombuffer(b"".join(blocks), ">u8").astype(np.uint64)

    def _hash(self, name: str, use: str) -> bytes:
        key = f"{len(self.seed)}:{self.seed}{use}:{name}"
        return hashlib.blake2b(key.encode(), digest_size=8, person=b"paritas.weights").digest()


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A block of one tensor that this process holds.

    Attributes
    ----------
    name : str
        `canonical_name`.
    shape : tuple of int
        Of the whole tensor in the checkpoint.
    offset : tuple of int
        Where the block begins in it.
    held : tuple of int
        Shape of the block.
    read : callable
        Given index arrays into the block, the bfloat16 patterns of its elements, uint16.
    """

    name: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    held: tuple[int, ...]
    read: Callable[[Indices], NDArray[np.uint16]]


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """What is known of the sample of one tensor.

    Attributes
    ----------
    shape : tuple of int
    known : shape (elements,), bool
    bits : shape (elements,), uint16
        Patterns of bfloat16; 0 where not known.
    """

    shape: tuple[int, ...]
    known: NDArray[np.bool_]
    bits: NDArray[np.uint16]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """What one process, or several together, know of the sample.

    Attributes
    ----------
    tensors : mapping of canonical name to Sampled
    layers : frozenset of int
        Layers of which anything is here, looked at or not.
    """

    tensors: Mapping[str, Sampled]
    layers: frozenset[int]


def positions(plan: SamplePlan, name: str, shape: tuple[int, ...]) -> Indices:
    """Return the places that are looked at, one index array a dimension; empty arrays for none.

    Examples
    --------
    >>> [index.size for index in positions(SamplePlan(share=1, elements=5), "norm.weight", (576,))]
    [5]
    """
    bounds = list(shape)
    if is_vocabulary(name):
        bounds[0] = VOCABULARY_ROWS if shape[0] >= VOCABULARY_AT_LEAST else 0
    size = int(np.prod(bounds, dtype=np.int64))
    if not size or not plan.takes(name):
        return tuple(np.zeros(0, np.int64) for _ in shape)
    flat = (plan.numbers(name) % np.uint64(size)).astype(np.int64)
    return tuple(np.asarray(index, np.int64) for index in np.unravel_index(flat, bounds))


def sample(plan: SamplePlan, pieces: Iterable[Piece]) -> Sample:
    """Look at the pieces; a tensor that is not in the sample costs one hash.

    Pieces of one tensor may overlap, as replicas do; the later one's elements count.
    """
    found: dict[str, Sampled] = {}
    layers: set[int] = set()
    for piece in pieces:
        layer = layer_of(piece.name)
        layers |= set() if layer is None else {layer}
        chosen = positions(plan, piece.name, piece.shape)
        if chosen and chosen[0].size:
            before = found.get(piece.name) or Sampled(_told(piece), *_nothing(chosen[0].size))
            found[piece.name] = _look(piece, chosen, before)
    return Sample(found, frozenset(layers))


def _told(piece: Piece) -> tuple[int, ...]:
    """Shape for the digest: rows of a vocabulary are not told, they may be padded."""
    return (0, *piece.shape[1:]) if is_vocabulary(piece.name) else piece.shape


def _nothing(size: int) -> tuple[NDArray[np.bool_], NDArray[np.uint16]]:
    return np.zeros(size, np.bool_), np.zeros(size, np.uint16)


def _look(piece: Piece, chosen: Indices, before: Sampled) -> Sampled:
    local = [index - start for index, start in zip(chosen, piece.offset, strict=True)]
    here = np.ones(chosen[0].size, np.bool_)
    for index, length in zip(local, piece.held, strict=True):
        here &= (index >= 0) & (index < length)
    if not here.any():
        return before
    bits = before.bits.copy()
    bits[here] = piece.read(tuple(index[here] for index in local))
    return Sampled(before.shape, before.known | here, bits)


def bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to bfloat16, half to even, as PyTorch does; all NaN become one pattern, -0 becomes 0.

    Examples
    --------
    >>> [hex(b) for b in bf16_bits(np.array([1.0, -0.0, np.nan, 1.00390625], np.float32)).tolist()]
    ['0x3f80', '0x0', '0x7fc0', '0x3f80']
    """
    values = np.asarray(values, np.float32)
    whole = values.view(np.uint32)
    rounded = (whole + np.uint32(0x7FFF) + ((whole >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    bits = np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)
    return np.where(bits == 0x8000, np.uint16(0), bits)
