"""Make docs/images/jaeger-trace.png: a recorded sequence in Jaeger's page, through the real topic and collector.

Run: PYTHONPATH=tests python -m system.jaeger_picture
It needs Java, Maven, Go, Node, git, chromium and chromedriver (Debian's chromium-driver).
"""

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from system.kafka_broker import KafkaBroker
from system.otel_parts import CACHE, OTEL, ROOT, collector, jaeger, wait_until
from system.page_picture import page
from system.recorded_records import SERVICES, filled_topic, recorded_traces, records_of
from system.test_backends import holds, settings

from paritas.clock import SystemClock

PICTURE = ROOT / "docs" / "images" / "jaeger-trace.png"
PAGE = CACHE / "jaeger-ui"
SIZE = (1000, 1460)  # both spans with their attributes
LIMIT_BYTES = 300 * 1024


def main():
    """Fill a topic, let the collector carry it into Jaeger, and photograph the first trace."""
    subprocess.run([OTEL / "build-page.sh"], check=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(KafkaBroker(folder / "kafka"))
        backend = stack.enter_context(
            jaeger(OTEL / "jaeger.yaml", folder / "jaeger", environment={"JAEGER_UI_ASSETS": str(PAGE)})
        )
        traces = list(recorded_traces("healthy", base_ns=SystemClock().now_ns()))
        topic = filled_topic(broker.bootstrap, "otlp_spans", records_of(traces))
        environment = settings(broker, topic, "picture", BACKEND_URL=backend.url("OTLP_HTTP_PORT"))
        stack.enter_context(collector(OTEL / "collector.yaml", folder / "log", environment=environment))
        wait_until(lambda: holds(backend, traces), "every trace in Jaeger", alive=backend)
        photograph(backend.url("QUERY_PORT", f"/trace/{traces[0].trace_id}"))


def photograph(url):
    """Open both spans and their attributes, and write the picture."""
    with page(SIZE) as shown:
        shown.open(url)
        shown.click(".span-name", count=len(SERVICES))
        shown.wait_for(".detail-info-wrapper", count=len(SERVICES))
        shown.click("div:first-child > .AccordianKeyValues--header", count=len(SERVICES))
        shown.wait_for(".KeyValueTable", count=len(SERVICES))
        content = shown.picture()
    assert len(content) <= LIMIT_BYTES, len(content)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_bytes(content)
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}: {len(content)} bytes\n")


if __name__ == "__main__":
    main()
