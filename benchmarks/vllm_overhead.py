"""What the plugin costs a real vLLM: rounds with and without it in turns, in one process, the same seeds.

    .cache/engines-venv/bin/python benchmarks/vllm_overhead.py [--rounds 40] [--sequences 8] [--tokens 48]

One engine in one process on one core, the model of the tests.  A round generates the same sequences;
before each the two wrapped methods are put in place or taken away, in turns.  Told are tokens per second
of wall time and of processor time (which other programs on the machine do not disturb, and which counts
the sender's thread too), and the ratios of neighbouring rounds: where the clients ask for
log-probabilities, as trainers do; where they ask for none and the declared default share is asked for by
us; where we ask for all.  Beside them stands the time inside our methods less the time inside vLLM's own
that they call, as a share of the watched rounds: it has little of the machine's noise, and sees nothing of
what log-probabilities cost the engine.  Then what the plugin's own code takes of a sequence of 1,024 tokens,
with vLLM's own objects.
"""

import argparse
import functools
import gc
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "PARITAS_ENABLED": "0",  # we attach by hand, to be able to take it away again
}

WRAPPED = ("add_request", "process_outputs")
LONG = 1024


def plugin_to(path, share):
    from paritas.clock import SystemClock
    from paritas.collectors.settings import hasher_of, settings_from
    from paritas.collectors.vllm.plugin import Plugin

    told = {
        "PARITAS_AGENT": f"unix:{path}",
        "PARITAS_RUN_ID": "bench",
        "PARITAS_SHARE": str(share),
        "PARITAS_TOKEN_SECRET": "a benchmark's secret",
    }
    settings = settings_from(told)
    return Plugin(settings, hasher_of(settings), clock=SystemClock())


def give_workers_their_method():
    """As the plugin's entry point does, without its hold on constructors."""
    from vllm.v1.worker.worker_base import WorkerBase

    from paritas.collectors.vllm.weights import METHOD, answer_of

    setattr(WorkerBase, METHOD, answer_of)


def switched(processor, ours):
    """Put the wrapped methods in place, or the class's own."""
    for name in WRAPPED:
        if ours:
            setattr(processor, name, ours[name])
        else:
            vars(processor).pop(name, None)


def one_round(llm, asked):
    """Generate once; return tokens per second of wall time and of processor time."""
    gc.collect()
    started, used = time.perf_counter(), time.process_time()
    outputs = llm.generate(*asked, use_tqdm=False)
    taken_s, used_s = time.perf_counter() - started, time.process_time() - used
    tokens = sum(len(one.outputs[0].token_ids) for one in outputs)
    return tokens / taken_s, tokens / used_s


def turns(llm, asked, ours, rounds):
    """Rates of the rounds with and without, shape (2, rounds, 2); which one is first alternates."""
    processor, rates = llm.llm_engine.output_processor, {True: [], False: []}
    for number in range(rounds):
        for watched in (number % 2 == 0, number % 2 == 1):
            switched(processor, ours if watched else {})
            rates[watched].append(one_round(llm, asked))
    switched(processor, {})
    return rates


def spread(values):
    """Median, and the standard error of it by the interquartile range (Tukey 1977: 1.253 sd/sqrt(n))."""
    low, middle, high = statistics.quantiles(values, n=4)
    return middle, 1.253 * (high - low) / 1.349 / len(values) ** 0.5


def steps_of(tokens):
    """What vLLM puts out for each of some sampled tokens, in steps of one token."""
    import numpy as np
    from vllm.v1.engine import EngineCoreOutput
    from vllm.v1.outputs import LogprobsLists

    logprob, rank = np.full((1, 1), -0.5, np.float32), np.ones(1, int)
    return [
        EngineCoreOutput("r", [int(token)], LogprobsLists(np.array([[token]], np.int32), logprob, rank))
        for token in tokens
    ]


def of_one_sequence():
    """Microseconds of one sequence of 1,024 tokens: reading its steps, its trace, and handing it over."""
    import numpy as np
    from emitter_scenes import Agent, emitter_to, socket_path

    from paritas.collectors.vllm.asking import Declared
    from paritas.collectors.vllm.note import Source
    from paritas.records import KernelIdentity, Role
    from paritas.tokens import TokenHasher

    source = Source(Declared(), KernelIdentity(Role.INFERENCE), TokenHasher(b"k" * 16))
    steps = steps_of(np.random.default_rng(0).integers(0, 49_152, LONG))
    with socket_path() as path, Agent(path):
        emitter = emitter_to(path)
        rounds = [stages_s(steps, source, emitter) for _ in range(200)]
        emitter.close(timeout_s=10.0)
    return [statistics.median(stage) * 1e6 for stage in zip(*rounds, strict=True)]


