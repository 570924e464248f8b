"""What became of every request, what went wrong in us, and when we stop."""

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from paritas.collectors.openai.columns import Doubt

__all__ = ["Account", "Fault", "Unobserved", "VllmReading"]

LOG = logging.getLogger("paritas.vllm")
# So many faults without a good sequence between them: this vLLM is not the one we know.
FAULTS_LIMIT = 16


class Unobserved(StrEnum):
    """Why a request is not observed."""

    SHARE = "share"  # the declared share does not take it
    LOGITS = "logits"  # the engine reports logits under the name of log-probabilities
    WHOLE_VOCABULARY = "whole_vocabulary"  # it asked for all of it, unsorted
    SPECULATIVE = (
        "speculative"  # this version computes no log-probabilities there unless asked, or wrong ones
    )
    STREAMED_INPUT = "streamed_input"  # its prompt is still growing
    TRAINER = "trainer"  # a trainer in this process tells both kernels' numbers itself
    STOPPED = "stopped"  # we have switched ourselves off


class Fault(StrEnum):
    """Where one of our own steps failed; the request went on as if we were not there."""

    BEGIN = "begin"
    TAKE = "take"
    END = "end"
    NAMES = "names"
    WEIGHTS = "weights"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class VllmReading:
    """Counts since the engine was attached to.

    Attributes
    ----------
    begun, injected : int
        Sequences observed, and those of them whose log-probabilities nobody but us asked for.
    ended : int
        Traces made; begun less ended is under way or was aborted.
    unobserved, doubts, faults : mapping of reason to int
    is_stopped : bool
        We have switched ourselves off.
    """

    begun: int
    injected: int
    ended: int
    unobserved: Mapping[Unobserved, int]
    doubts: Mapping[Doubt, int]
    faults: Mapping[Fault, int]
    is_stopped: bool


class Account:
    """Counts; after `FAULTS_LIMIT` faults in a row it says stop, for good.

    Examples
    --------
    >>> account = Account()
    >>> account.unobserved[Unobserved.SHARE] += 1
    >>> account.read().unobserved[Unobserved.SHARE], account.read().is_stopped
    (1, False)
    """

    def __init__(self) -> None:
        self.begun, self.injected, self.ended = 0, 0, 0
        self.unobserved: Counter[Unobserved] = Counter()
        self.doubts: Counter[Doubt] = Counter()
        self.is_stopped = False
        self._faults: Counter[Fault] = Counter()
        self._in_a_row = 0
        self._lock = threading.Lock()

    def fault(self, where: Fault, error: BaseException) -> None:
        """Count a fault; the first of each place is logged, and so is the stop."""
        with self._lock:
            self._faults[where] += 1
            self._in_a_row += 1
            is_first = self._faults[where] == 1
            stops = self._in_a_row == FAULTS_LIMIT and not self.is_stopped
            self.is_stopped |= stops
        if is_first:
            LOG.warning(
                "not observed (%s): %s: %s; further ones are only counted", where, type(error).__name__, error
            )
        if stops:
            LOG.warning("%d faults in a row: observing stops, the engine goes on", FAULTS_LIMIT)

    def good(self, doubts: Mapping[Doubt, int]) -> None:
        """Count a trace that was made."""
        self.ended += 1
        self._in_a_row = 0
        if doubts:
            self.doubts.update(doubts)

    def read(self) -> VllmReading:
        """One look."""
        return VllmReading(
            begun=self.begun,
            injected=self.injected,
            ended=self.ended,
            unobserved=dict(self.unobserved),
            doubts=dict(self.doubts),
            faults=dict(self._faults),
            is_stopped=self.is_stopped,
        )
