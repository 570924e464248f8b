"""SGLang's log of requests, read while it grows: ``--export-metrics-to-file DIR``.

One JSON line a request, a new file each hour (``sglang-request-metrics-20261128_04.log``).
"""

import threading
from collections.abc import Iterator
from pathlib import Path

from paritas.clock import Clock
from paritas.collectors.dumps.fields import Row
from paritas.collectors.dumps.growing import GrowingLines, NewestFile, until_stopped
from paritas.collectors.dumps.problem import LineError, Problem, ProblemReason
from paritas.collectors.sglang.requests import SglangSource, request_in_line, trace_of_request
from paritas.errors import UsageError
from paritas.records import TokenTrace

__all__ = ["RequestLog", "follow_request_log"]

FILES = "sglang-request-metrics-*.log"
LIMIT_LINE_BYTES = 64 << 20  # log-probabilities of a long prompt and its answer are some MB of JSON


def follow_request_log(
    folder: Path, source: SglangSource, *, clock: Clock, stop: threading.Event, poll_s: float = 1.0
) -> Iterator[TokenTrace | Problem]:
    """Yield the traces of the requests in a folder, and of those that come, until `stop` is set.

    A request that asked for no log-probabilities is passed over.  A file that was cut is read again
    from its start, one that was replaced to its end and then the new one: both are told as problems.

    Raises
    ------
    UsageError
        The folder does not exist.
    """
    with RequestLog(folder, source) as log:
        yield from until_stopped(log, clock=clock, stop=stop, poll_s=poll_s)


class RequestLog(NewestFile):
    """The files of one folder, oldest first; owns the one being read.

    Parameters
    ----------
    folder : Path
    source : SglangSource
    limit_line_bytes : int
    """

    def __init__(
        self, folder: Path, source: SglangSource, *, limit_line_bytes: int = LIMIT_LINE_BYTES
    ) -> None:
        if not folder.is_dir():
            raise UsageError(f"{folder}: is no folder", hint="name the one of --export-metrics-to-file-dir")
        super().__init__()
        self._folder, self._source, self._limit_bytes = folder, source, limit_line_bytes
        self._name = ""

    def poll(self) -> Iterator[TokenTrace | Problem]:
        """Yield what was written since the last call."""
        yield from self.poll_file()
        for file in sorted(self._folder.glob(FILES)):
            if file.name > self._name:
                yield from self.end_file()  # the hour is over: what stands in the older file is all there will be
                self._name = file.name
                yield from self.turn_to(GrowingLines(file, self._trace, limit_bytes=self._limit_bytes))

    def _trace(self, row: Row, index: int) -> tuple[TokenTrace, ...]:
        del index
        if "finish_reason" not in row:
            raise LineError(
                ProblemReason.MISSING_KEY,
                "finish_reason is missing",
                hint="is this SGLang's log of requests?",
            )
        trace, _ = trace_of_request(request_in_line(row), self._source)
        return () if trace is None else (trace,)
