"""Which program evaluated the policy, and what law its numbers belong to."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["KernelIdentity", "LogprobSemantics", "Role", "Sampling"]


class Role(StrEnum):
    """Which of the two programs spoke; `reference` is where routing falls back to."""

    TRAIN = "train"
    INFERENCE = "inference"
    REFERENCE = "reference"


class LogprobSemantics(StrEnum):
    """What law a logged log-probability belongs to.

    `raw`: softmax of the untouched logits.  `temperature_only`: after division by the
    temperature.  `processed`: after temperature, truncation and every other processor,
    that is, the law the token was drawn from.
    """

    RAW = "raw"
    TEMPERATURE_ONLY = "temperature_only"
    PROCESSED = "processed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens were drawn, and what the logged numbers mean.

    Attributes
    ----------
    temperature, top_p, top_k, min_p : float or None
        None means not reported, which is not the same as the neutral value.
    processors : str
        Digest of other logits processors (penalties, bias, grammar); empty when none.
    semantics : LogprobSemantics
        Law of the logged log-probabilities.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    processors: str = ""
    semantics: LogprobSemantics = LogprobSemantics.UNKNOWN


@dataclass(frozen=True, slots=True)
class KernelIdentity:
    """Which program evaluated the policy; empty strings and None mean not reported."""

    role: Role
    engine: str = ""
    engine_version: str = ""
    dtype: str = ""
    quantization: str = ""
    kv_cache_dtype: str = ""
    attention_backend: str = ""
    lm_head_dtype: str = ""
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    batch_invariant: bool | None = None
    cuda_graphs: bool | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    speculative: str = ""
    gpu: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """BLAKE2b-128 over the canonical JSON of all fields, 32 lowercase hex characters."""
        text = json.dumps(self.fields(), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def fields(self) -> dict[str, object]:
        """Return every reported field; what was not reported is left out."""
        known = {name: getattr(self, name) for name in self.__slots__ if name != "extra"}
        told = {name: value for name, value in known.items() if value not in ("", None)}
        return {**told, **{f"extra.{k}": v for k, v in sorted(self.extra.items())}}
