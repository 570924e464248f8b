"""What showing a training batch costs the step on a CPU, beside what people write to get the same numbers.

- observe: `Step.observe` of finished log-probabilities, then hashing, statuses and `Emitter.emit`;
- the same from logits, whole path;
- peers: ``log_softmax(logits.float()) + gather`` over the whole matrix, and a plain read (maximum of each row).

Everything in turns in one run, best of several rounds; traces go to a real receiver.  On a GPU see
benchmarks/gpu_capture.py.  Run in the heavy environment: .cache/engines-venv/bin/python benchmarks/capture_speed.py
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from paritas.agent.receiver import Receiver
from paritas.clock import SystemClock
from paritas.collectors.emitter import Emitter
from paritas.collectors.settings import EmitterLimits
from paritas.collectors.torch import Names, Stamp, TorchCollector, score_rows
from paritas.otlp_http import Target
from paritas.tokens import TokenHasher

ROWS, TOKENS, VOCABULARY, ROUNDS = 32, 1024, 49152, 9
SCORED = 1  # sequences of logits: 200 MB each in float32


def microseconds(work, sequences):
    started = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - started) / sequences / 1000


def full(logits, tokens):
    return torch.log_softmax(logits.float(), -1).gather(-1, tokens[..., None])


def measure(collector, quiet, dtype, emitter):
    """Best of the rounds, in µs a sequence."""
    logits = (torch.randn(SCORED, TOKENS, VOCABULARY) * 3).to(dtype)
    tokens = torch.randint(0, VOCABULARY, (ROWS, TOKENS))
    few = tokens[:SCORED]
    logprobs, mask = -torch.rand(ROWS, TOKENS), torch.ones(ROWS, TOKENS, dtype=torch.bool)
    names = Names([str(row) for row in range(ROWS)])
    named = Names(names.sequence_ids[:SCORED])
    works = {
        "observe, nothing sent meanwhile": (
            lambda: quiet.step().observe(tokens, logprobs=logprobs, mask=mask, names=names),
            ROWS,
        ),
        "observe, emitter sending": (
            lambda: collector.step().observe(tokens, logprobs=logprobs, mask=mask, names=names),
            ROWS,
        ),
        "observe logits": (lambda: collector.step().observe(few, logits=logits, names=named), SCORED),
        "score_rows alone": (lambda: score_rows(logits, few), SCORED),
        "log_softmax + gather": (lambda: full(logits, few), SCORED),
        "plain read of the logits": (lambda: logits.amax(-1), SCORED),
    }
    rounds = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, (work, sequences) in works.items():
            rounds[name].append(microseconds(work, sequences))
            emitter.flush(timeout_s=60.0)
    return {name: min(values) for name, values in rounds.items()}


def main():
    limits = EmitterLimits(queue_traces=100_000, queue_bytes=1 << 30)
    with TemporaryDirectory() as folder, Receiver(Path(folder) / "s", lambda _: None):
        emitter = Emitter(Target(Path(folder) / "s"), clock=SystemClock(), limits=limits)
        hasher = TokenHasher(b"0123456789abcdef")
        made = {"clock": SystemClock(), "hasher": hasher, "stamp": Stamp("run")}
        # An emitter that refuses everything: the capture alone, no other thread of ours at work.
        deaf = Emitter(Target(Path(folder) / "s"), clock=SystemClock(), is_enabled=False)
        with TorchCollector(emitter, **made) as collector, TorchCollector(deaf, **made) as quiet:
            print(
                f"{TOKENS} tokens a sequence, vocabulary {VOCABULARY}, best of {ROUNDS}, CPU, "
                f"{torch.get_num_threads()} threads, torch {torch.__version__}"
            )
            for dtype in (torch.float32, torch.bfloat16):
                for name, best in measure(collector, quiet, dtype, emitter).items():
                    print(f"  {str(dtype).removeprefix('torch.'):9} {name:36} {best:10.1f} µs a sequence")
            told = collector.read()
    assert told.emitted == told.shown, told
    print(f"  {told.shown} sequences shown, {told.emitted} emitted, dropped {dict(told.dropped)}")


if __name__ == "__main__":
    main()
