"""Live numbers of a detection loop: a page for Prometheus, OTLP metrics for a collector.

The loop's thread makes a `Reading` now and then and puts it on the desk; the page and the pusher
take the latest from there, so that neither ever waits for the detector, nor it for them.
"""

import logging
from http import HTTPStatus
from io import BufferedReader
from typing import TYPE_CHECKING

from paritas.agent.http_message import Request, response
from paritas.agent.receivers.http_server import HttpServer
from paritas.agent.receivers.listening import listen_tcp
from paritas.clock import Clock
from paritas.commands.live_reading import Reading, otlp_metrics, prometheus_text, reading_of
from paritas.commands.own_thread import OwnThread
from paritas.errors import TransientError
from paritas.otlp_http import OtlpClient, Target

if TYPE_CHECKING:
    from paritas.detectors.pipeline import Detector

__all__ = ["MetricsDesk", "MetricsPusher", "metrics_page"]

log = logging.getLogger(__name__)
NS = 1_000_000_000
PERIOD_S = 5.0
TIMEOUT_S = 5.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TEXT = "text/plain; charset=utf-8"


class MetricsDesk:
    """Holds the latest reading; `note` is called by the loop, `latest` by anybody.

    Parameters
    ----------
    period_s : float, seconds
        A reading is made at most so often.
    """

    def __init__(self, contract: str, *, clock: Clock, period_s: float = PERIOD_S) -> None:
        self._clock = clock
        self._period_ns = round(period_s * NS)
        self._due_ns = clock.monotonic_ns()
        self.latest = Reading(contract)

    def note(self, detector: "Detector") -> None:
        """Read the detector if it is time to."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._due_ns:
            self.latest = reading_of(detector)
            self._due_ns = now_ns + self._period_ns


def metrics_page(listen: str, desk: MetricsDesk) -> HttpServer:
    """Return the server of ``/metrics``; enter it to serve.

    Raises
    ------
    UsageError
        The address cannot be bound.
    """

    def answer(request: Request, _stream: BufferedReader) -> bytes:
        if request.path.partition("?")[0] != "/metrics":
            return response(HTTPStatus.NOT_FOUND, b"/metrics is served here\n", TEXT)
        return response(HTTPStatus.OK, prometheus_text(desk.latest).encode(), CONTENT_TYPE)

    return HttpServer(listen_tcp(listen), answer, name="metrics")


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
