"""A trainer whose own method does as it likes: no transformers runs here (`tests/engines/test_hf_trainer.py` does)."""

from types import SimpleNamespace

import pytest

from paritas.collectors.torch import CaptureDrop, TorchCollector
from paritas.collectors.transformers import attach


class Trainer:
    """`compute_loss` as its author wrote it."""

    def __init__(self, told):
        self.told = told
        self.state = SimpleNamespace(global_step=0)

    def compute_loss(self, model, inputs, return_outputs=False):
        del model, inputs, return_outputs
        return self.told


@pytest.mark.parametrize("loss", [0.25, None, ["a", "b"], (0.25, {}, 7)])
def test_a_loss_without_outputs_trains_on(loss):
    """A method that ignores `return_outputs` works as long as nobody asks for outputs; so it does when watched."""
    trainer = Trainer(loss)
    attachment = attach(trainer, collector=TorchCollector.from_environ({}))
    got = trainer.compute_loss(None, {"labels": []})
    assert got == (loss[0] if isinstance(loss, tuple) else loss)
    assert attachment.collector.read().dropped == {CaptureDrop.SHAPE: 1}
    attachment.detach()
