"""Measure the diagnostic features of recordings, or of drawn faults, and print them as a Markdown table.

    python docs/measure_features.py FOLDER [--contract dense-bf16]
    python docs/measure_features.py --drawn

FOLDER holds pairs ``NAME.serve.jsonl.gz`` and ``NAME.train.jsonl.gz``; those of `PAIRS` that are
there are measured.  ``src/paritas/data`` holds the ones that ship with the package.  ``--drawn``
measures every fault of `paritas.detectors.diagnosis.faults` beside bfloat16 noise.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from markdown_table import markdown

from paritas.collectors.dumps import ReadOptions, read_recorded
from paritas.contracts.load import load_named
from paritas.contracts.model import Contract, Stage
from paritas.detectors.diagnosis import FIELDS, Features, Fingerprint, fingerprints
from paritas.detectors.diagnosis.faults import FAULTS, Case, outcomes
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.evidence import PairBatch
from paritas.detectors.explain import explain
from paritas.detectors.pairing import Pairer
from paritas.detectors.pairs import PairOutcome
from paritas.detectors.verdicts import verdicts
from paritas.records import Role, TokenStatus, TokenTrace
from paritas.tokens import TokenHasher

__all__ = ["PAIRS", "Measured", "Pair", "drawn", "measure", "table"]

Edit = Callable[[TokenTrace], TokenTrace]


def as_recorded(trace: TokenTrace) -> TokenTrace:
    """Leave the trainer's trace as it was recorded."""
    return trace


def rolled(trace: TokenTrace) -> TokenTrace:
    """Move the trainer's log-probabilities by one token: the fault that no recording holds."""
    return replace(trace, logprob=np.roll(trace.logprob, 1))


def with_nan(trace: TokenTrace) -> TokenTrace:
    """Make every fiftieth log-probability of the trainer NaN, as a long-context kernel might."""
    place = np.arange(len(trace)) % 50 == 49
    logprob, status = trace.logprob.copy(), trace.status.copy()
    logprob[place], status[place] = np.nan, TokenStatus.NONFINITE
    return replace(trace, logprob=logprob, status=status)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two files, what is true of them, and what is changed before they are compared."""

    name: str
    serve: str
    train: str
    truth: str
    edit: Edit = as_recorded


PAIRS = (
    # shipped with the package
    Pair("healthy", "healthy", "healthy", "bfloat16 against float32: healthy"),
    Pair("stale", "healthy", "stale", "one of four replicas four optimiser steps behind"),
    Pair("top_p", "top_p", "top_p", "sampler renormalises over top-p 0.9, trainer does not"),
    Pair("healthy, rolled", "healthy", "healthy", "trainer's columns moved by one token", rolled),
    Pair("healthy, NaN", "healthy", "healthy", "every fiftieth trainer value NaN", with_nan),
    # the longer recordings they were cut from
    Pair("fp32", "fp32", "fp32", "vLLM float32: equal up to rounding"),
    Pair("fp16", "fp16", "fp16", "vLLM float16: healthy"),
    Pair("bf16", "bf16", "bf16", "vLLM bfloat16: healthy"),
    Pair("bf16_eager", "bf16_eager", "bf16_eager", "PyTorch bfloat16: healthy"),
    Pair("llamacpp_q4_1", "llamacpp_q4_1", "llamacpp_q4_1", "llama.cpp Q4_1: healthy 4-bit weights"),
    Pair("fp8_e4m3", "fp8_e4m3", "fp8_e4m3", "e4m3 weights and activations, plain rounding"),
    Pair("int4_rtn", "int4_rtn", "int4_rtn", "weights rounded to 4 bits after training: broken"),
    Pair("int8", "int8", "int8", "dynamic int8: broken"),
    Pair("weights_plus1", "bf16", "bf16_weights_plus1", "trainer 1 optimiser step ahead"),
    Pair("weights_plus4", "bf16", "bf16_weights_plus4", "trainer 4 optimiser steps ahead"),
    Pair("weights_plus8", "bf16", "bf16_weights_plus8", "trainer 8 optimiser steps ahead"),
    Pair("rope_scaled", "bf16", "bf16_rope_scaled_1_02", "rotary frequencies off by 2 %"),
    Pair("t06_processed", "bf16_t06_processed", "bf16_t06_processed", "engine at T = 0.6, trainer at 1"),
    Pair("topp09_processed", "bf16_topp09_processed", "bf16_topp09_processed", "engine at top-p 0.9 only"),
    Pair("t06_raw", "bf16_t06_raw", "bf16_t06_raw", "sampled at T = 0.6, raw numbers logged"),
    Pair("topp09_raw", "bf16_topp09_raw", "bf16_topp09_raw", "sampled at top-p 0.9, raw numbers logged"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One pair's features over all its sequences, and the causes found in slice ``all``."""

    pair: Pair
    features: Features
    causes: tuple[tuple[str, float], ...]


def measure(folder: Path, contract: Contract) -> Iterator[Measured]:
    """Yield what each pair in `folder` shows; pairs without files are left out."""
    for pair in PAIRS:
        files = folder / f"{pair.serve}.serve.jsonl.gz", folder / f"{pair.train}.train.jsonl.gz"
        if all(file.is_file() for file in files):
            yield _measured(pair, contract, list(_outcomes(contract, files, pair.edit)))


