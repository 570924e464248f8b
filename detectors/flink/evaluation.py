"""Evaluation of one contract: events from every pairing operator, put back into the order of the log.

What the detector says is a function of the log: which records, in which order, at which times.
Parallel operators deliver them in no order; but a watermark says up to which time everything has
come, so events wait for it here and are then judged in the one order.  No Flink in this module.
"""

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import isfinite

from paritas.contracts.model import Contract
from paritas.detectors.flink.events import Arrived
from paritas.detectors.pipeline import Detector
from paritas.records import Escalation, Verdict

__all__ = ["OrderedEvaluation", "verdict_line"]

Place = tuple[int, int, int]
END_NS = 2**63 - 1  # later than any record


class OrderedEvaluation:
    """State of the evaluation: the detector, and what the watermark has not reached.

    Parameters
    ----------
    contract : Contract
    deployment : str
        Part of every escalation id.
    """

    def __init__(self, contract: Contract, *, deployment: str = "") -> None:
        self.detector = Detector(contract, deployment=deployment)
        self._waiting: list[tuple[Place, int, Arrived]] = []
        self._put = 0  # events of one place keep their order
        self._log_ns = 0
        self.ended = False

    def put(self, event: Arrived) -> None:
        """Keep an event until everything before it has come."""
        heapq.heappush(self._waiting, (event.place, self._put, event))
        self._put += 1

    def advance(self, log_ns: int) -> Iterator[Escalation]:
        """Everything up to and including `log_ns` has come: judge it, in order."""
        while self._waiting and self._waiting[0][0][0] <= log_ns:
            _, _, event = heapq.heappop(self._waiting)
            yield from self._judge(event)

    def pass_time(self, now_ns: int) -> Iterator[Escalation]:
        """Nothing has come for a while: judge all that is here, then let silence pass."""
        yield from self.advance(END_NS)
        yield from self.detector.elapse(now_ns)

    def flush(self) -> Iterator[Escalation]:
        """End of input: judge all that is here; what is still alone is unmatched."""
        yield from self.advance(END_NS)
        yield from self.detector.flush(self._log_ns)
        self.ended = True

    def verdicts(self) -> tuple[Verdict, ...]:
        """One verdict for every clause and slice, as of now."""
        return self.detector.verdicts()

    @property
    def waiting(self) -> int:
        """Events the watermark has not reached."""
        return len(self._waiting)

    def _judge(self, event: Arrived) -> Iterator[Escalation]:
        self._log_ns = max(self._log_ns, event.log_ns)
        yield from self.detector.follow(
            event.takens, self._log_ns, gaps=event.gaps, agent=event.agent, rosters=event.rosters
        )


def verdict_line(contract_digest: str, verdicts: Sequence[Verdict]) -> str:
    """One line of JSON for a contract's verdicts; what is not a number is null.

    Examples
    --------
    >>> verdict_line("d", ())
    '{"contract": "d", "verdicts": []}'
    """
    told = [{name: _finite(value) for name, value in asdict(verdict).items()} for verdict in verdicts]
    return json.dumps({"contract": contract_digest, "verdicts": told})


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not isfinite(value) else value
