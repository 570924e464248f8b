"""Recorded pairs as the bodies of requests: a healthy kernel and a faulty one, each a replica of its own.

Those that come with the package; with ``PARITAS_SHARED_DATA`` the full recordings.
"""

import os
from contextlib import ExitStack
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path

from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.records import Role
from paritas.tokens import TokenHasher
from paritas.wire import encode

RUNS = ("healthy", "faulty")
SHIPPED = {"healthy": ("healthy.serve", "healthy.train"), "faulty": ("healthy.serve", "stale.train")}
SHARED = {"healthy": ("bf16.serve", "bf16.train"), "faulty": ("bf16.serve", "bf16_weights_plus8.train")}
SERVICES = {Role.INFERENCE: "vllm", Role.TRAIN: "trainer"}
STEP_NS = 10_000_000
COPY_NS = 10**9


def recorded_pair(run, copy, *, base_ns):
    """Bodies of one pair of recordings, the kernels in turn, under a run id of its own."""
    options = ReadOptions(
        TokenHasher(bytes(32)), run_id=f"{run}-{copy}", base_ns=base_ns + copy * COPY_NS, step_ns=STEP_NS
    )
    with ExitStack() as stack:
        sides = [list(read_dump(path, options)) for path in _paths(run, stack)]
    return [_body(trace, run) for pair in zip(*sides, strict=True) for trace in pair]


def _paths(run, stack):
    if told := os.environ.get("PARITAS_SHARED_DATA"):
        return [Path(told) / "smollm2" / f"{name}.jsonl.gz" for name in SHARED[run]]
    data = files("paritas") / "data"
    return [stack.enter_context(as_file(data / f"{name}.jsonl.gz")) for name in SHIPPED[run]]


def _body(trace, run):
    labelled = replace(trace, attributes={**trace.attributes, "replica": run})
    (record,) = encode([labelled], resource={"service.name": SERVICES[trace.kernel.role]})
    return record.value
