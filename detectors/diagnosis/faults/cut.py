"""Cut: from what both kernels logged of a workload to the outcomes of its sequences."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.diagnosis.faults.laws import Log, Workload
from paritas.detectors.pairs import PairedTrace, PairOutcome, TopColumns
from paritas.records import (
    KernelIdentity,
    PairReason,
    Role,
    Sampling,
    Timings,
    TokenStatus,
    trace_id_of,
)

__all__ = ["cut"]

NS = 1_000_000_000
RUN = "run"
INFERENCE, TRAIN = KernelIdentity(Role.INFERENCE), KernelIdentity(Role.TRAIN)


def cut(
    work: Workload, log: Log, numbers: NDArray[np.int64], labels: Mapping[str, NDArray[np.str_]]
) -> Iterator[PairOutcome]:
    """Cut a log into the outcomes of its sequences.

    Parameters
    ----------
    numbers : shape (n,), int64
        Number of each sequence in the traffic: its place, its start in seconds, its name.
    labels : mapping of str to shape (all sequences,), str
        Attributes.
    """
    ends = np.cumsum(work.lengths)
    for number, length, end in zip(numbers.tolist(), work.lengths.tolist(), ends.tolist(), strict=True):
        told = {name: str(values[number]) for name, values in labels.items()}
        yield _Sequence(log, slice(end - length, end), number, told).outcome()


@dataclass(frozen=True, slots=True)
class _Sequence:
    """One sequence of a log."""

    log: Log
    span: slice
    number: int
    labels: dict[str, str]

    @property
    def name(self) -> str:
        """Its id."""
        return f"s-{self.number:04}"

    def outcome(self) -> PairOutcome:
        """How the search for its two views ended."""
        ended = PairOutcome(PairReason.PAIRED, RUN, self.name, "", self.number * NS, self.labels)
        if self.log.lag:
            return replace(ended, reason=PairReason.WEIGHTS_MISMATCH, facts={"lag": float(self.log.lag)})
        return replace(ended, pair=self._pair())

    def _pair(self) -> PairedTrace:
        status = self.log.broken[self.span]
        kept = status == TokenStatus.VALID
        q, p, best, hit = (
            c[self.span][kept] for c in (self.log.q, self.log.p, self.log.top1_q, self.log.is_top1)
        )
        tally = np.bincount(status, minlength=len(TokenStatus))
        return PairedTrace(
            run_id=RUN,
            sequence_id=self.name,
            group_id="",
            trace_id=trace_id_of(RUN, self.name),
            weights_version="",
            event_ns=self.number * NS,
            attributes=self.labels,
            log_ratio=p - q,
            logprob_q=q,
            position=np.flatnonzero(kept),
            counts={s: int(tally[s]) for s in TokenStatus if tally[s]},
            inference=INFERENCE,
            train=TRAIN,
            sampling=self.log.sampling,
            train_sampling=Sampling(),
            timings=Timings(),
            itl_mean_s=float("nan"),
            top=TopColumns(best, hit, *[np.full(len(q), np.nan)] * 5),
        )
