"""Options of the commands that judge live: where their numbers go while they run."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paritas.clock import Clock
from paritas.commands.listen_option import listen_address

if TYPE_CHECKING:
    from paritas.commands.detecting import DetectionLoop
    from paritas.commands.live_metrics import MetricsDesk

__all__ = ["NOWHERE", "Exposed", "MetricsPlaces", "add_metrics_options", "exposed", "places_of"]


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
        type=listen_address,
        metavar="HOST:PORT",
        default="",
        help="serve /healthz, /readyz and /metrics: lag, verdicts, and what other frameworks would print",
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


@dataclass(frozen=True, slots=True)
class Exposed:
    """Where a loop's numbers go; `page` is the address that serves them, empty for none."""

    desk: "MetricsDesk"
    is_wanted: bool
    page: str = ""

    def follow(self, loop: "DetectionLoop") -> None:
        """Read this loop from its next step on, if anybody wants its numbers."""
        if self.is_wanted:
            self.desk.follow(loop)


@contextmanager
def exposed(places: MetricsPlaces, *, contract: str, clock: Clock) -> Iterator[Exposed]:
    """Serve and push while inside, from before there is a loop: `Exposed.follow` takes it.

    Raises
    ------
    UsageError
        The address cannot be bound, or the target is none.
    """
    from paritas.commands.live_metrics import MetricsDesk, MetricsPusher, metrics_page
    from paritas.otlp_http import target_of

    desk = MetricsDesk(contract, clock=clock)
    with ExitStack() as stack:
        if places.push:
            target = target_of(places.push, name="--otlp-metrics")
            stack.enter_context(MetricsPusher(target, desk, clock=clock))
        page = stack.enter_context(metrics_page(places.page, desk)).address if places.page else ""
        yield Exposed(desk, bool(places.page or places.push), page)
