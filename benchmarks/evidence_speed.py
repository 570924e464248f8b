"""Tokens a second of one core from pairs to verdicts, beside the same statistics in river, token by token.

Ours: every statistic of the catalogue that needs no label of the task, 27 of them, each with its
sequential test in ten slices (all traffic, five kinds of prompt, four replicas; a sequence lies in
three of them), and everything the diagnosis remembers.  "In ten" puts every sequence into ten
slices.  "Tests" leaves out the diagnostic sums, which are timed in the same run.  "Lists compared"
adds the comparison of two top-20 lists a token, which pairing does.

The peer: river's Mean of the same per-token values in the same three slices, once a token, which is
how its statistics are meant to be used; and a PageHinkley beside each Mean, since ours judges.  Its
values are computed before the clock starts, and the statistics of whole sequences are left out.

CPU time, best of three after a first pass, which makes the rows; the peer on a sample, told by the token.
At the end the goals of the design, each with what was measured and PASS or MISS; for the one on
memory the same sequences are streamed again and again until 1e8 tokens are through.

Run: python benchmarks/evidence_speed.py [--seed 0] [--json] [--long]
"""

import argparse
import json
import os
import pickle
import resource
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from river import drift, stats

from paritas.contracts.load import load_named
from paritas.contracts.model import Clause, Family, Slice, Stage
from paritas.detectors.diagnosis import fingerprints
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import PairedTrace, PairOutcome, TopColumns, unreported
from paritas.detectors.topk import top_columns
from paritas.records import (
    KernelIdentity,
    LogprobSemantics,
    PairReason,
    Role,
    Sampling,
    Timings,
    TokenStatus,
    TokenTrace,
    TopK,
    trace_id_of,
)

LENGTHS = (85, 256, 1024, 4096)  # tokens a sequence
TOKENS = 500_000
PEER_TOKENS = 4_000
LIST_TOKENS = 50_000
ROUNDS = 3
LONG_TOKENS = 100_000_000
GOAL_LENGTH = 1024  # tokens a sequence at which the goals of speed are read
GOAL_TOKENS_PER_S, GOAL_TIMES, GOAL_BYTES = 10e6, 50, 2048
FLAT = 1.05  # times the memory at a tenth of the way
K = 20
VOCABULARY = 50_000

# Limits far above what the healthy stream below does, so that no row crosses.
TOKEN_STATISTICS = {
    "tv": {"at_most": 0.05},
    "logprob_abs_diff": {"at_most": 0.1},
    "ratio_tail": {"at_most": 1e-3, "above": 2.0},
    "mean_ratio": {"at_most": 1.01, "cap": 2.0},
    "gradient_bias": {"at_most": 0.2},
    "phantom_clip_rate": {"at_most": 0.01, "clip": 0.2},
    "kl_k3": {"at_most": 0.01},
    "chi_square": {"at_most": 0.02},
    "ess": {"at_least": 0.9},
    "trust_region_kl": {"at_most": 0.01},
    "distillation_drift": {"at_most": 0.1},
    "probability_gap": {"at_most": 0.05},
}
LIST_STATISTICS = {
    "tv_topk": {"at_most": 0.1},
    "logit_oscillation": {"at_most": 1.0},
    "argmax_flip_rate": {"at_most": 0.1},
    "top1_frequency": {"at_most": 0.05},
    "calibration_gap": {"at_most": 0.05},
    "confidence_drift": {"at_most": 0.05},
}
SEQUENCE_STATISTICS = {
    "sequence_tv": {"at_most": 0.9},
    "gspo_clip_rate": {"at_most": 0.1, "clip": 0.2},
    "time_to_first_token": {"at_most": 1.0, "quantile": 0.9},
    "inter_token_latency": {"at_most": 0.1, "quantile": 0.9},
    "weights_lag": {"at_most": 2.0},
    "nonfinite_rate": {"at_most": 0.01},
    "missing_rate": {"at_most": 0.01},
    "logprob_semantics_known": {"at_least": 0.1},
    "pairing_rate": {"at_least": 0.9},
}
STATISTICS = TOKEN_STATISTICS | LIST_STATISTICS | SEQUENCE_STATISTICS
IN_THREE = (
    Slice("all"),
    Slice("prompt", by=("slice",), at_most=8),
    Slice("replica", by=("replica",), at_most=8),
)
IN_TEN = tuple(Slice(f"s{i}") for i in range(10))


