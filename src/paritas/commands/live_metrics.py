"""Live numbers of a detection loop: a page of health and metrics, OTLP metrics for a collector.

The loop's thread makes a `Reading` now and then and puts it on the desk; the page and the pusher
take the latest from there, so that neither ever waits for the detector, nor it for them.
"""

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from paritas.agent.health import Health
from paritas.agent.health_page import health_page
from paritas.agent.receivers.http_server import HttpServer
from paritas.clock import Clock
from paritas.commands.contract_watch import ContractCounts
from paritas.commands.detect_health import LoopState, judge
from paritas.commands.exposition import exposition
from paritas.commands.live_reading import Reading, otlp_metrics, prometheus_text, reading_of
from paritas.commands.loop_reading import LoopReading, loop_families, loop_reading
from paritas.commands.own_thread import OwnThread
from paritas.errors import TransientError
from paritas.otlp_http import OtlpClient, Target

if TYPE_CHECKING:
    from paritas.commands.detecting import DetectionLoop
    from paritas.detectors.pipeline import Detector

__all__ = ["MetricsDesk", "MetricsPusher", "metrics_page"]

log = logging.getLogger(__name__)
NS = 1_000_000_000
PERIOD_S = 5.0
TIMEOUT_S = 5.0
READ_SHARE = 50  # reading takes at most about a fiftieth of the loop's time


class MetricsDesk:
    """Holds the latest reading; `note` is called by the loop, `latest` by anybody.

    Parameters
    ----------
    period_s : float, seconds
        A reading is made at most so often, and when the contract is another.

    Attributes
    ----------
    latest, loop : Reading, LoopReading
        Of the detector, and of the loop around it.
    state : LoopState
        What the loop says of itself now.
    contracts : ContractCounts
        What became of the contract's file.
    """

    def __init__(self, contract: str, *, clock: Clock, period_s: float = PERIOD_S) -> None:
        self._clock = clock
        self._period_ns = round(period_s * NS)
        self._due_ns = clock.monotonic_ns()
        self._started_s = clock.now_ns() / NS
        self._digest = ""  # of the contract that was read last: another one is read at once
        self._followed: DetectionLoop | None = None
        self.latest, self.loop = Reading(contract), LoopReading()
        self.state = LoopState(self._due_ns)
        self.contracts = ContractCounts()

    def follow(self, loop: "DetectionLoop") -> None:
        """Read this loop from its next step on."""
        self._followed = loop
        loop.state, loop.on_step = self.state, self.note

    def note(self, detector: "Detector") -> None:
        """Read the detector, and the loop that is followed, if it is time to."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._due_ns and detector.contract.digest == self._digest:
            return
        self._digest = detector.contract.digest
        self.latest = reading_of(detector)
        if self._followed is not None:
            self.loop = loop_reading(self._followed)
        took_ns = self._clock.monotonic_ns() - now_ns
        self._due_ns = now_ns + max(self._period_ns, READ_SHARE * took_ns)

    def health(self) -> Health:
        """Return the judgement of now."""
        return judge(self.state, self._clock.monotonic_ns(), is_stale=self.contracts.is_stale)

    def page(self) -> str:
        """Return the text that Prometheus reads."""
        told = loop_families(self.loop, self.contracts, self.health(), started_s=self._started_s)
        own = {"contract": self.latest.contract}
        return prometheus_text(self.latest) + exposition(told, common=own)


def metrics_page(listen: str, desk: MetricsDesk) -> HttpServer:
    """Return the server of ``/metrics``, ``/healthz`` and ``/readyz``; enter it to serve.

    Raises
    ------
    UsageError
        The address cannot be bound.
    """
    return health_page(listen, health=desk.health, page=desk.page)


class MetricsPusher(OwnThread):
    """Posts the latest reading to an OTLP/HTTP receiver every period, on a thread of its own.

    A receiver that is away costs nothing but a missing point: metrics are readings, the next one
    holds all that the last one did.

    Attributes
    ----------
    sent, failed : int
        Requests that were taken, and that were not.
    """

    def __init__(
        self, target: Target, desk: MetricsDesk, *, clock: Clock, period_s: float = PERIOD_S
    ) -> None:
        super().__init__(name="paritas-metrics-push")
        self._desk, self._clock, self._period_s = desk, clock, period_s
        self._client = OtlpClient(target, clock=clock, timeout_s=TIMEOUT_S, path="/v1/metrics")
        self._start_ns = clock.now_ns()
        self.sent = self.failed = 0

    def close(self) -> None:
        """Push once more, within the timeout, stop and disconnect; twice is fine."""
        super().close()
        self._client.close()

    def _run(self) -> None:
        while not self._clock.wait(self._stop, timeout_s=self._period_s):
            self.push()
        self.push()

    def push(self) -> None:
        """Post the latest reading once; a failure is counted, and told when it begins."""
        body = otlp_metrics(self._desk.latest, start_ns=self._start_ns, now_ns=self._clock.now_ns())
        try:
            answer = self._client.post(body.SerializeToString())
        except TransientError as error:
            self._fail(str(error))
            return
        if answer.status == HTTPStatus.OK:
            self.sent += 1
        else:
            self._fail(f"HTTP {answer.status} {answer.text}")

    def _fail(self, why: str) -> None:
        self.failed += 1
        if self.failed == 1:
            log.warning("Metrics are not taken; the next are tried.", extra={"detail": why})
