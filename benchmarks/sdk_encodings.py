"""Tokens a second of one core: our spans beside what opentelemetry-python's SDK offers without packing.

- *span a token*: a parent span a sequence and a child span a token with its log-probability, as
  tracing every decode step would give;
- *array attribute*: one span a sequence whose log-probabilities, tokens and statuses are three arrays.

Each peer makes its spans with the SDK and encodes them with OpenTelemetry's own encoder into the
request an exporter would send.  Ours is `paritas.wire.encode` of the same sequences; the columns go
through all three.  CPU time of this process, best of `ROUNDS`.

Run: python benchmarks/sdk_encodings.py
"""

import time

import numpy as np
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from wire_speed import RESOURCE, traces

from paritas.wire import encode

LENGTH = 1024  # tokens a sequence
SEQUENCES = 8
ROUNDS = 3
SEED = 0


class Spans(InMemorySpanExporter):
    """Keeps finished spans and gives them away once."""

    def taken(self):
        spans = self.get_finished_spans()
        self.clear()
        return spans

    def export(self, spans):
        super().export(spans)
        return SpanExportResult.SUCCESS


def tracer_and_spans():
    spans = Spans()
    provider = TracerProvider(span_limits=SpanLimits(max_attributes=64), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider.get_tracer("bench"), spans


def span_a_token(tracer, spans, batch):
    """Return the encoded requests, one a sequence."""
    return [_span_a_token(tracer, spans, trace) for trace in batch]


def _span_a_token(tracer, spans, trace):
    with tracer.start_as_current_span("sequence"):
        rows = zip(trace.logprob.tolist(), _ids(trace), trace.status.tolist(), strict=True)
        for logprob, token, status in rows:
            with tracer.start_as_current_span("token") as span:
                span.set_attributes({"logprob": logprob, "token": token, "status": status})
    return encode_spans(spans.taken()).SerializeToString()


def array_attribute(tracer, spans, batch):
    """Return the encoded requests, one a sequence."""
    return [_array_attribute(tracer, spans, trace) for trace in batch]


def _array_attribute(tracer, spans, trace):
    with tracer.start_as_current_span("sequence") as span:
        columns = {"logprob": trace.logprob.tolist(), "token": _ids(trace), "status": trace.status.tolist()}
        span.set_attributes(columns)
    return encode_spans(spans.taken()).SerializeToString()


def _ids(trace):
    """Token identities as the signed 64-bit integers an attribute can hold."""
    return trace.token.astype(np.int64).tolist()


def rate(work):
    """Return tokens per second of CPU time, best of `ROUNDS`, and bytes a token."""
    spent_s, values = [], []
    for _ in range(ROUNDS):
        start_s = time.process_time()
        values = work()
        spent_s.append(time.process_time() - start_s)
    tokens = LENGTH * SEQUENCES
    return tokens / max(min(spent_s), 1e-9), sum(map(len, values)) / tokens


def measure(seed=SEED):
    """Return {encoding: (tokens per CPU second, bytes a token)}."""
    batch = traces(np.random.default_rng(seed), LENGTH)[:SEQUENCES]
    tracer, spans = tracer_and_spans()
    return {
        "packed": rate(lambda: [r.value for r in encode(batch, resource=RESOURCE)]),
        "array attribute": rate(lambda: array_attribute(tracer, spans, batch)),
        "span a token": rate(lambda: span_a_token(tracer, spans, batch)),
    }


def lines(rows):
    """Yield what was measured, then one line for each ratio."""
    for name, (tokens_per_s, size) in rows.items():
        yield f"{name:>16}: {tokens_per_s / 1e6:8.3f} M tokens/s a core, {size:6.1f} bytes a token"
    for name, (tokens_per_s, _) in rows.items():
        if name != "packed":
            yield f"packed x{rows['packed'][0] / tokens_per_s:.0f} {name}"


def main():
    print(f"encoding, seed {SEED}, best of {ROUNDS} rounds:")
    print(*lines(measure()), sep="\n")


if __name__ == "__main__":
    main()
