"""SGLang's log of requests, read while it grows: ``--export-metrics-to-file DIR``.

One JSON line a request, a new file each hour (``sglang-request-metrics-20261128_04.log``).
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from paritas.clock import Clock
from paritas.collectors.dumps.decode import decode_line
from paritas.collectors.dumps.fields import Row
from paritas.collectors.dumps.lines import Line
from paritas.collectors.dumps.problem import LineError, Problem, ProblemReason
from paritas.collectors.dumps.tail import FileTail
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
        stopping = False
        while not stopping:
            stopping = stop.is_set()
            yield from log.poll()
            if not stopping:
                clock.wait(stop, timeout_s=poll_s)
        yield from log.finish()


class RequestLog:
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
        self._folder, self._source, self._limit_bytes = folder, source, limit_line_bytes
        self._tail: FileTail | None = None
        self._name = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file being read; a second call does nothing."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def poll(self) -> Iterator[TokenTrace | Problem]:
        """Yield what was written since the last call."""
        yield from self._read()
        for file in sorted(self._folder.glob(FILES)):
            if file.name > self._name:
                # The hour is over: what stands in the older file is all there will be.
                yield from self._read()
                yield from self.finish()
                self.close()
                self._name, self._tail = file.name, FileTail(file, limit_bytes=self._limit_bytes)
                yield from self._read()

    def finish(self) -> Iterator[TokenTrace | Problem]:
        """Yield what stands after the last line end."""
        if self._tail is not None:
            for line in self._tail.finish():
                yield from self._decoded(line)

    def _read(self) -> Iterator[TokenTrace | Problem]:
        if self._tail is not None:
            for item in self._tail.poll():
                yield from (item,) if isinstance(item, Problem) else self._decoded(item)

    def _decoded(self, line: Line) -> tuple[TokenTrace | Problem, ...]:
        return decode_line(line, self._trace, file=str(self._folder / self._name))

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
