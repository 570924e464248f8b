"""TRL in one line: both kernels' log-probabilities of every GRPO or RLOO rollout.

::

    trainer = GRPOTrainer(...)
    paritas.collectors.trl.attach(trainer)
    trainer.train()

Per-token tensors never reach TRL's callbacks, so three methods of this one trainer object are wrapped;
what they return is what they returned.  The training side is ``old_per_token_logps`` where the trainer
computes it (always with vLLM), else the log-probabilities of the loss at the weights that sampled.  The
inference side is ``sampling_per_token_logps``: what vLLM or a `rollout_func` reported.  A vLLM in this
process whose own collector is installed leaves these requests to us, and tells which kernel and weights it
saw; one in another process is better started with ``PARITAS_ENABLED=0``, as its names pair with nothing.
"""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paritas.collectors.identity import Read, kernel_of, look, merged
from paritas.collectors.telling import Telling
from paritas.collectors.torch.backend import Tensor, pytorch, quietly
from paritas.collectors.torch.capture import TorchCollector
from paritas.collectors.torch.identity import trainer_kernel
from paritas.collectors.torch.rollouts import Rollouts, show_rollouts
from paritas.collectors.torch.traces import Names, Stamp
from paritas.errors import UsageError
from paritas.records import KernelIdentity, LogprobSemantics, Role, Sampling

__all__ = ["Attachment", "attach", "rollouts_of", "sampling_of"]

# Travels with the batch through TRL's shuffle and split: (generation, row in it).
NUMBER = "paritas_sequence"
GENERATE, LOSS = "_generate_and_score_completions", "_compute_loss"
SCORES = ("_get_per_token_logps_and_entropies", "_get_per_token_logps")


def attach(trainer: Any, *, collector: TorchCollector | None = None) -> "Attachment":
    """Watch a trainer; without `PARITAS_*` variables it does nothing but count.

    Parameters
    ----------
    trainer : trl.GRPOTrainer or trl.RLOOTrainer
    collector : TorchCollector or None
        None: made from the environment, and closed when the training ends.

    Raises
    ------
    UsageError
        A `PARITAS_*` variable is wrong, or this trainer has not the methods that are wrapped.
    """
    score = next((name for name in SCORES if hasattr(trainer, name)), None)
    if score is None or not hasattr(trainer, GENERATE) or not hasattr(trainer, LOSS):
        raise UsageError(
            f"{type(trainer).__name__} has no {GENERATE}, {LOSS} and {SCORES[0]}",
            hint="attach to a GRPOTrainer or RLOOTrainer of TRL; others show batches with collector.step()",
        )
    return Attachment(trainer, collector or TorchCollector.from_environ(os.environ), score)


def sampling_of(args: Any, semantics: LogprobSemantics) -> Sampling:
    """Return how a GRPOConfig samples."""
    return Sampling(
        temperature=_number(args, "temperature"),
        top_p=_number(args, "top_p"),
        top_k=int(_number(args, "top_k") or 0),
        min_p=_number(args, "min_p"),
        semantics=semantics,
    )


def _number(args: Any, name: str) -> float | None:
    told = getattr(args, name, None)
    return None if told is None else float(told)


def rollouts_of(batch: Mapping[str, Any], names: Names, *, train: Tensor | None = None) -> Rollouts:
    """Return a batch of TRL as rollouts.

    Parameters
    ----------
    batch : mapping
        As `_generate_and_score_completions` returns it: completions padded on the right, ``tool_mask``
        0 where a tool spoke, NaN in ``sampling_per_token_logps`` where vLLM had none.
    names : Names
    train : tensor of shape (b, t), nats, or None
        None: ``old_per_token_logps`` where it is there.
    """
    return Rollouts(
        tokens=batch["completion_ids"],
        mask=batch["completion_mask"],
        names=names,
        train=batch.get("old_per_token_logps") if train is None else train,
        inference=batch.get("sampling_per_token_logps"),
        loss_mask=batch.get("tool_mask"),
    )


@dataclass(slots=True)
class _Generation:
    """The generation of now: which it is, at which step, and which of its rows the loss has shown."""

    number: int = -1
    version: str = ""
    rows: int = 0


