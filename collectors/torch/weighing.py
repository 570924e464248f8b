"""The weights digest of a training model for every version, without waiting for the device.

What is looked at is found out once for a model.  Then each version costs one small gather a sampled
tensor and one copy of some kilobytes on the side stream of the capture; the digest is put together on
the host when a batch of that version has arrived, which is later than its weights.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.torch.backend import Tensor, pytorch, quietly
from paritas.collectors.torch.copies import Copies, HostCopies
from paritas.collectors.torch.identity import unwrapped
from paritas.collectors.torch.weights import local_of, model_pieces, text_config
from paritas.collectors.weights.digest import Unknown, digest_of
from paritas.collectors.weights.sampling import Indices, Sample, SamplePlan, bf16_bits, sample

__all__ = ["Coming", "Weigher"]

USUAL = SamplePlan()
# Places in what is gathered are noted where bfloat16 patterns stand else, in 16 bits.
MOST_ELEMENTS = 1 << 16
VALUES = "values"


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """Elements of one parameter, and where on its device; the program may free the parameter."""

    parameter: "weakref.ref[Any]"
    at: tuple[Tensor, ...]

    def gather(self) -> Tensor:
        parameter: Any = self.parameter()
        return local_of(parameter.detach())[self.at]


@dataclass(slots=True, eq=False)
class _Looking:
    """Notes what a sample asks for, in order, and answers with its places in the whole."""

    looks: list[_Look] = field(default_factory=list)
    elements: int = 0

    def reader(self, parameter: Tensor) -> "_Note":
        return _Note(self, parameter)


@dataclass(frozen=True, slots=True, eq=False)
class _Note:
    looking: _Looking
    parameter: Tensor

    def __call__(self, indices: Indices) -> NDArray[np.uint16]:
        looking, device = self.looking, self.parameter.device
        at = tuple(_placed(pytorch().as_tensor(index), device) for index in indices)
        looking.looks.append(_Look(weakref.ref(self.parameter), at))
        first, looking.elements = looking.elements, looking.elements + indices[0].size
        if looking.elements > MOST_ELEMENTS:
            raise ValueError(looking.elements)
        return np.arange(first, looking.elements, dtype=np.uint16)


def _placed(index: Tensor, device: Any) -> Tensor:
    """Put an index on a device; from pinned memory, as any other copy waits for the stream."""
    return index.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else index


@dataclass(frozen=True, slots=True, eq=False)
class _Survey:
    """What is looked at in one model, and the parameters it was found out from.

    `places` holds, instead of patterns, where in the gathered values each of them will be.
    """

    held: tuple["weakref.ref[Any]", ...]
    looks: tuple[_Look, ...] = ()
    places: Sample | None = None
    layers: int = 0

    def is_of(self, model: Any) -> bool:
        """Whether the model still holds these very tensors: a program may put new ones in their place."""
        now = list(model.parameters())
        return len(now) == len(self.held) and all(
            ref() is one for ref, one in zip(self.held, now, strict=True)
        )

    def digest(self, values: NDArray[np.float32]) -> str:
        """Return the digest of the gathered values."""
        if self.places is None:
            return ""
        bits = bf16_bits(values)
        tensors = {name: replace(one, bits=bits[one.bits]) for name, one in self.places.tensors.items()}
        return digest_of(replace(self.places, tensors=tensors), layers=self.layers).text


def _survey(model: Any, plan: SamplePlan) -> _Survey:
    """Find out what is looked at; nothing where the digest is not known (`weights_digest` says why)."""
    held = tuple(weakref.ref(parameter) for parameter in model.parameters())
    looking = _Looking()
    pieces = model_pieces(model, reader=looking.reader)
    if isinstance(pieces, Unknown):
        return _Survey(held)
    layers = int(text_config(unwrapped(model).config).num_hidden_layers)
    places = sample(plan, pieces)
    if digest_of(places, layers=layers).unknown is not None:
        return _Survey(held)
    return _Survey(held, tuple(looking.looks), places, layers)


@dataclass(slots=True, eq=False)
class Coming:
    """The digest of one version, once its elements have arrived; `Weighed` of a `Stamp`."""

    survey: _Survey | None = None
    copies: HostCopies | None = None
    told: str | None = None

    def text(self) -> str:
        """Return the digest; empty where it is not known, or its elements are not here yet."""
        survey, copies = self.survey, self.copies
        if survey is not None and copies is not None and copies.has_arrived():
            values = copies.tensors[VALUES].numpy()
            self.told = quietly(lambda: survey.digest(values))
            self.survey = self.copies = None
        return self.told or ""


def _nothing() -> None:
    """No model was weighed yet, or none that can be referred to."""


class Weigher:
    """Takes digests of the models of a process; keeps the last.

    Parameters
    ----------
    copies : Copies
        Of the capture: the elements travel on its side stream, before the batches of their version.
    plan : SamplePlan
    """

    def __init__(self, copies: Copies, *, plan: SamplePlan = USUAL) -> None:
        self._copies, self._plan = copies, plan
        self._survey: _Survey | None = None
        self._model: Callable[[], Any] = _nothing
        self._version, self._last = "", Coming()

    def weigh(self, model: Any, version: str) -> Coming:
        """Return the digest of what the model holds now; of a version that was weighed, the first one."""
        if self._model() is not model or self._version != version:
            self._model = quietly(lambda: weakref.ref(model)) or _nothing
            self._version, self._last = version, quietly(lambda: self._begin(model)) or Coming()
        return self._last

    def _begin(self, model: Any) -> Coming:
        torch = pytorch()
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return Coming()
        if self._survey is None or not self._survey.is_of(model):
            held = tuple(weakref.ref(parameter) for parameter in model.parameters())
            self._survey = quietly(lambda: _survey(model, self._plan)) or _Survey(held)
        survey = self._survey
        if not survey.looks:
            return Coming()
        with torch.no_grad():
            gathered = torch.cat([look.gather() for look in survey.looks]).float()
        return Coming(survey, self._copies.start({VALUES: gathered}))
