"""`paritas scrape`: one look at an engine's own metrics, whatever version named them."""

import argparse
import http.client
import json
import math
import sys
import urllib.error
import urllib.request
from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from paritas.errors import TransientError, UsageError

if TYPE_CHECKING:
    from paritas.collectors.scrape import EngineMetrics, Histogram

__all__ = ["metrics_url", "register"]

TIMEOUT_S = 10.0
LIMIT_BYTES = 32 << 20  # a vLLM tells some 50 kB; more than this is no engine
HIDDEN = ("engine", "model", "names", "ttft", "itl", "e2e", "queue", "prefill", "decode")


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "scrape",
        help="read an engine's Prometheus metrics once",
        description="Reads /metrics of a vLLM or SGLang server, old names and new, and shows queue, "
        "latencies, cache use and acceptance. No value is no zero: the engine does not tell it.",
    )
    parser.add_argument("--url", metavar="URL", required=True, help="the server, or its /metrics")
    parser.add_argument("--json", action="store_true", help="everything, with the names it was found under")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show one reading; return 0."""
    from paritas.collectors.scrape import engine_metrics
    from paritas.commands.jsonable import finite

    told = engine_metrics(_fetched(metrics_url(arguments.url)))
    if arguments.json:
        sys.stdout.write(json.dumps(finite(asdict(told)), indent=2) + "\n")
    else:
        sys.stdout.write(_table(told))
    return 0


def metrics_url(text: str) -> str:
    """Return where the metrics are; a server's address means its ``/metrics``.

    Raises
    ------
    UsageError
        It is no HTTP address.

    Examples
    --------
    >>> metrics_url("http://127.0.0.1:8000"), metrics_url("http://h:1/engine/metrics")
    ('http://127.0.0.1:8000/metrics', 'http://h:1/engine/metrics')
    """
    try:
        found = urlsplit(text)
        is_fine = found.scheme in ("http", "https") and found.hostname and (found.port or 1)
    except ValueError:
        is_fine = False
    if not is_fine:
        raise UsageError(f"--url is {text!r}", hint="write http://HOST:PORT or https://HOST:PORT")
    return text if found.path.strip("/") else text.rstrip("/") + "/metrics"


def _fetched(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 -- http or https, checked
            body: bytes = answer.read(LIMIT_BYTES + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        hint = "is the engine up, and does it tell metrics?"
        raise TransientError(f"{url}: {_reason(error)}", hint=hint) from error
    if len(body) > LIMIT_BYTES:
        raise UsageError(f"{url}: more than {LIMIT_BYTES >> 20} MiB", hint="an engine's /metrics is small")
    return body.decode(errors="replace")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
        return "what answers there does not speak HTTP, or broke off"
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(getattr(inner, "strerror", None) or inner)


def _table(told: "EngineMetrics") -> str:
    heads = [("engine", told.engine or "not known"), ("model", told.model or "-")]
    plain = [(name, _number(value)) for name, value in asdict(told).items() if name not in HIDDEN]
    spans = [
        (name, _span(histogram))
        for name in HIDDEN[3:]
        if (histogram := getattr(told, name)) is not None and histogram.count
    ]
    rows = [*heads, *((name, text) for name, text in plain if text), *spans]
    return "".join(f"{name + ':':18}{text}\n" for name, text in rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _span(told: "Histogram") -> str:
    mean = "-" if math.isnan(told.mean_s) else f"{told.mean_s:.4g}"
    return f"mean {mean} s, p50 {told.quantile_s(0.5):.4g} s, p99 {told.quantile_s(0.99):.4g} s, n {told.count:.0f}"
