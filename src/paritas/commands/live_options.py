"""Options of the commands that judge live: where their numbers go while they run."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paritas.clock import Clock

if TYPE_CHECKING:
    from paritas.commands.detecting import DetectionLoop

__all__ = ["NOWHERE", "MetricsPlaces", "add_metrics_options", "exposed", "places_of"]


@dataclass(frozen=True, slots=True)
class MetricsPlaces:
    """Where metrics go: `page` is ``HOST:PORT`` to serve on, `push` an OTLP/HTTP target; empty for none."""

    page: str = ""
    push: str = ""


NOWHERE = MetricsPlaces()


def add_metrics_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--metrics`` and ``--otlp-metrics``."""
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        default="",
        help="serve /metrics for Prometheus: sequences, tokens, and what other frameworks would print",
    )
    parser.add_argument(
        "--otlp-metrics",
        metavar="TARGET",
        default="",
        help="push the same as OTLP metrics: http://HOST:4318 or unix:/path/of/the.sock",
    )


def places_of(arguments: argparse.Namespace) -> MetricsPlaces:
    """Return what the options say."""
    return MetricsPlaces(arguments.metrics, arguments.otlp_metrics)


@contextmanager
def exposed(loop: "DetectionLoop", places: MetricsPlaces, *, contract: str, clock: Clock) -> Iterator[str]:
    """Expose a loop's numbers while inside; yields the address of the page, empty for none.

    Raises
    ------
    UsageError
        The address cannot be bound, or the target is none.
    """
    if not places.page and not places.push:
        yield ""
        return
    from paritas.commands.live_metrics import MetricsDesk, MetricsPusher, metrics_page
    from paritas.otlp_http import target_of

    desk = MetricsDesk(contract, clock=clock)
    loop.on_step = desk.note
    with ExitStack() as stack:
        if places.push:
            target = target_of(places.push, name="--otlp-metrics")
            stack.enter_context(MetricsPusher(target, desk, clock=clock))
        yield stack.enter_context(metrics_page(places.page, desk)).address if places.page else ""
