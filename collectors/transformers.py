"""transformers in one line: the log-probabilities a `Trainer` gives the tokens of its labels.

::

    trainer = Trainer(...)
    paritas.collectors.transformers.attach(trainer, names=lambda inputs: Names(...))

For a training kernel that scores given text: distillation, evaluation of an engine's outputs, or a loop
of one's own on `Trainer`.  The trainer's `compute_loss` is wrapped; its result stays what it was.  Traces
carry a digest of the weights, taken once a step (`PARITAS_WEIGHTS_DIGEST=0` takes none).
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paritas.collectors.torch.capture import TorchCollector
from paritas.collectors.torch.identity import trainer_kernel
from paritas.collectors.torch.shown import Shown
from paritas.collectors.torch.traces import Names
from paritas.errors import UsageError
from paritas.records import KernelIdentity

__all__ = ["Attachment", "attach", "shown_of"]

IGNORED = -100  # what transformers writes where a label stays out of the loss
NameBatch = Callable[[Mapping[str, Any]], Names | None]


def attach(
    trainer: Any, *, names: NameBatch | None = None, collector: TorchCollector | None = None
) -> "Attachment":
    """Watch a trainer; without `PARITAS_*` variables it does nothing but count.

    Parameters
    ----------
    trainer : transformers.Trainer
    names : callable or None
        Given the inputs of a batch, the names of its rows; None numbers them, which pairs with nothing.
    collector : TorchCollector or None
        None: made from the environment.

    Raises
    ------
    UsageError
        A `PARITAS_*` variable is wrong, or this is no such trainer.
    """
    if not hasattr(trainer, "compute_loss"):
        raise UsageError(
            f"{type(trainer).__name__} has no compute_loss",
            hint="attach to a Trainer of transformers; others show batches with collector.step()",
        )
    return Attachment(trainer, collector or TorchCollector.from_environ(os.environ), names)


def shown_of(labels: Any, logits: Any) -> Shown:
    """Return what a causal model's labels and logits show: position i scores label i + 1."""
    return Shown(labels[:, 1:], logits=logits[:, :-1], mask=labels[:, 1:] != IGNORED)


class Attachment:
    """What `attach` returns: the collector, and the way back."""

    def __init__(self, trainer: Any, collector: TorchCollector, names: NameBatch | None) -> None:
        self.collector = collector
        self._trainer, self._names = trainer, names
        self._original = trainer.compute_loss
        self._kernel: KernelIdentity | None = None
        trainer.compute_loss = self._compute_loss

    def detach(self) -> None:
        """Give the trainer its own method back and close the collector."""
        self._trainer.__dict__.pop("compute_loss", None)
        self.collector.close()

    def _compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        labels = inputs.get("labels")  # label smoothing takes them out of the inputs
        told = self._original(model, inputs, return_outputs=True, **more)
        try:
            _, outputs = told
            self._show(model, labels, outputs, inputs)
        except Exception:  # noqa: BLE001 -- the edge to somebody else's step
            self.collector.refuse()
        # A trainer's own method may never give outputs, whatever it is asked: then nothing was shown.
        return told if return_outputs or not isinstance(told, tuple) else told[0]

    def _show(self, model: Any, labels: Any, outputs: Any, inputs: Mapping[str, Any]) -> None:
        if not model.training:
            return
        if self._kernel is None:  # only now is the model wrapped as it computes
            self._kernel = trainer_kernel(self._trainer, os.environ)
        version = str(self._trainer.state.global_step)
        stamp = replace(self.collector.stamp, kernel=self._kernel, weights_version=version)
        stamp = self.collector.weighed(stamp, model)
        named = self._names(inputs) if self._names else None
        self.collector.show(shown_of(labels, outputs["logits"]), named, stamp=stamp)
