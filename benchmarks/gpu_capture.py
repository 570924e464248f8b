"""What the capture costs on a GPU, and that it is right and never waits.

Plain PyTorch and Triton suffice; nothing is downloaded.  In this order: equality with float64; the time of
one pass over (8, 1024, 151,936) logits in bfloat16 beside a plain read of them, the path without Triton, and
``log_softmax + gather``; tokens/s of a decoding loop with capture off and on in turns; and what the profiler
saw of synchronisation inside the capture.  Without a GPU it says so and ends.

Run: PYTHONPATH=src python benchmarks/gpu_capture.py [--out FILE.json]
"""

import argparse
import importlib.util
import json
import statistics
import time

ROWS, TOKENS, VOCABULARY = 8, 1024, 151_936
BATCH, HIDDEN, LAYERS, STEPS, TURNS = 64, 4096, 8, 200, 7
WAITS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy")


class Kept:
    """Stands in for the emitter, whose cost benchmarks/emitter_speed.py measures: counts and forgets."""

    exit_s = 0.1

    def __init__(self):
        self.traces = 0

    def emit_many(self, traces):
        self.traces += len(traces)

    def flush(self, *, timeout_s):  # noqa: ARG002 -- as of Emitter
        return True

    def close(self, *, timeout_s):
        """Nothing to close."""


def why_not():
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    import torch

    return None if torch.cuda.is_available() else "PyTorch sees no CUDA device"


def milliseconds(work, rounds=20):
    """Median time on the device."""
    import torch

    spent = []
    for number in range(rounds + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        if number >= 3:
            spent.append(begin.elapsed_time(end))
    return statistics.median(spent)


def equality(logits, tokens):
    """Largest difference to float64, over a part that float64 fits into memory."""
    import torch

    from paritas.collectors.torch import score_rows

    part, few = logits[:, :64], tokens[:, :64]
    told = score_rows(part, few, with_rank=True)
    exact = torch.log_softmax(part.double(), -1).gather(-1, few[..., None])[..., 0]
    rank = (part >= part.gather(-1, few[..., None])).sum(-1)
    assert torch.equal(told.rank.long(), rank)
    difference = float((told.logprob.double() - exact).abs().max())
    assert difference < 2e-5, difference
    return {"largest_difference_nats": difference, "ranks_equal": True}


def passes(logits, tokens):
    """Times of one pass, ms, and what share of the memory's speed a plain read reaches."""
    import torch

    from paritas.collectors.torch import score_rows
    from paritas.collectors.torch.rows import _score_in_pieces

    def full():
        return torch.log_softmax(logits.float(), -1).gather(-1, tokens[..., None])

    read = milliseconds(lambda: logits.amax(-1))
    told = {
        "plain_read_ms": read,
        "capture_ms": milliseconds(lambda: score_rows(logits, tokens)),
        "capture_with_rank_ms": milliseconds(lambda: score_rows(logits, tokens, with_rank=True)),
        "pieces_without_triton_ms": milliseconds(
            lambda: _score_in_pieces(logits, tokens, temperature=1.0, with_rank=False), rounds=3
        ),
        "log_softmax_gather_ms": milliseconds(full, rounds=5),
        "read_gb_s": logits.nbytes / read / 1e6,
    }
    torch.cuda.empty_cache()
    return told


def decoding(collector):
    """Tokens/s of a loop of matrix products, head and sampling, with capture off and on in turns."""
    import torch

    from paritas.collectors.torch import Names

    half = {"device": "cuda", "dtype": torch.bfloat16}
    layers = [torch.randn(HIDDEN, HIDDEN, **half) / HIDDEN**0.5 for _ in range(LAYERS)]
    head = torch.randn(HIDDEN, VOCABULARY, **half) / HIDDEN**0.5
    names = Names([str(row) for row in range(BATCH)])

    def run(capture):
        state = torch.randn(BATCH, HIDDEN, **half)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(STEPS):
            for layer in layers:
                state = torch.tanh(state @ layer)
            logits = (state @ head)[:, None]
            token = logits.argmax(-1)
            if capture:
                collector.step(weights_version="0").observe(token, logits=logits, names=names)
        torch.cuda.synchronize()
        return BATCH * STEPS / (time.perf_counter() - began)

    run(capture=True)
    speeds = {False: [], True: []}
    for _ in range(TURNS):
        for capture in (False, True):
            speeds[capture].append(run(capture))
            collector.flush()
    off, on = statistics.median(speeds[False]), statistics.median(speeds[True])
    return {"tokens_s_off": off, "tokens_s_on": on, "cost_percent": 100 * (1 - on / off)}


def waits(collector, logits, tokens):
    """Calls of the CUDA runtime that wait, inside the capture, as the profiler saw them."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    from paritas.collectors.torch import Names

    names = Names([str(row) for row in range(ROWS)])
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            with record_function("paritas.observe"), collector.step() as step:
                step.observe(tokens, logits=logits, names=names)
    spans = [e.time_range for e in seen.events() if e.name == "paritas.observe"]
    inside = [
        e.name
        for e in seen.events()
        if e.name in WAITS and any(s.start <= e.time_range.start <= s.end for s in spans)
    ]
    assert len(spans) >= 5
    torch.cuda.synchronize()
    collector.flush()
    return {"waits_inside_the_capture": inside}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="also write the figures to this file, as JSON")
    asked = parser.parse_args()
    if reason := why_not():
        print(f"gpu_capture: {reason}: nothing measured")
        return
    import torch

    from paritas.clock import SystemClock
    from paritas.collectors.torch import Stamp, TorchCollector
    from paritas.tokens import TokenHasher

    logits = torch.randn(ROWS, TOKENS, VOCABULARY, device="cuda", dtype=torch.bfloat16) * 4
    tokens = torch.randint(0, VOCABULARY, (ROWS, TOKENS), device="cuda")
    hasher = TokenHasher(b"0123456789abcdef")
    with TorchCollector(Kept(), clock=SystemClock(), hasher=hasher, stamp=Stamp("bench")) as collector:
        told = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton": importlib.util.find_spec("triton") is not None,
            **equality(logits, tokens),
            **passes(logits, tokens),
            **waits(collector, logits, tokens),
            **decoding(collector),
            "dropped": dict(collector.read().dropped),
        }
    text = json.dumps(told, indent=1)
    print(text)
    if asked.out:
        with open(asked.out, "w") as file:  # noqa: PTH123 -- one line
            file.write(text + "\n")


if __name__ == "__main__":
    main()
