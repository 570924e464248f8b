"""What the plugin costs a real vLLM: rounds with and without it in turns, in one process, the same seeds.

    .cache/engines-venv/bin/python benchmarks/vllm_overhead.py [--rounds 10] [--sequences 16] [--tokens 128]

One engine, the model of the tests.  A round generates the same sequences; before each the two wrapped
methods are put in place or taken away.  Told are tokens a second with the plugin, without it, and their
ratio by neighbouring rounds, for the declared default share and for every sequence; then what the
plugin's own code takes of a sequence of 1,024 tokens, with vLLM's own objects.
"""

import argparse
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


def switched(processor, ours):
    """Put the wrapped methods in place, or the class's own."""
    for name in WRAPPED:
        if ours:
            setattr(processor, name, ours[name])
        else:
            vars(processor).pop(name, None)


def one_round(llm, asked):
    gc.collect()
    started = time.perf_counter()
    outputs = llm.generate(*asked, use_tqdm=False)
    taken_s = time.perf_counter() - started
    return sum(len(one.outputs[0].token_ids) for one in outputs) / taken_s


def turns(llm, asked, ours, rounds):
    """Return tokens/s of the rounds with and without, and the ratio of each pair; who is first alternates."""
    processor, rates = llm.llm_engine.output_processor, {True: [], False: []}
    for number in range(rounds):
        for watched in (number % 2 == 0, number % 2 == 1):
            switched(processor, ours if watched else {})
            rates[watched].append(one_round(llm, asked))
    switched(processor, {})
    ratios = [on / off for on, off in zip(rates[True], rates[False], strict=True)]
    return rates, ratios


def spread(values):
    """Median, and the standard error of it by the interquartile range (Tukey 1977: 1.253 sd/sqrt(n))."""
    low, middle, high = statistics.quantiles(values, n=4)
    return middle, 1.253 * (high - low) / 1.349 / len(values) ** 0.5


def of_one_sequence():
    """Microseconds of one sequence of 1,024 tokens: reading its steps, its trace, and handing it over."""
    import numpy as np
    from emitter_scenes import Agent, emitter_to, socket_path
    from vllm.v1.engine import EngineCoreOutput
    from vllm.v1.outputs import LogprobsLists

    from paritas.collectors.openai.naming import Names
    from paritas.collectors.vllm.asking import Asked, Declared, Identity
    from paritas.collectors.vllm.note import Note, Source
    from paritas.collectors.vllm.traces import Ended, trace_of
    from paritas.records import KernelIdentity, Role
    from paritas.tokens import TokenHasher

    ids = np.random.default_rng(0).integers(0, 49_152, LONG)
    outputs = [
        EngineCoreOutput(
            "r",
            [int(token)],
            LogprobsLists(np.array([[token]], np.int32), np.full((1, 1), -0.5, np.float32), np.ones(1, int)),
        )
        for token in ids
    ]
    source = Source(Declared(), KernelIdentity(Role.INFERENCE), TokenHasher(b"k" * 16))
    takes, makes, hands = [], [], []
    with socket_path() as path, Agent(path):
        emitter = emitter_to(path)
        for _ in range(200):
            note = Note(Identity(Names(), "s", ""), Asked(inject=0), event_ns=1)
            start = time.perf_counter()
            for output in outputs:
                note.take(output, 1.0)
            taken = time.perf_counter()
            trace, _ = trace_of(note, Ended(LONG), source)
            made = time.perf_counter()
            emitter.emit(trace)
            handed = time.perf_counter()
            takes.append(taken - start)
            makes.append(made - taken)
            hands.append(handed - made)
        emitter.close(timeout_s=10.0)
    return [statistics.median(one) * 1e6 for one in (takes, makes, hands)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    told = parser.parse_args()
    from emitter_scenes import Agent, socket_path
    from engines.real_model import model_dir
    from vllm import LLM, SamplingParams

    llm = LLM(model=str(model_dir()), dtype="bfloat16", max_model_len=2048, enforce_eager=True)
    prompts = [{"prompt_token_ids": [1, 2 + n, 30 + n, 400 + n]} for n in range(told.sequences)]
    params = [
        SamplingParams(temperature=1.0, max_tokens=told.tokens, ignore_eos=True, seed=n)
        for n in range(told.sequences)
    ]
    asked = (prompts, params)
    one_round(llm, asked)
    print(f"{told.sequences} sequences of {told.tokens} tokens, {told.rounds} pairs of rounds")
    for share in (0.05, 1.0):
        with socket_path() as path, Agent(path):
            plugin = plugin_to(path, share)
            plugin.attach(llm.llm_engine)
            processor = llm.llm_engine.output_processor
            ours = {name: vars(processor)[name] for name in WRAPPED}
            one_round(llm, asked)
            rates, ratios = turns(llm, asked, ours, told.rounds)
            reading, sent = plugin.read()
            plugin.close(timeout_s=10.0)
        middle, error = spread(ratios)
        print(
            f"share {share}: {statistics.median(rates[True]):.1f} tokens/s with, "
            f"{statistics.median(rates[False]):.1f} without, ratio {middle:.4f} ± {error:.4f}; "
            f"{reading.begun} observed, {sent.delivered + sent.queued} traces, faults {dict(reading.faults) or 'none'}"
        )
    take_us, make_us, hand_us = of_one_sequence()
    print(
        f"of a sequence of {LONG} tokens: {take_us:.0f} us over its {LONG} steps "
        f"({take_us / LONG:.2f} us a step), {make_us:.0f} us its trace, {hand_us:.1f} us Emitter.emit"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