def _outcomes(contract: Contract, files: tuple[Path, Path], edit: Edit) -> Iterator[PairOutcome]:
    options, pairer = ReadOptions(TokenHasher(b"measure-features-local")), Pairer(contract.compare)
    serve, train = (
        read_recorded(files[0], Role.INFERENCE, options),
        read_recorded(files[1], Role.TRAIN, options),
    )
    for trace in chain(serve, (edit(t) if isinstance(t, TokenTrace) else t for t in train)):
        if not isinstance(trace, TokenTrace):
            raise SystemExit(trace.render())
        yield from pairer.process(trace, 0)
    yield from pairer.flush(0)


def _measured(pair: Pair, contract: Contract, outcomes: Sequence[PairOutcome]) -> Measured:
    evaluator = Evaluator(contract, stage=Stage.OFFLINE_CI, recover=False)
    for _ in evaluator.observe(outcomes):
        pass
    found = explain(evaluator, verdicts(evaluator))
    features = Features.of(evaluator.states["all"].recent.total())
    return Measured(pair, features, tuple((f.cause, f.confidence) for f in found if f.slice == "all"))


COLUMNS = (
    ("sequences", "units", ".0f"),
    ("tokens", "tokens", ".0f"),
    ("mean abs ℓ", "mean_abs", ".2g"),
    ("mean ℓ", "mean", "+.2g"),
    ("ℓ ≤ 0", "share_not_above", ".3f"),
    ("opposed", "opposed", ".2f"),
    ("slope", "slope", ".3f"),
    ("corr.", "correlation", ".3f"),
    ("off by one", "off", ".2f"),
    ("mean ratio z", "mean_ratio_z", "+.1f"),
    ("top-1 z", "top1_z", "+.1f"),
    ("kurtosis", "kurtosis", ".3g"),
    ("tail", "tail", ".1f"),
    ("clustering", "clustering", ".2f"),
    ("dispersion", "dispersion", ".2f"),
    ("first/rest", "position_fall", ".2f"),
    ("late/early", "position_growth", ".2f"),
    ("lean z", "lean_z", "+.1f"),
    ("last/near", "last_growth", ".2f"),
)


def table(rows: Sequence[Measured]) -> str:
    """Return the rows as a Markdown table."""
    head = ["recording", *(title for title, _, _ in COLUMNS), "named cause"]
    lines = [[row.pair.name, *_cells(row.features), _causes(row.causes)] for row in rows]
    return markdown(head, lines)


def _cells(features: Features) -> Iterator[str]:
    off = np.fmax(features.back, features.ahead)
    for _, name, form in COLUMNS:
        value = off if name == "off" else getattr(features, name)
        yield format(float(value), form) if np.isfinite(value) else "–"


def _causes(causes: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{cause} {confidence:.2f}" for cause, confidence in causes) or "nothing violated"


# ---- drawn faults

SEEDS = (901, 902, 903)
SHOWN = (
    "mean_abs",
    "share_not_above",
    "opposed",
    "off",
    "mean_ratio_z",
    "top1_z",
    "kurtosis",
    "tail",
    "clustering",
    "dispersion",
    "position_fall",
    "position_growth",
    "last_growth",
)


def drawn() -> str:
    """Return a table of the median features of every fault, over its severities and three seeds."""
    made = {
        name: [Case(name, s, "bf16", "all", n) for s in f.severities for n in SEEDS]
        for name, f in FAULTS.items()
    }
    made = {"healthy": [Case("healthy", 0.0, "bf16", "all", n) for n in SEEDS], **made}
    columns = [(title, name, form) for title, name, form in COLUMNS if name in SHOWN]
    head = ["fault", "cause", *(title for title, _, _ in columns)]
    return markdown(head, [[name, _cause(name), *_medians(cases, columns)] for name, cases in made.items()])


def _cause(name: str) -> str:
    return "–" if name == "healthy" else FAULTS[name].cause.value


def _medians(cases: Sequence[Case], columns: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    found = [_features(case) for case in cases]
    for _, name, form in columns:
        values = [np.fmax(f.back, f.ahead) if name == "off" else getattr(f, name) for f in found]
        known = np.array(values)[np.isfinite(values)]
        yield format(float(np.median(known)), form) if known.size else "–"


def _features(case: Case) -> Features:
    pairs = [outcome.pair for outcome in outcomes(case) if outcome.pair is not None]
    sums = fingerprints(PairBatch.of(pairs)) if pairs else np.zeros((1, len(FIELDS)))
    return Features.of(Fingerprint(sums.sum(axis=0)))


def main() -> None:
    """Print the table of one folder, or of drawn faults."""
    parser = argparse.ArgumentParser(
        description="Print the diagnostic features of recordings or drawn faults."
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", help="folder of NAME.serve.jsonl.gz and NAME.train.jsonl.gz"
    )
    parser.add_argument("--contract", default="dense-bf16", help="preset or contract file to judge by")
    parser.add_argument("--drawn", action="store_true", help="measure drawn faults instead")
    arguments = parser.parse_args()
    if arguments.drawn:
        sys.stdout.write(drawn() + "\n")
    elif arguments.folder is None:
        parser.error("a folder or --drawn is needed")
    else:
        rows = list(measure(arguments.folder, load_named(arguments.contract)))
        sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
