"""Kernels: how much two healthy programs of one policy differ, in the noise of their logits.

Sizes are those of the recordings in docs/diagnosis.md: mean |ell| 0.0047 for float16, 0.036 for
bfloat16, 0.063 for 4-bit weights under integer activations, 0.18 for e4m3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from paritas.detectors.diagnosis.faults.laws import Matrix, Workload, wander

__all__ = ["KERNELS", "Kernel", "scales"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A healthy pair of programs.

    Attributes
    ----------
    size : float, nats
        Root mean square of the noise of a logit.
    unevenness : float
        Spread of the log of its scale from token to token; kurtosis grows with it.
    preset : str
        Contract it keeps.
    """

    size: float
    unevenness: float
    preset: str

    def noise(self, rng: np.random.Generator, work: Workload) -> Matrix:
        """Noise of the logits, shape (m, VOCABULARY); no two tokens share any of it."""
        return scales(rng, work, self.size, self.unevenness) * rng.standard_normal(
            work.logits.shape, np.float32
        )


KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {
        "fp16": Kernel(0.0075, 0.4, "fp16"),
        "bf16": Kernel(0.055, 0.35, "dense-bf16"),
        "fp8": Kernel(0.28, 0.4, "fp8-rollout"),
        "int4": Kernel(0.097, 0.35, "int4"),
    }
)


def scales(rng: np.random.Generator, work: Workload, size: float, unevenness: float) -> Matrix:
    """Scale of the noise of each token, shape (m, 1): log-normal, alike for neighbours and within a sequence."""
    own = rng.standard_normal((len(work.lengths), 1), np.float32)[work.sequence]
    mixed = np.sqrt(0.85) * wander(rng, work, 0.6) + np.sqrt(0.15) * own
    return np.asarray(size * np.exp(unevenness * mixed - unevenness**2), np.float32)