def contract(slices=IN_THREE):
    """Every statistic in every slice."""
    clauses = tuple(Clause(name, Family.NUMERICAL, name, **more) for name, more in STATISTICS.items())
    return replace(load_named("dense-bf16"), clauses=clauses, slices=slices)


def no_lists(n):
    """Top-k columns of a pair whose kernels told no lists."""
    return TopColumns(*(unreported(n) for _ in TopColumns.__slots__))


def some_lists(rng, n):
    """Top-k columns as two lists give them."""
    chance = rng.uniform(0.3, 1.0, n)
    return TopColumns(
        chance,
        (rng.random(n) < chance).astype(float),
        rng.exponential(0.01, n),
        rng.exponential(0.1, n),
        (rng.random(n) < 0.01).astype(float),
        chance - np.clip(chance + rng.normal(0, 0.01, n), 0.0, 1.0),
        unreported(n),
    )


def outcome(rng, number, length, lists=True):
    """Return one paired sequence of a healthy bfloat16 pair."""
    ell, name = rng.normal(0, 0.03, length), f"s-{number}"
    known = {
        "run_id": "run",
        "sequence_id": name,
        "group_id": "",
        "event_ns": number * 1000,
        "attributes": {"slice": f"kind{number % 5}", "replica": f"r{number % 4}"},
    }
    pair = PairedTrace(
        **known,
        trace_id=trace_id_of("run", name),
        weights_version="1",
        log_ratio=ell,
        logprob_q=-rng.exponential(size=length),
        position=np.arange(length),
        counts={TokenStatus.VALID: length},
        inference=KernelIdentity(Role.INFERENCE, engine="vllm", dtype="bfloat16"),
        train=KernelIdentity(Role.TRAIN, dtype="float32"),
        sampling=Sampling(1.0, 1.0, semantics=LogprobSemantics.RAW),
        train_sampling=Sampling(),
        timings=Timings(ttft_s=0.1),
        itl_mean_s=0.01,
        top=some_lists(rng, length) if lists else no_lists(length),
        lag=0,
    )
    return PairOutcome(PairReason.PAIRED, **known, pair=pair)


