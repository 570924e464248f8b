"""Random traces, every field of them, for the tests of the wire format and of the event logs."""

import numpy as np
from hypothesis import strategies as st

from paritas.records import (
    KernelIdentity,
    LogprobSemantics,
    Role,
    Sampling,
    Timings,
    TokenStatus,
    TokenTrace,
    TopK,
)
from paritas.wire import WireRecord

# Every bit pattern of a float32, so NaN payloads, infinities, -0.0, subnormals and -9999 are drawn.
BITS32 = st.integers(0, 2**32 - 1) | st.sampled_from(
    [int(np.float32(v).view(np.uint32)) for v in (-9999, "nan", 0)]
)
BITS64 = st.integers(0, 2**64 - 1)
TEXT = st.text(max_size=12)
LABELS = st.dictionaries(TEXT, TEXT, max_size=3)
NUMBER = st.none() | st.floats(allow_nan=False)
SMALL = st.none() | st.integers(-(2**63), 2**63 - 1)
FLAG = st.none() | st.booleans()

KERNELS = st.builds(
    KernelIdentity,
    st.sampled_from(Role),
    **dict.fromkeys(
        ("engine", "engine_version", "dtype", "quantization", "kv_cache_dtype", "attention_backend"), TEXT
    ),
    **dict.fromkeys(("lm_head_dtype", "speculative", "gpu"), TEXT),
    **dict.fromkeys(("tp", "pp", "ep"), SMALL),
    **dict.fromkeys(("batch_invariant", "cuda_graphs", "prefix_caching", "chunked_prefill"), FLAG),
    extra=LABELS,
)

SAMPLINGS = st.builds(
    Sampling,
    temperature=NUMBER,
    top_p=NUMBER,
    top_k=st.none() | st.integers(-1, 2**31),
    min_p=NUMBER,
    processors=TEXT,
    semantics=st.sampled_from(LogprobSemantics),
)

TIMINGS = st.builds(Timings, queue_s=NUMBER, ttft_s=NUMBER, prefill_s=NUMBER, decode_s=NUMBER)


def _column(draw, elements, dtype, shape):
    size = int(np.prod(shape))
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    return (
        np.array(draw(st.lists(elements, min_size=size, max_size=size)), unsigned).view(dtype).reshape(shape)
    )


@st.composite
def traces(draw, max_tokens=8):
    """A trace whose columns hold any bits at all."""
    n = draw(st.integers(0, max_tokens))
    k = draw(st.none() | st.integers(0, 3))
    return TokenTrace(
        run_id=draw(TEXT),
        sequence_id=draw(TEXT),
        kernel=draw(KERNELS),
        logprob=_column(draw, BITS32, np.float32, n),
        token=_column(draw, BITS64, np.uint64, n),
        status=_column(draw, st.integers(0, len(TokenStatus) - 1), np.uint8, n),
        group_id=draw(TEXT),
        weights_version=draw(TEXT),
        weights_digest=draw(TEXT),
        sampling=draw(SAMPLINGS),
        attributes=draw(LABELS),
        start=draw(st.integers(0, 2**31)),
        event_ns=draw(st.integers(0, 2**62)),
        top=None
        if k is None
        else TopK(_column(draw, BITS64, np.uint64, (n, k)), _column(draw, BITS32, np.float32, (n, k))),
        timings=draw(TIMINGS),
        itl_s=draw(st.none()) if draw(st.booleans()) else _column(draw, BITS32, np.float32, n),
        final=draw(st.booleans()),
        rank=draw(st.none()) if draw(st.booleans()) else _column(draw, BITS32, np.uint32, n),
    )


WIRE_RECORDS = st.builds(
    WireRecord,
    key=st.binary(max_size=40),
    value=st.binary(max_size=200),
    headers=st.lists(st.tuples(TEXT, st.binary(max_size=10)), max_size=4).map(tuple),
)


def plain_trace(n=4, **changes):
    """A small, healthy trace; `changes` replace its fields."""
    fields = {
        "run_id": "run-1",
        "sequence_id": "seq-1",
        "kernel": KernelIdentity(Role.INFERENCE, engine="vllm", dtype="bfloat16"),
        "logprob": -np.arange(n, dtype=np.float32) / 8,
        "token": np.arange(n, dtype=np.uint64) + 1000,
        "status": np.zeros(n, np.uint8),
        "event_ns": 1_700_000_000_000_000_000,
    }
    return TokenTrace(**{**fields, **changes})


def full_trace():
    """A trace with every field reported and one token of every status."""
    n = len(TokenStatus)
    return plain_trace(
        n,
        kernel=KernelIdentity(
            Role.INFERENCE, "vllm", "0.32", "bfloat16", "fp8", "fp8_e4m3", "flash", "float32",
            2, 1, 1, batch_invariant=True, cuda_graphs=False, prefix_caching=True, chunked_prefill=False,
            speculative="ngram", gpu="H100", extra={"node": "n1"},
        ),
        logprob=np.array([-0.5, -1, -2, np.nan, -9999, np.inf, 0.25], np.float32),
        status=np.arange(n, dtype=np.uint8),
        group_id="prompt-1",
        weights_version="12",
        weights_digest="ab",
        sampling=Sampling(0.7, 0.9, 40, 0.05, "cd", LogprobSemantics.PROCESSED),
        attributes={"replica": "r1"},
        start=3,
        top=TopK(np.arange(2 * n, dtype=np.uint64).reshape(n, 2), -np.ones((n, 2), np.float32)),
        timings=Timings(0.1, 0.3, 0.15, 2.0),
        itl_s=np.full(n, 0.02, np.float32),
        rank=np.arange(n, dtype=np.uint32),
    )  # fmt: skip


def facts(trace):
    """Everything a trace says, with columns as exact bits: equal facts, equal traces."""
    columns = {
        "logprob": np.uint32,
        "token": np.uint64,
        "status": np.uint8,
        "itl_s": np.uint32,
        "rank": np.uint32,
    }
    told = {name: getattr(trace, name) for name in trace.__slots__ if name != "top"}
    bits = {
        name: None if told[name] is None else (told[name].dtype.str, told[name].view(kind).tolist())
        for name, kind in columns.items()
    }
    top = trace.top and (
        trace.top.token.shape,
        trace.top.token.tolist(),
        trace.top.logprob.view(np.uint32).tolist(),
    )
    return {**told, **bits, "top": top, "kernel": trace.kernel, "digest": trace.kernel.digest}
