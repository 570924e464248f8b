"""Causes: the closed list, what to do first about each, and what is looked at to tell them apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from types import MappingProxyType

from paritas.detectors.diagnosis.features import Features
from paritas.detectors.diagnosis.parts import WorstPart
from paritas.detectors.diagnosis.places import Worst
from paritas.records import Sampling

__all__ = ["ADVICE", "MIN_CONFIDENCE", "Cause", "Scene", "page_of", "ramp"]

MIN_CONFIDENCE = 0.6  # a wrong name costs an engineer more than `unknown`


class Cause(StrEnum):
    """The closed list of causes; docs/causes has a page of each."""

    SHIFT = "shift"
    TEMPERATURE = "temperature_mismatch"
    SUPPORT = "support_mismatch"
    WRONG_LAW = "wrong_law"
    STALE = "stale_weights"
    PREFIX_CACHE = "prefix_cache"
    ADAPTER = "wrong_adapter"
    POSITION = "position_drift"
    CONTEXT = "context_mismatch"
    ENDING = "ending_mismatch"
    ROUTING = "routing_flips"
    BROKEN = "broken_values"
    PRECISION = "precision_noise"
    ISOLATED = "isolated_slice"
    UNKNOWN = "unknown"


def page_of(cause: Cause) -> str:
    """Page that says how a cause looks, where it comes from and what to do.

    Examples
    --------
    >>> page_of(Cause.SHIFT)
    'docs/causes/shift.md'
    """
    return f"docs/causes/{cause.value}.md"


FIRST_STEPS: Mapping[Cause, str] = MappingProxyType(
    {
        Cause.SHIFT: "compare token ids position by position: one side's log-probabilities are rolled by one token",
        Cause.TEMPERATURE: "log processed log-probabilities or scale the trainer's logits by the sampling temperature",
        Cause.SUPPORT: "the sampler renormalises over a truncated set: replay its kept set in the trainer, or sample untruncated",
        Cause.WRONG_LAW: "the logged log-probabilities are not the law tokens are drawn from: switch the engine to processed log-probabilities",
        Cause.STALE: "the sampler's weights are not the trainer's: check the last weight sync of this slice, then its prefix cache",
        Cause.PREFIX_CACHE: "only responses to cached prompts drift: reset the prefix cache at each weight update, and check that the reset is not refused while requests run",
        Cause.ADAPTER: "only one adapter's traffic drifts: compare its id, version, rank and scaling on both sides",
        Cause.POSITION: "drift grows along the response: compare rotary embedding, context length, sliding window and cache precision",
        Cause.CONTEXT: "drift is largest at the first tokens: print both prompts as token ids; the chat template, the system prompt or the packing differs",
        Cause.ENDING: "only the last token differs: compare stop token, forbidden stop token, forced end and length limit on both sides",
        Cause.ROUTING: "a few tokens jump while the rest agree: compare the chosen experts of both kernels, or replay the sampler's",
        Cause.BROKEN: "log-probabilities are NaN, infinite, sentinels or missing: find the first such request in the exemplar traces",
        Cause.PRECISION: "the drift looks like rounding: the kernel is less precise than this contract allows; compare dtypes, or use the preset of that precision",
        Cause.ISOLATED: "only this value of the slice is affected: drain it and compare its identity with its siblings'",
        Cause.UNKNOWN: "no known fingerprint fits: inspect the exemplar traces token by token",
    }
)
ADVICE: Mapping[Cause, str] = MappingProxyType(
    {c: f"{text} ({page_of(c)})" for c, text in FIRST_STEPS.items()}
)


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that is looked at to name the cause of what is violated in one slice.

    Attributes
    ----------
    features : Features
        Of the place in the slice that stands out; of the slice where none does.
    inference, train : Sampling
        As reported; unknown fields are None.
    lag : int
        Largest weights lag beyond what the contract allows, 0 when there is none or it is unknown.
    broken_clause : bool
        Whether the violated clause is about broken or missing values.
    ratio_clause, law_clause : bool
        Whether the mean-one test or the top-1 frequency test itself is violated (A21): proofs, where
        the features are hints.
    shifted_pairs : int
        Sequences whose token ids agree after a move by one.
    digests : int
        Sequences whose two sides claim the same weights version and hold other weights.
    other_law : str
        In what the declared laws of refused sequences differ: ``temperature``, ``support``, ``processors``.
    kernels : str
        In what the identities of the two kernels differ (`differing`).
    drift_clause : bool
        Whether a numerical or statistical clause is violated.  Healthy kernels round too, so
        rounding explains nothing where only pairing, latency or identity is at fault.
    whole : Features or None
        Of the slice; None stands for `features`.
    place : Worst or None
        The place whose features are looked at.
    worst : Worst or None
        The place that drifts most, by clear evidence, whether by nature or not.
    part : WorstPart or None
        The part of the responses that drifts most.
    sawtooth, trend : float, log10 of an e-value
        That drift grows between weight updates and falls at each; that it grows.
    """

    features: Features
    inference: Sampling = Sampling()
    train: Sampling = Sampling()
    lag: int = 0
    broken_clause: bool = False
    ratio_clause: bool = False
    law_clause: bool = False
    shifted_pairs: int = 0
    drift_clause: bool = True
    whole: Features | None = None
    place: Worst | None = None
    worst: Worst | None = None
    part: WorstPart | None = None
    sawtooth: float = 0.0
    trend: float = 0.0
    digests: int = 0
    other_law: str = ""
    kernels: str = ""


def ramp(value: float, low: float, high: float) -> float:
    """0 at `low`, 1 at `high`, linear between; NaN counts as 0.

    Examples
    --------
    >>> ramp(0.5, 0.0, 1.0), ramp(-1.0, 0.0, 1.0), ramp(float("nan"), 0.0, 1.0)
    (0.5, 0.0, 0.0)
    """
    if not isfinite(value):
        return 0.0
    return min(max((value - low) / (high - low), 0.0), 1.0)
