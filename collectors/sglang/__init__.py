"""Collecting from SGLang: what it says of a finished request → a trace.

Two ways, besides the proxy: its own log of requests (``--export-metrics-to-file``,
`paritas.collectors.sglang.request_log`), and a plugin in its process
(`paritas.collectors.sglang.plugin`, entry point group ``sglang.srt.plugins``).  Both see what
SGLang puts into ``meta_info``; log-probabilities are there only if the request asked for them.
"""

from paritas.collectors.sglang.request_log import RequestLog, follow_request_log
from paritas.collectors.sglang.requests import Finished, SglangSource, trace_of_request

__all__ = ["Finished", "RequestLog", "SglangSource", "follow_request_log", "trace_of_request"]
