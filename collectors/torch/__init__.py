"""The training side: log-probabilities of a PyTorch step, taken without touching it.

::

    with TorchCollector.from_environ(os.environ) as collector:
        for batch in batches:
            with collector.step(weights_version=str(version), model=model) as step:
                logits = model(batch.ids).logits
                step.observe(batch.ids[:, 1:], logits=logits[:, :-1], mask=batch.mask[:, 1:],
                             names=Names(batch.uids))
                ...

Nothing here raises into the step, waits for the device, or holds more than it is allowed to.
Importing it loads numpy only; PyTorch is what the caller already has.
"""

from paritas.collectors.torch.capture import CaptureDrop, CaptureLimits, CaptureReading, TorchCollector
from paritas.collectors.torch.rows import RowScores, score_rows
from paritas.collectors.torch.shown import Shown
from paritas.collectors.torch.step import Step
from paritas.collectors.torch.traces import Names, Stamp

__all__ = [
    "CaptureDrop",
    "CaptureLimits",
    "CaptureReading",
    "Names",
    "RowScores",
    "Shown",
    "Stamp",
    "Step",
    "TorchCollector",
    "score_rows",
]
