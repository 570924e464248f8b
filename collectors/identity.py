"""What a kernel says of itself: each value with the place it was read from, and the record made of it.

What could not be read is absent: nothing is assumed.  `kernel_of` puts the names that
`paritas.records.KernelIdentity` has into its fields and the rest into `extra`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from paritas.records import KernelIdentity, Role

__all__ = ["Read", "kernel_of", "look", "merged"]

NOT_TOLD = (None, "")
OWN_FIELDS = {field.name for field in fields(KernelIdentity)} - {"role", "extra"}
WHOLE_FIELDS = frozenset({"tp", "pp", "ep"})
FLAG_FIELDS = frozenset({"batch_invariant", "cuda_graphs", "prefix_caching", "chunked_prefill"})
EXTRA_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class Read:
    """One value of an identity, and where it was read.

    Attributes
    ----------
    value : str, int or bool
    source : str
        The attribute, function, variable or route, such as ``model.config.dtype``.
    """

    value: str | int | bool
    source: str


def look(read: Callable[[], Any], source: str) -> Read | None:
    """Read one value; None where it is not there or not told, whatever the program raises.

    Examples
    --------
    >>> look(lambda: "sdpa", "model.config._attn_implementation")
    Read(value='sdpa', source='model.config._attn_implementation')
    >>> look(lambda: {}["absent"], "nowhere") is None
    True
    """
    try:
        value = read()
    except Exception:  # noqa: BLE001 -- somebody else's attributes: absent is an answer
        return None
    if value is None or value == "":
        return None
    return Read(value if isinstance(value, bool | int | str) else str(value), source)


def merged(*parts: Mapping[str, Read | None]) -> dict[str, Read]:
    """Return what was read; of two readings of one name the first counts."""
    found: dict[str, Read] = {}
    for part in parts:
        for name, read in part.items():
            if read is not None:
                found.setdefault(name, read)
    return found


def kernel_of(role: Role, reads: Mapping[str, Read]) -> KernelIdentity:
    """Make the record; a value of the wrong type goes into `extra` as a text.

    Examples
    --------
    >>> reads = {"dtype": Read("bfloat16", "model.dtype"), "tf32": Read(False, "torch.backends")}
    >>> kernel_of(Role.TRAIN, reads).fields()
    {'role': <Role.TRAIN: 'train'>, 'dtype': 'bfloat16', 'extra.tf32': 'false'}
    """
    own = {name: read.value for name, read in reads.items() if _fits(name, read.value)}
    extra = {name: _shown(read.value) for name, read in reads.items() if name not in own}
    return KernelIdentity(role, extra=extra, **own)  # type: ignore[arg-type] # `_fits` compared the types


def _fits(name: str, value: str | int | bool) -> bool:
    if name not in OWN_FIELDS:
        return False
    if name in FLAG_FIELDS:
        return isinstance(value, bool)
    if name in WHOLE_FIELDS:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, str)


def _shown(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)[:EXTRA_CHARACTERS]
