"""OpenRLHF: an `Experience` as traces of both kernels.

::

    from paritas.collectors.openrlhf import show_experience     # where experiences are made, once a batch
    show_experience(collector, experience, weights_version=str(global_step))

The engine's log-probabilities are there when the correction is on.  What never came is 0.0 there; the
detectors find such runs (`paritas.tokens.missing_zeros`).

Called where the actor is, and before it trains on the experience, ``model=self.actor`` has a digest of its
weights told with the training side.
"""

from dataclasses import replace
from typing import Any

from paritas.collectors.torch.backend import quietly
from paritas.collectors.torch.capture import TorchCollector
from paritas.collectors.torch.rollouts import Rollouts, numbered, prefix_of, show_rollouts
from paritas.records import KernelIdentity, LogprobSemantics, Role, Sampling

__all__ = ["rollouts_of", "show_experience"]

INFERENCE = KernelIdentity(Role.INFERENCE)
UNTOLD = Sampling()


def rollouts_of(experience: Any, *, prefix: str) -> Rollouts:
    """Return an experience as rollouts.

    Parameters
    ----------
    experience : openrlhf Experience
        ``sequences`` (b, t) prompt and response, ``action_mask``, ``action_log_probs`` and
        ``rollout_log_probs`` (b, a) of its last a tokens; a hole in the mask is what an environment said.
    prefix : str
        Put before the names.
    """
    mask = experience.action_mask
    tokens = experience.sequences[:, -mask.shape[1] :]
    index = experience.index or range(tokens.shape[0])
    return Rollouts(
        tokens=tokens,
        mask=mask,
        names=numbered([str(prompt) for prompt in index], prefix),
        train=experience.action_log_probs,
        inference=experience.rollout_log_probs,
    )


def show_experience(
    collector: TorchCollector,
    experience: Any,
    *,
    weights_version: str,
    sampling: Sampling = UNTOLD,
    inference: KernelIdentity = INFERENCE,
    model: Any = None,
) -> None:
    """Show an experience: nothing raises, what cannot be shown is counted.

    Parameters
    ----------
    collector : TorchCollector
        Its stamp names the training kernel.
    experience : openrlhf Experience
    weights_version : str
        Of the weights that sampled; part of the sequences' names.
    sampling : Sampling
        Temperature and truncation of the engine.
    inference : KernelIdentity
        The engine's kernel as far as it is known here.
    model : openrlhf Actor, torch.nn.Module or None
        What ``action_log_probs`` were computed with, as it still is: a digest of its weights is taken once a
        version.  None, shards (ZeRO 3) and adapters have none; the engine's weights are not seen from here.
    """
    try:
        rollouts = rollouts_of(experience, prefix=prefix_of(weights_version))
    except Exception:  # noqa: BLE001 -- the edge to somebody else's batch
        collector.refuse()
        return
    shared = replace(collector.stamp, weights_version=weights_version)
    law = replace(sampling, semantics=LogprobSemantics.TEMPERATURE_ONLY)
    engine = replace(sampling, semantics=LogprobSemantics.PROCESSED)
    show_rollouts(
        collector,
        rollouts,
        train=collector.weighed(replace(shared, sampling=law), quietly(lambda: _inside(model))),
        inference=replace(shared, kernel=inference, sampling=engine, weights_digest=""),
    )


def _inside(model: Any) -> Any:
    """Return what an Actor holds; an Actor has no configuration of its own, as every model has."""
    return model if hasattr(model, "config") else getattr(model, "model", model)