def stream(rng, length, tokens, lists):
    """Sequences of one length."""
    return [outcome(rng, i, length, lists) for i in range(max(tokens // length, 1))]


def judge(outcomes, slices=IN_THREE):
    """Judge everything again and again; return the least CPU seconds it took, and the evaluator."""
    evaluator = Evaluator(contract(slices), stage=Stage.FULL, recover=True)
    changes = sum(1 for _ in evaluator.observe(outcomes))
    assert not changes, "the stream is healthy"
    return best(lambda: list(evaluator.observe(outcomes))), evaluator


def best(work):
    """Least CPU seconds of a few rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def diagnose(outcomes):
    """Sum what the diagnosis needs of each pair, and nothing else."""
    pairs = [o.pair for o in outcomes]
    step = max(65_536 // pairs[0].tokens, 1)
    for i in range(0, len(pairs), step):
        fingerprints(PairBatch.of(pairs[i : i + step]))


def listed(rng, role, n):
    """A trace with top-20 lists; the train one is the inference one, a little off."""
    logits = -np.sort(rng.exponential(2.0, (n, K)), axis=1)
    token = rng.integers(0, VOCABULARY, (n, K)).astype(np.uint64)
    top = TopK(token, (logits - np.logaddexp.reduce(logits, axis=1)[:, None]).astype(np.float32))
    columns = (token[:, 0], np.zeros(n, np.uint8), top.logprob[:, 0])
    return TokenTrace(
        "run",
        "s",
        token=columns[0],
        status=columns[1],
        logprob=columns[2],
        kernel=KernelIdentity(role),
        top=top,
    )


def jittered(rng, trace):
    """The same lists with noise, in their new order."""
    noisy = trace.top.logprob + rng.normal(0, 0.03, trace.top.logprob.shape).astype(np.float32)
    order = np.argsort(-noisy, axis=1)
    top = TopK(np.take_along_axis(trace.top.token, order, 1), np.take_along_axis(noisy, order, 1))
    return replace(trace, kernel=KernelIdentity(Role.TRAIN), top=top)


def compare_lists(rng, length, tokens):
    """CPU seconds a token to compare the two lists of each token."""
    inference = listed(rng, Role.INFERENCE, length)
    train, mask = jittered(rng, inference), np.ones(length, bool)
    times = max(tokens // length, 1)
    return best(lambda: [top_columns(inference, train, mask) for _ in range(times)]) / (times * length)


def peers(slices):
    """river's statistics, one a clause and slice, and detectors of change beside them."""
    return [stats.Mean() for _ in range(slices)], [drift.PageHinkley() for _ in range(slices)]


def update_river(columns, slices, *, with_detector):
    """Update each statistic in each slice once a token; return the CPU seconds it took."""
    told = [peers(slices) for _ in columns]
    start = time.process_time()
    for column, (means, detectors) in zip(columns, told, strict=True):
        for value in column:
            for mean in means:
                mean.update(value)
            if with_detector:
                for detector in detectors:
                    detector.update(value)
    return time.process_time() - start


def measure_river(rng, tokens, slices):
    """Tokens a second of river's Mean, and of Mean and PageHinkley, for statistics with and without lists."""
    columns = [np.abs(rng.normal(0, 0.03, tokens)).tolist() for _ in TOKEN_STATISTICS | LIST_STATISTICS]
    return {
        f"{'with' if lists else 'no'}_lists_{'detector' if detector else 'mean'}": tokens
        / min(
            update_river(columns[: None if lists else len(TOKEN_STATISTICS)], slices, with_detector=detector)
            for _ in range(ROUNDS)
        )
        for lists in (False, True)
        for detector in (False, True)
    }


def state_bytes(evaluator):
    """Pickled bytes of the sequential state, and of the whole evaluator, a clause and slice."""
    rows = len(evaluator.rows)
    bank, whole = (
        len(pickle.dumps(part, protocol=5)) for part in ((evaluator.bank, evaluator.rows), evaluator)
    )
    return {"rows": rows, "tests": bank / rows, "all": whole / rows}


def measure_length(rng, length, tokens):
    """Tokens a second at one length: with and without lists, in ten slices at once, and parts of it."""
    plain, full = (stream(rng, length, tokens, lists) for lists in (False, True))
    done, told = len(full) * length, {"no_lists": judge(plain)[0], "with_lists": judge(full)[0]}
    told["in_ten"], told["diagnosis"] = judge(full, IN_TEN)[0], best(lambda: diagnose(full))
    told["tests"] = told["with_lists"] - told["diagnosis"]
    told["lists"] = done * compare_lists(rng, length, min(tokens, LIST_TOKENS))
    told["lists_compared"] = told["with_lists"] + told["lists"]
    return {"tokens_per_sequence": length, **{name: done / seconds for name, seconds in told.items()}}


def measure(seed, *, tokens=TOKENS, peer_tokens=PEER_TOKENS, lengths=LENGTHS):
    """Return tokens a second of ours at each length and of the peer, and the bytes of the state."""
    rng = np.random.default_rng(seed)
    lines = [measure_length(rng, length, tokens) for length in lengths]
    _, evaluator = judge(stream(rng, lengths[0], min(tokens, 100_000), True))
    return {
        "ours": lines,
        "river": measure_river(rng, peer_tokens, len(IN_THREE)),
        "state_bytes": state_bytes(evaluator),
    }


def show(told):
    """Print the lines a person reads."""
    for line in told["ours"]:
        cost = 1e6 * line["tokens_per_sequence"] / line["with_lists"]
        print(f"{line['tokens_per_sequence']} tokens a sequence, {cost:.0f} us a sequence; M tokens/s:")
        for name in ("no_lists", "with_lists"):
            mean, detector = (line[name] / told["river"][f"{name}_{kind}"] for kind in ("mean", "detector"))
            print(
                f"  {name:<15} {line[name] / 1e6:6.2f}, {mean:.0f} x Mean, {detector:.0f} x with PageHinkley"
            )
        rest = ("tests", "in_ten", "lists_compared", "lists", "diagnosis")
        print("".join(f"  {name:<15} {line[name] / 1e6:6.2f}\n" for name in rest), end="")
    print("river, k tokens/s:", ", ".join(f"{name} {v / 1e3:.0f}" for name, v in told["river"].items()))
    size = told["state_bytes"]
    print(
        f"pickled state a clause and slice, {size['rows']} rows: {size['tests']:.0f} bytes of tests, "
        f"{size['all']:.0f} with diagnosis and everything else"
    )


def goals(told, memory):
    """Return every goal as (what, measured, goal, whether it is met)."""
    lines = {line["tokens_per_sequence"]: line for line in told["ours"]}
    line = lines.get(GOAL_LENGTH, told["ours"][-1])
    ours, tests, river, size = line["with_lists"], line["tests"], told["river"], told["state_bytes"]["all"]
    mean, judging = (ours / river[f"with_lists_{kind}"] for kind in ("mean", "detector"))
    first, last = memory[0][1], memory[-1][1]
    length = line["tokens_per_sequence"]
    return [
        (
            f"M tokens/s at {length} tokens, evidence and evaluation",
            tests / 1e6,
            GOAL_TOKENS_PER_S / 1e6,
            tests >= GOAL_TOKENS_PER_S,
        ),
        (
            f"M tokens/s at {length} tokens, with all that the diagnosis remembers",
            ours / 1e6,
            GOAL_TOKENS_PER_S / 1e6,
            ours >= GOAL_TOKENS_PER_S,
        ),
        ("times river's Mean and PageHinkley, which judge", judging, GOAL_TIMES, judging >= GOAL_TIMES),
        ("times river's Mean alone, which does not", mean, GOAL_TIMES, mean >= GOAL_TIMES),
        ("bytes of state a clause and slice, at most", size, GOAL_BYTES, size <= GOAL_BYTES),
        (
            f"MiB after {memory[-1][0] / 1e6:.0f} M tokens, at most",
            last / 2**20,
            FLAT * first / 2**20,
            last <= FLAT * first,
        ),
    ]


def show_goals(told, memory):
    """Print each goal with PASS or MISS."""
    for what, measured, goal, is_met in goals(told, memory):
        print(f"{'PASS' if is_met else 'MISS'}  {what}: {measured:.1f} (goal {goal:.1f})")
    print("load average:", ", ".join(f"{load:.1f}" for load in os.getloadavg()))


def run_long(seed, tokens):
    """Stream the same sequences again and again; print and return (tokens, resident bytes) ten times on the way."""
    rng = np.random.default_rng(seed)
    outcomes, done, told = stream(rng, 1024, min(TOKENS, tokens), True), 0, []
    evaluator = Evaluator(contract(), stage=Stage.FULL, recover=True)
    while done < tokens:
        for _ in evaluator.observe(outcomes):
            pass  # a crossing costs what it costs
        before, done = done, done + len(outcomes) * 1024
        if done * 10 // tokens > before * 10 // tokens:
            size = len(pickle.dumps(evaluator, protocol=5))
            told.append((done, resident_bytes()))
            print(
                f"{done / 1e6:6.1f} M tokens: {told[-1][1] / 2**20:.1f} MiB resident, "
                f"state {size / 2**10:.0f} KiB pickled",
                flush=True,
            )
    return told


def resident_bytes():
    """Resident memory of this process now; its peak where the system does not tell."""
    try:
        told = Path("/proc/self/statm").read_text("ascii")
        return int(told.split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--long", action="store_true", help="stream 1e8 tokens and print the memory instead")
    arguments = parser.parse_args()
    if arguments.long:
        run_long(arguments.seed, LONG_TOKENS)
        return
    told = measure(arguments.seed, tokens=arguments.tokens)
    if arguments.json:
        print(json.dumps(told))
        return
    show(told)
    show_goals(told, run_long(arguments.seed, LONG_TOKENS))


if __name__ == "__main__":
    main()
