"""Where every sequence that a training step showed is: emitted, under way, or dropped for a reason."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from paritas.records import StepTime

__all__ = ["CaptureAccount", "CaptureDrop", "CaptureReading"]


class CaptureDrop(StrEnum):
    """Why a sequence never became a trace; the label of a counter."""

    DISABLED = "disabled"  # PARITAS_ENABLED is off
    CLOSED = "closed"  # shown after the end, or still under way when the time to close ran out
    SHAPE = "shape"  # the tensors do not fit each other, or there are neither logits nor logprobs
    PENDING_BYTES = "pending_bytes"  # copies that hold so many bytes are under way already
    GRAPH_CAPTURE = "graph_capture"  # a CUDA graph is being captured: what is queued now is not run
    EMPTY = "empty"  # the mask holds no token of a response
    NAMES = "names"  # not as many names as rows
    FAULT = "fault"  # PyTorch or we failed


@dataclass(frozen=True, slots=True)
class CaptureReading:
    """One consistent look: ``shown == emitted + pending + sum(dropped.values())``, in sequences.

    Attributes
    ----------
    shown, emitted, pending : int
    dropped : mapping of CaptureDrop to int
    steps : int
        Steps whose duration is known.
    step_s : float, seconds
        Duration of the last of them, by CUDA events where CUDA is there; NaN before the first.
    steps_lost : int
        Steps whose duration never came to be known.
    """

    shown: int
    emitted: int
    pending: int
    dropped: Mapping[CaptureDrop, int]
    steps: int = 0
    step_s: float = float("nan")
    steps_lost: int = 0


class CaptureAccount:
    """The counters; any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown = self._emitted = self._steps = self._steps_lost = 0
        self._step_s = float("nan")
        self._dropped: Counter[CaptureDrop] = Counter()

    def show(self, sequences: int) -> None:
        """Count sequences that a step showed."""
        with self._lock:
            self._shown += sequences

    def emit(self, sequences: int) -> None:
        """Count sequences that the emitter has."""
        with self._lock:
            self._emitted += sequences

    def drop(self, reason: CaptureDrop, sequences: int) -> None:
        """Count sequences that are lost."""
        with self._lock:
            self._dropped[reason] += sequences

    def refuse(self, reason: CaptureDrop) -> None:
        """Count one thing that was shown and is no batch."""
        self.show(1)
        self.drop(reason, 1)

    def time(self, step: StepTime) -> None:
        """Keep the duration of a step."""
        with self._lock:
            self._steps += 1
            self._step_s = step.host_s if step.device_s is None else step.device_s

    def lose_steps(self, lost: int) -> None:
        """Say how many steps were given up so far."""
        with self._lock:
            self._steps_lost = lost

    def read(self) -> CaptureReading:
        """One consistent look."""
        with self._lock:
            dropped = {reason: count for reason, count in self._dropped.items() if count}
            pending = self._shown - self._emitted - sum(dropped.values())
            return CaptureReading(
                shown=self._shown,
                emitted=self._emitted,
                pending=pending,
                dropped=dropped,
                steps=self._steps,
                step_s=self._step_s,
                steps_lost=self._steps_lost,
            )