def stages_s(steps, source, emitter):
    """Seconds of reading the steps of one sequence, of its trace, and of handing it over."""
    from paritas.collectors.openai.naming import Names
    from paritas.collectors.vllm.asking import Asked, Identity
    from paritas.collectors.vllm.note import Note
    from paritas.collectors.vllm.traces import Ended, trace_of

    note = Note(Identity(Names(), "s", ""), Asked(inject=0), event_ns=1)
    start = time.perf_counter()
    for step in steps:
        note.take(step, 1.0)
    taken = time.perf_counter()
    trace, _ = trace_of(note, Ended(len(steps)), source)
    made = time.perf_counter()
    emitter.emit(trace)
    return taken - start, made - taken, time.perf_counter() - made


def asked_of(told, *, logprobs):
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": [1, 2 + n, 30 + n, 400 + n]} for n in range(told.sequences)]
    common = {"temperature": 1.0, "max_tokens": told.tokens, "ignore_eos": True, "logprobs": logprobs}
    return prompts, [SamplingParams(**common, seed=n) for n in range(told.sequences)]


class Stopwatch:
    """Seconds inside calls of functions."""

    def __init__(self):
        self.total_s = 0.0

    def around(self, function):
        @functools.wraps(function)
        def timed(*args, **kwargs):
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.total_s += time.perf_counter() - started

        return timed


def compare(llm, asked, share, rounds):
    """Attach, take turns, detach; return the rates, our seconds and what the plugin counted."""
    from emitter_scenes import Agent, socket_path

    processor, theirs, all_of_it = llm.llm_engine.output_processor, Stopwatch(), Stopwatch()
    with socket_path() as path, Agent(path):
        plugin = plugin_to(path, share)
        for name in WRAPPED:
            setattr(processor, name, theirs.around(getattr(processor, name)))
        plugin.attach(llm.llm_engine)
        ours = {name: all_of_it.around(vars(processor)[name]) for name in WRAPPED}
        one_round(llm, asked)
        theirs.total_s = all_of_it.total_s = 0.0
        rates = turns(llm, asked, ours, rounds)
        reading, sent = plugin.read()
        plugin.close(timeout_s=10.0)
    return rates, all_of_it.total_s - theirs.total_s, reading, sent


def tell(name, tokens, rates, ours_s, reading, sent):
    print(f"{name}: {reading.begun} sequences observed, {sent.delivered + sent.queued} traces, ", end="")
    print(f"faults {dict(reading.faults) or 'none'}")
    watched_s = sum(tokens / one[0] for one in rates[True])
    print(f"  inside our methods: {ours_s / watched_s:.4%} of the watched rounds")
    for column, what in enumerate(("wall time", "processor time")):
        watched, plain = ([one[column] for one in rates[is_watched]] for is_watched in (True, False))
        middle, error = spread([on / off for on, off in zip(watched, plain, strict=True)])
        print(
            f"  tokens per second of {what}: {statistics.median(watched):.1f} with, "
            f"{statistics.median(plain):.1f} without, ratio {middle:.4f} ± {error:.4f}"
        )


CASES = (  # what is told, what the clients ask for, the share we ask for of those who do not
    ("clients ask for log-probabilities", 0, 0.05),
    ("clients ask for none, share 0.05", None, 0.05),
    ("clients ask for none, share 1", None, 1.0),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48)
    told = parser.parse_args()
    from engines.real_model import model_dir
    from vllm import LLM

    give_workers_their_method()
    llm = LLM(model=str(model_dir()), dtype="bfloat16", max_model_len=2048, enforce_eager=True)
    print(f"{told.sequences} sequences of {told.tokens} tokens, {told.rounds} pairs of rounds a case")
    for name, logprobs, share in CASES:
        asked = asked_of(told, logprobs=logprobs)
        tell(name, told.sequences * told.tokens, *compare(llm, asked, share, told.rounds))
    take_us, make_us, hand_us = of_one_sequence()
    print(
        f"of a sequence of {LONG} tokens: {take_us:.0f} us over its {LONG} steps "
        f"({take_us / LONG:.2f} us a step), {make_us:.0f} us its trace, {hand_us:.1f} us Emitter.emit"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
