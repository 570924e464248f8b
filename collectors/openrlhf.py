"""OpenRLHF: an `Experience` as traces of both kernels.

::

    from paritas.collectors.openrlhf import show_experience     # where experiences are made, once a batch
    show_experience(collector, experience, weights_version=str(global_step))

The engine's log-probabilities are there when the correction is on.  What never came is 0.0 there; the
detectors find such runs (`paritas.tokens.missing_zeros`).
"""

from dataclasses import replace
from typing import Any

from paritas.collectors.torch.capture import TorchCollector
from paritas.collectors.torch.rollouts import Rollouts, numbered, show_rollouts
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
    """
    try:
        rollouts = rollouts_of(experience, prefix=f"{weights_version}/")
    except Exception:  # noqa: BLE001 -- the edge to somebody else's batch
        collector.refuse()
        return
    shared = replace(collector.stamp, weights_version=weights_version)
    law = replace(sampling, semantics=LogprobSemantics.TEMPERATURE_ONLY)
    engine = replace(sampling, semantics=LogprobSemantics.PROCESSED)
    show_rollouts(
        collector,
        rollouts,
        train=replace(shared, sampling=law),
        inference=replace(shared, kernel=inference, sampling=engine),
    )
