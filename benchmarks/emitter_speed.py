"""What handing over one sequence costs the caller's thread, beside OpenTelemetry's batch processor.

- ours: `Emitter.emit` of a finished trace (columns of 1,024 tokens), its thread delivering to a real
  receiver meanwhile;
- peer: `BatchSpanProcessor.on_end` of a finished span whose log-probabilities are one array
  attribute; making that span (attribute checked and frozen) is shown apart, since the SDK has no
  other way to hand an array over.

Both in one run, in turns, best of several rounds.  Run: python benchmarks/emitter_speed.py
"""

import gc
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from paritas.agent.receiver import Receiver
from paritas.clock import SystemClock
from paritas.collectors.emitter import Emitter
from paritas.collectors.settings import EmitterLimits
from paritas.otlp_http import Target
from paritas.records import KernelIdentity, Role, TokenTrace

TOKENS, SEQUENCES, ROUNDS = 1024, 500, 7
KERNEL = KernelIdentity(Role.INFERENCE, engine="vllm")


class Nowhere(SpanExporter):
    """Takes spans and does nothing: the peer's thread costs as little as can be."""

    def export(self, spans):  # noqa: ARG002 -- the SDK passes it by name
        return SpanExportResult.SUCCESS


def traces():
    logprob = np.full(TOKENS, -0.5, np.float32)
    token, status = np.arange(TOKENS, dtype=np.uint64), np.zeros(TOKENS, np.uint8)
    return [TokenTrace("run", f"s{n}", KERNEL, logprob, token, status) for n in range(SEQUENCES)]


def microseconds(work, items):
    gc.disable()
    started = time.perf_counter_ns()
    for item in items:
        work(item)
    spent = time.perf_counter_ns() - started
    gc.enable()
    return spent / len(items) / 1000


def spans(tracer):
    values = [-0.5] * TOKENS
    made = []

    def make(_):
        span = tracer.start_span("kernel.score")
        span.set_attribute("logprob", values)
        made.append(span)

    return made, make


def main():
    rounds = {"emit": [], "emit while sending": [], "on_end": [], "make span": []}
    with TemporaryDirectory() as folder, Receiver(Path(folder) / "s", lambda _: None) as _:
        limits = EmitterLimits(queue_traces=10 * SEQUENCES, queue_bytes=1 << 30)
        tracer = TracerProvider(shutdown_on_exit=False).get_tracer("bench")
        with Emitter(Target(Path(folder) / "s"), clock=SystemClock(), limits=limits) as emitter:
            for _ in range(ROUNDS):
                batch = traces()
                rounds["emit"].append(microseconds(emitter.emit, batch))
                emitter.emit_many(traces())  # so that its thread encodes and sends all the while
                rounds["emit while sending"].append(microseconds(emitter.emit, traces()))
                assert emitter.flush(timeout_s=60.0)
                made, make = spans(tracer)
                rounds["make span"].append(microseconds(make, range(SEQUENCES)))
                processor = BatchSpanProcessor(Nowhere(), max_queue_size=10 * SEQUENCES)
                rounds["on_end"].append(microseconds(processor.on_end, made))
                processor.shutdown()
            told = emitter.read()
    best = {name: min(values) for name, values in rounds.items()}
    print(f"{TOKENS} tokens a sequence, {SEQUENCES} sequences, best of {ROUNDS} rounds")
    print(f"  Emitter.emit                            {best['emit']:8.2f} µs a sequence")
    print(f"  Emitter.emit, its thread sending        {best['emit while sending']:8.2f} µs a sequence")
    print(f"  BatchSpanProcessor.on_end               {best['on_end']:8.2f} µs a sequence")
    print(f"  span with the array attribute (SDK)     {best['make span']:8.2f} µs a sequence")
    peer = best["on_end"] + best["make span"]
    print(
        f"  peer / ours: {best['on_end'] / best['emit']:.2f} (on_end alone), {peer / best['emit']:.1f} (with its span)"
    )
    print(
        f"  account: {told.accepted} accepted = {told.delivered} delivered + {sum(told.dropped.values())} dropped"
    )


if __name__ == "__main__":
    main()
