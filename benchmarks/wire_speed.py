"""Tokens a second of one core over the wire, and the same tokens the plain OpenTelemetry way.

The peer is what the OpenTelemetry protocol offers without packing: one span a sequence whose
log-probabilities are an array attribute, one double a token.  It carries that one column only;
ours carries log-probability, token identity and status.  CPU time of this process, best of three.

Run: python benchmarks/wire_speed.py
"""

import time

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from paritas.records import KernelIdentity, LogprobSemantics, Role, Sampling, TokenTrace
from paritas.wire import decode, encode

LENGTHS = (256, 1024, 4096)  # tokens a sequence
SEQUENCES = 40
ROUNDS = 3
RESOURCE = {"service.name": "bench"}


def traces(rng, length):
    kernel = KernelIdentity(Role.INFERENCE, engine="vllm", engine_version="0.32", dtype="bfloat16")
    return [
        TokenTrace(
            run_id="run",
            sequence_id=f"sequence-{number}",
            kernel=kernel,
            logprob=-rng.exponential(size=length).astype(np.float32),
            token=rng.integers(0, 2**63, size=length, dtype=np.uint64),
            status=np.zeros(length, np.uint8),
            weights_version="1",
            sampling=Sampling(temperature=1.0, semantics=LogprobSemantics.PROCESSED),
        )
        for number in range(SEQUENCES)
    ]


def peer_encode(batch):
    return [_peer_value(trace) for trace in batch]


def _peer_value(trace):
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(name="score")
    span.trace_id = bytes.fromhex(trace.trace_id)
    values = span.attributes.add(key="logprobs").value.array_value.values
    for logprob in trace.logprob.tolist():
        values.add(double_value=logprob)
    return request.SerializeToString()


def peer_decode(values):
    return [_peer_column(value) for value in values]


def _peer_column(value):
    span = ExportTraceServiceRequest.FromString(value).resource_spans[0].scope_spans[0].spans[0]
    return np.array([entry.double_value for entry in span.attributes[0].value.array_value.values], np.float32)


def tokens_per_s(work, tokens):
    """Return tokens per second of CPU time, best of `ROUNDS`."""
    spent_s = []
    for _ in range(ROUNDS):
        start_s = time.process_time()
        work()
        spent_s.append(time.process_time() - start_s)
    return tokens / max(min(spent_s), 1e-9)


def measure(seed=0):
    """Return rates in tokens/s a core and sizes in bytes a token, by sequence length."""
    rng = np.random.default_rng(seed)
    return {f"{length} tokens": _measure(traces(rng, length), SEQUENCES * length) for length in LENGTHS}


def _measure(batch, tokens):
    ours = [record.value for record in encode(batch, resource=RESOURCE)]
    peer = peer_encode(batch)
    for value, column, trace in zip(ours, peer_decode(peer), batch, strict=True):
        np.testing.assert_array_equal(decode(value).traces[0].logprob, column)
        np.testing.assert_array_equal(column, trace.logprob)
    return {
        "encode_tokens_per_s": tokens_per_s(lambda: encode(batch, resource=RESOURCE), tokens),
        "decode_tokens_per_s": tokens_per_s(lambda: [decode(value) for value in ours], tokens),
        "peer_encode_tokens_per_s": tokens_per_s(lambda: peer_encode(batch), tokens),
        "peer_decode_tokens_per_s": tokens_per_s(lambda: peer_decode(peer), tokens),
        "bytes_per_token": sum(map(len, ours)) / tokens,
        "peer_bytes_per_token": sum(map(len, peer)) / tokens,
    }


def main():
    for name, row in measure().items():
        for work in ("encode", "decode"):
            ours, peer = row[f"{work}_tokens_per_s"], row[f"peer_{work}_tokens_per_s"]
            print(
                f"{name:>12} {work}: {ours / 1e6:7.1f} M tokens/s, peer {peer / 1e6:5.2f} M, x{ours / peer:.0f}"
            )
        print(
            f"{name:>12} size:   {row['bytes_per_token']:7.1f} bytes a token, peer {row['peer_bytes_per_token']:5.1f}"
        )


if __name__ == "__main__":
    main()
