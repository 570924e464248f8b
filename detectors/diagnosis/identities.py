"""Identities: in what the two kernels of a pair say that they differ, for the facts of a finding."""

from collections.abc import Iterator

from paritas.records import KernelIdentity

__all__ = ["differing"]

# What changes numbers; engines, their versions and GPUs differ in every healthy fleet.
FORMATS = ("quantization", "kv_cache_dtype", "speculative")
NUMBERS = ("dtype", "lm_head_dtype", "attention_backend", *FORMATS)


def differing(inference: KernelIdentity, train: KernelIdentity) -> str:
    """Return the fields in which two identities differ, as text; empty where none does.

    A number format counts where only one side reports it: the other one has none.

    Examples
    --------
    >>> from paritas.records import Role
    >>> served = KernelIdentity(Role.INFERENCE, dtype="bfloat16", quantization="fp8")
    >>> differing(served, KernelIdentity(Role.TRAIN, dtype="float32"))
    'dtype bfloat16/float32, quantization fp8/-'
    """
    return ", ".join(_differences(inference, train))


def _differences(inference: KernelIdentity, train: KernelIdentity) -> Iterator[str]:
    for name in NUMBERS:
        one, other = getattr(inference, name), getattr(train, name)
        if one != other and ((one and other) or name in FORMATS):
            yield f"{name} {one or '-'}/{other or '-'}"
