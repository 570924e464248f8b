"""verl: the batch after old log-probabilities were computed, as traces of both kernels.

::

    from paritas.collectors.verl import show_batch          # in the driver's loop
    show_batch(collector, batch, weights_version=str(global_steps - 1))

Put it behind `compute_rollout_correction_and_add_to_batch`, or anywhere both columns are there;
``rollout.calculate_log_probs`` must be on for the engine's.  Needs nothing of verl: a `DataProto` is
read by its three parts, `batch`, `non_tensor_batch` and `meta_info`.

The driver holds no weights.  Called where they are, in a worker and before it trains on the batch, ``model=``
has a digest of them told with the training side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paritas.collectors.torch.capture import TorchCollector
from paritas.collectors.torch.rollouts import Rollouts, numbered, prefix_of, show_rollouts
from paritas.collectors.torch.traces import Names
from paritas.records import KernelIdentity, LogprobSemantics, Role, Sampling

__all__ = ["rollouts_of", "show_batch"]

INFERENCE = KernelIdentity(Role.INFERENCE)
UNTOLD = Sampling()


def rollouts_of(batch: Mapping[str, Any], labels: Mapping[str, Sequence[Any]], *, prefix: str) -> Rollouts:
    """Return a verl batch as rollouts.

    Parameters
    ----------
    batch : TensorDict-like
        ``responses``, ``response_mask``, ``attention_mask`` (b, prompt + r), ``old_log_probs`` and
        ``rollout_log_probs`` (b, r), padded on the right; a 0 of ``response_mask`` inside the response
        is a tool's token.
    labels : mapping of name to b values
        The batch's `non_tensor_batch`: ``uid`` is the prompt's, ``request_id`` the engine's where there is one.
    prefix : str
        Put before the names: the same prompt comes again in another epoch.
    """
    responses = batch["responses"]
    there = batch["attention_mask"][:, -responses.shape[1] :]
    return Rollouts(
        tokens=responses,
        mask=there,
        names=_names(labels, int(responses.shape[0]), prefix),
        train=_column(batch, "old_log_probs"),
        inference=_column(batch, "rollout_log_probs"),
        loss_mask=_column(batch, "response_mask"),
    )


def _column(batch: Mapping[str, Any], name: str) -> Any:
    return batch[name] if name in batch.keys() else None  # noqa: SIM118 -- a TensorDict refuses `in`


def _names(labels: Mapping[str, Sequence[Any]], rows: int, prefix: str) -> Names:
    groups = [str(uid) for uid in labels.get("uid", ())] or [str(row) for row in range(rows)]
    named = numbered(groups, prefix)
    requests = [str(request) for request in labels.get("request_id", ())]
    return replace(named, sequence_ids=requests) if len(set(requests)) == rows else named


def show_batch(
    collector: TorchCollector,
    data: Any,
    *,
    weights_version: str,
    inference: KernelIdentity = INFERENCE,
    truncation: Sampling = UNTOLD,
    model: Any = None,
) -> None:
    """Show a `DataProto`: nothing raises, what cannot be shown is counted.

    Parameters
    ----------
    collector : TorchCollector
        Its stamp names the training kernel.
    data : verl.DataProto
        ``meta_info["temperature"]`` is what old log-probabilities were divided by.
    weights_version : str
        Of the weights that sampled: one less than the step that is being made.
    inference : KernelIdentity
        The engine's kernel as far as it is known here.
    truncation : Sampling
        The engine's truncation (``top_p``, ``top_k``, ``min_p``) from ``rollout`` of the configuration.
    model : torch.nn.Module or None
        What old log-probabilities were computed with, as it still is: a digest of its weights is taken once a
        version.  None, shards and adapters have none; the engine's weights are not seen from here.
    """
    try:
        temperature = float(data.meta_info.get("temperature", 1.0))
        rollouts = rollouts_of(data.batch, data.non_tensor_batch, prefix=prefix_of(weights_version))
    except Exception:  # noqa: BLE001 -- the edge to somebody else's batch
        collector.refuse()
        return
    train = Sampling(temperature=temperature, semantics=LogprobSemantics.TEMPERATURE_ONLY)
    engine = replace(truncation, temperature=temperature, semantics=LogprobSemantics.PROCESSED)
    shared = replace(collector.stamp, weights_version=weights_version)
    show_rollouts(
        collector,
        rollouts,
        train=collector.weighed(replace(shared, sampling=train), model),
        inference=replace(shared, kernel=inference, sampling=engine, weights_digest=""),
    )