class Attachment:
    """What `attach` returns: the collector, and the way back."""

    def __init__(self, trainer: Any, collector: TorchCollector, score: str) -> None:
        self.collector = collector
        self._trainer, self._score = trainer, score
        self._generation = _Generation()
        self._shown: set[tuple[int, int]] = set()
        self._logps: Tensor | None = None
        self._wrapped: list[str] = []
        self._step: Any = None
        self._told = Telling()
        self.read_kernels()
        self._wrap(GENERATE, self._generate)
        self._wrap(LOSS, self._loss)
        self._wrap(score, self._scored)
        trainer.add_callback(_callback(self))

    def detach(self) -> None:
        """Give the trainer its own methods back and close the collector."""
        for name in self._wrapped:
            self._trainer.__dict__.pop(name, None)
        self._wrapped.clear()
        self.collector.close()

    def _wrap(self, name: str, around: Callable[..., Any]) -> None:
        original = getattr(self._trainer, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        setattr(self._trainer, name, wrapped)
        self._wrapped.append(name)

    def read_kernels(self) -> None:
        """Read who computes: the trainer's kernel, and what TRL knows of the sampler's."""
        trainer, base = self._trainer, self.collector.stamp
        law = sampling_of(trainer.args, LogprobSemantics.TEMPERATURE_ONLY)
        self._train = replace(base, kernel=trainer_kernel(trainer, os.environ), sampling=law)
        # TRL makes vLLM report the law it samples from; what a rollout function reports nobody knows.
        told = LogprobSemantics.PROCESSED if _uses_vllm(trainer) else LogprobSemantics.UNKNOWN
        law = sampling_of(trainer.args, told)
        self._inference = replace(base, kernel=_sampler(trainer), sampling=law)

    def _generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._trainer.model.training:
            return original(*args, **kwargs)
        with Telling().here() as telling:
            batch = original(*args, **kwargs)
        quietly(lambda: self._after_generation(batch, telling))
        return batch

    def _after_generation(self, batch: dict[str, Any], telling: Telling) -> None:
        """Show what the batch holds already, and number its rows for the loss."""
        rows = int(batch["completion_ids"].shape[0])
        number = self._generation.number + 1
        self._generation = _Generation(number, str(self._trainer.state.global_step), rows)
        self._shown.clear()
        self._told = telling
        batch[NUMBER] = pytorch().tensor([[number, row] for row in range(rows)])
        self._show(rollouts_of(batch, self._names(range(rows))))

    def _names(self, rows: Sequence[int]) -> Names:
        """Name rows by step, generation and place among all ranks; a group is one prompt's completions."""
        process = int(getattr(self._trainer.accelerator, "process_index", 0))
        first = process * self._generation.rows
        prefix = f"{self._generation.version}.{self._generation.number}"
        size = max(1, int(getattr(self._trainer, "num_generations", 1)))
        places = [first + row for row in rows]
        return Names([f"{prefix}/{at}" for at in places], [f"{prefix}/p{at // size}" for at in places])

    def _show(self, rollouts: Rollouts) -> None:
        version = self._generation.version
        train = replace(self._train, weights_version=version)
        inference = replace(_heard(self._inference, self._told), weights_version=version)
        train = self.collector.weighed(train, self._trainer.model)
        show_rollouts(self.collector, rollouts, train=train, inference=inference)

    def _scored(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        self._logps = result[0] if isinstance(result, tuple) else result
        return result

    def _loss(self, original: Callable[..., Any], model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self._logps = None
        loss = original(model, inputs, *args, **kwargs)
        logps, self._logps = self._logps, None
        quietly(lambda: self._after_loss(inputs, logps))
        return loss

    def _after_loss(self, inputs: Mapping[str, Any], logps: Tensor | None) -> None:
        """Show the loss's log-probabilities, once a row and only at the weights that sampled it."""
        if logps is None or NUMBER not in inputs or "old_per_token_logps" in inputs:
            return
        places = [(number, row) for number, row in inputs[NUMBER].tolist()]
        is_new = all(place[0] == self._generation.number and place not in self._shown for place in places)
        if is_new and str(self._trainer.state.global_step) == self._generation.version:
            self._shown.update(places)
            names = self._names([row for _, row in places])
            only_train = {**inputs, "sampling_per_token_logps": None}  # its traces came with the generation
            self._show(rollouts_of(only_train, names, train=logps))

    def step_begin(self) -> None:
        """Begin to time a step."""
        version = str(self._trainer.state.global_step)
        self._step = self.collector.step(weights_version=version).__enter__()

    def step_end(self) -> None:
        """End it."""
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None


def _heard(stamp: Stamp, told: Telling) -> Stamp:
    """Return the sampler's stamp with what its own collector saw in this process."""
    if told.kernel is None:
        return stamp
    extra = {**stamp.kernel.extra, **told.kernel.extra}
    return replace(stamp, kernel=replace(told.kernel, extra=extra), weights_digest=told.weights_digest)


def _uses_vllm(trainer: Any) -> bool:
    return bool(getattr(trainer, "use_vllm", False))


def _sampler(trainer: Any) -> KernelIdentity:
    reads: dict[str, Read] = merged(
        {
            "engine": Read("vllm", "trainer.use_vllm") if _uses_vllm(trainer) else None,
            "vllm_mode": look(lambda: trainer.vllm_mode, "trainer.vllm_mode"),
            "tp": look(lambda: trainer.vllm_tensor_parallel_size, "trainer.vllm_tensor_parallel_size"),
            "told_by": Read("trl", "sampling_per_token_logps"),
        }
    )
    return kernel_of(Role.INFERENCE, reads)


def _callback(attachment: Attachment) -> Any:
    """Return a callback of transformers that times steps and ends the capture with the training."""
    base = importlib.import_module("transformers").TrainerCallback

    def on_train_begin(*_: Any, **__: Any) -> None:
        quietly(attachment.read_kernels)  # only now is the model wrapped as it will compute

    def on_step_begin(*_: Any, **__: Any) -> None:
        quietly(attachment.step_begin)

    def on_step_end(*_: Any, **__: Any) -> None:
        quietly(attachment.step_end)

    def on_train_end(*_: Any, **__: Any) -> None:
        quietly(attachment.collector.flush)

    methods = {
        "on_train_begin": on_train_begin,
        "on_step_begin": on_step_begin,
        "on_step_end": on_step_end,
        "on_train_end": on_train_end,
    }
    return type("ParitasCallback", (base,), methods)()
