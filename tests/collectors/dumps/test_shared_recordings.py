"""The full recordings: every token of every file, as their README counts them."""

from pathlib import Path

import numpy as np
import pytest
from dump_lines import HASHER, raw_options, shared_data

from paritas.collectors import Accounting
from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.records import LogprobSemantics, Role, TokenStatus

# README of the recordings: name, tokens.
TOKENS = {
    "fp32": 8145,
    "fp16": 4136,
    "bf16": 7858,
    "llamacpp_q4_1": 2140,
    "int8": 2137,
    "bf16_t06_raw": 7169,
    "bf16_topp09_raw": 7760,
    "bf16_eager": 3274,
    "fp8_e4m3": 3731,
    "int4_rtn": 3363,
    "bf16_t06_processed": 3489,
    "bf16_topp09_processed": 3872,
}
VARIANTS = ["bf16_weights_plus1", "bf16_weights_plus4", "bf16_weights_plus8", "bf16_rope_scaled_1_02"]


@pytest.fixture(scope="module")
def folder() -> Path:
    return shared_data() / "smollm2"


def counted(path: Path):
    accounting = Accounting()
    for item in read_dump(path, ReadOptions(HASHER)):
        accounting.add(item)
    assert accounting.balanced
    assert not accounting.problems
    return accounting.roles


@pytest.mark.parametrize("name", TOKENS)
def test_both_sides_hold_the_tokens_of_the_readme(folder: Path, name: str) -> None:
    serve, train = counted(folder / f"{name}.serve.jsonl.gz"), counted(folder / f"{name}.train.jsonl.gz")
    assert list(serve) == [Role.INFERENCE]
    assert list(train) == [Role.TRAIN]
    for account in (serve[Role.INFERENCE], train[Role.TRAIN]):
        assert account.tokens == account.by_status[TokenStatus.VALID] == TOKENS[name]


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_the_trainer(folder: Path, name: str) -> None:
    assert counted(folder / f"{name}.train.jsonl.gz")[Role.TRAIN].tokens == TOKENS["bf16"]
    version = name.rpartition("plus")[2] if "plus" in name else ""
    assert {
        trace.weights_version for trace in read_dump(folder / f"{name}.train.jsonl.gz", raw_options())
    } == {version}


@pytest.mark.parametrize("name", TOKENS)
def test_sides_pair_line_by_line(folder: Path, name: str) -> None:
    sides = [
        list(read_dump(folder / f"{name}.{side}.jsonl.gz", raw_options())) for side in ("serve", "train")
    ]
    for ours, theirs in zip(*sides, strict=True):
        assert ours.trace_id == theirs.trace_id
        assert ours.event_ns == theirs.event_ns
        assert np.array_equal(ours.token, theirs.token)
    semantics = LogprobSemantics.PROCESSED if name.endswith("_processed") else LogprobSemantics.RAW
    assert {trace.sampling.semantics for trace in sides[0]} == {semantics}


def top_one_z(path: Path) -> float:
    """Excess of sampled top-1 tokens over what their probabilities say, in standard deviations."""
    excess = variance = 0.0
    for trace in read_dump(path, raw_options()):
        best = np.exp(trace.top.logprob[:, 0].astype(np.float64))
        excess += float(((trace.token == trace.top.token[:, 0]) - best).sum())
        variance += float((best * (1 - best)).sum())
    return excess / variance**0.5


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("bf16", -2.0, 2.0), ("bf16_t06_raw", 37.2, 37.4), ("bf16_topp09_raw", 10.3, 10.5)],
)
def test_top_lists_agree_with_the_sampling(folder: Path, name: str, low: float, high: float) -> None:
    # At T = 0.6 and top-p 0.9 the logs are not the sampling law, which shows as a large z.  The
    # README says +39.7 and +12.6 because it counts every tie with the best entry for the
    # sampled token; on the healthy bf16 file that way gives +2.4, ours +0.6: the entry that is
    # kept among equals may not lean on what was sampled.
    assert low < top_one_z(folder / f"{name}.serve.jsonl.gz") < high
