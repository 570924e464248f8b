"""Tokens a second of one core from pairs to verdicts, and river's statistics token by token.

Ours: the batch, every per-sequence statistic of the dense-bf16 preset, its tests in three slices
and the diagnostic sums.  The peer: river's Mean, EWMean and Quantile, updated once a token, which
is how its statistics are meant to be used; it judges nothing.  CPU time, best of three.

Run: python benchmarks/evidence_speed.py [--seed 0] [--json]
"""

import argparse
import json
import time

import numpy as np
from river import stats

from paritas.contracts.load import load_named
from paritas.contracts.model import Stage
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.pairs import PairedTrace, PairOutcome, TopColumns
from paritas.records import KernelIdentity, PairReason, Role, Sampling, Timings, TokenStatus, trace_id_of

LENGTHS = (128, 512, 2048)  # tokens a sequence
TOKENS = 1_000_000
PEER_TOKENS = 200_000
ROUNDS = 3


def outcome(rng, number, length):
    """Return one paired sequence of a healthy bfloat16 pair, with top-k columns."""
    q = -rng.exponential(size=length)
    chance = rng.uniform(0.3, 1.0, length)
    top = TopColumns(
        chance,
        (rng.random(length) < chance).astype(float),
        rng.exponential(0.01, length),
        rng.exponential(0.1, length),
        np.zeros(length),
        rng.normal(0, 0.01, length),
        np.full(length, np.nan),
    )
    name, labels = f"s-{number}", {"slice": f"kind{number % 5}", "replica": f"r{number % 4}"}
    known = {
        "run_id": "run",
        "sequence_id": name,
        "group_id": "",
        "event_ns": number * 1000,
        "attributes": labels,
    }
    pair = PairedTrace(
        **known,
        trace_id=trace_id_of("run", name),
        weights_version="1",
        log_ratio=rng.normal(0, 0.03, length),
        logprob_q=q,
        position=np.arange(length),
        counts={TokenStatus.VALID: length},
        inference=KernelIdentity(Role.INFERENCE, engine="vllm", dtype="bfloat16"),
        train=KernelIdentity(Role.TRAIN, dtype="float32"),
        sampling=Sampling(1.0, 1.0),
        train_sampling=Sampling(),
        timings=Timings(),
        itl_mean_s=0.01,
        top=top,
    )
    return PairOutcome(PairReason.PAIRED, **known, pair=pair)


def judge(outcomes):
    """Judge everything afresh; return the CPU seconds it took."""
    evaluator = Evaluator(load_named("dense-bf16"), stage=Stage.FULL, recover=True)
    start = time.process_time()
    for _ in evaluator.observe(outcomes):
        pass  # a crossing costs what it costs
    return time.process_time() - start


def update_river(values):
    """Update river's statistics once a token; return the CPU seconds it took."""
    told = (stats.Mean(), stats.EWMean(fading_factor=0.01), stats.Quantile(0.99))
    start = time.process_time()
    for value in values:
        for statistic in told:
            statistic.update(value)
    return time.process_time() - start


def measure(seed, *, tokens=TOKENS, peer_tokens=PEER_TOKENS, lengths=LENGTHS):
    """Return tokens a second of ours at each length, and of the peer."""
    rng, lines = np.random.default_rng(seed), []
    for length in lengths:
        outcomes = [outcome(rng, i, length) for i in range(max(tokens // length, 1))]
        seconds = min(judge(outcomes) for _ in range(ROUNDS))
        done = len(outcomes) * length
        lines.append(
            {
                "tokens_per_sequence": length,
                "tokens_per_s": done / seconds,
                "us_per_sequence": 1e6 * seconds / len(outcomes),
            }
        )
    values = np.abs(rng.normal(0, 0.03, peer_tokens)).tolist()
    peer = peer_tokens / min(update_river(values) for _ in range(ROUNDS))
    return {"ours": lines, "river_tokens_per_s": peer}


def show(told):
    """Print the lines a person reads."""
    peer = told["river_tokens_per_s"]
    for line in told["ours"]:
        rate, cost = line["tokens_per_s"], line["us_per_sequence"]
        print(
            f"{line['tokens_per_sequence']:>6} tokens a sequence: {rate / 1e6:.2f} M tokens/s, "
            f"{cost:.0f} us a sequence, {rate / peer:.1f} times river"
        )
    print(f"river, Mean + EWMean + Quantile a token: {peer / 1e6:.2f} M tokens/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    arguments = parser.parse_args()
    told = measure(arguments.seed, tokens=arguments.tokens)
    print(json.dumps(told)) if arguments.json else show(told)


if __name__ == "__main__":
    main()
