"""`paritas floor measure` runs a real model at two batch sizes: as a trainer, and as an engine."""

import gzip
import json

import numpy as np
import pytest

from paritas.cli import main
from paritas.collectors.kernels import Answer, Ask, LocalScorer, parse_spec
from paritas.collectors.kernels.hf import open_model
from paritas.records import Role, Sampling

CONTRACT = """apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: mine, version: 1.0.0}
spec:
  policy: smollm2
  kernels: {ROLE: {dtype: DTYPE}}
  clauses:
    numerical:
      - {id: token-tv, statistic: tv, at_most: {floor: aa, times: 1.5, ceiling: 0.9}}
      - {id: flips, statistic: argmax_flip_rate, at_most: 0.5}
"""
PROMPTS = (
    "Once upon a time in a small village",
    "Water boils earlier on a mountain because the",
    "def mean(values):\n    return sum",
)
DRAWING = ("--samples", "2", "--max-tokens", "8", "--batch-sizes", "1,4", "--seed", "2")
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def measured(small_model, tmp_path):
    """Measure a floor and return what was signed, and the lines of both recordings."""

    def measure(role, dtype):
        keys = tmp_path / "k.pem", tmp_path / "p.pem"
        main(["floor", "key", *map(str, keys)])
        (tmp_path / "mine.yaml").write_text(CONTRACT.replace("ROLE", role).replace("DTYPE", dtype))
        (tmp_path / "prompts.txt").write_text("".join(f"{json.dumps(p)[1:-1]}\n" for p in PROMPTS))
        named = (tmp_path / "mine.yaml", "aa", "--role", role, "--key", keys[0], "-o", tmp_path / "aa.json")
        kernel = ("--kernel", f"hf:{small_model},dtype={dtype}", "--prompts", tmp_path / "prompts.txt")
        words = ("floor", "measure", *named, *kernel, *DRAWING, "--keep", tmp_path)
        assert main([str(word) for word in words]) == 0
        return tmp_path, [lines(tmp_path / name) for name in ("one.jsonl.gz", "other.jsonl.gz")]

    return measure


def lines(path):
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def signed(folder, capsys):
    capsys.readouterr()
    assert main(["floor", "verify", str(folder / "aa.json"), "--key", str(folder / "p.pem"), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def one_row_is_another_kernel(folder):
    """Whether one row goes through other code than four: with some instruction sets it does not."""
    model = open_model(parse_spec(f"hf:{folder},dtype=bfloat16", Role.INFERENCE))
    ids = model.encode(PROMPTS[0], ())
    alone, among = (model.start(np.stack([ids] * rows))[0] for rows in (1, 4))
    return not np.array_equal(alone, among)


@pytest.mark.parametrize(("role", "size"), [("inference", "batch_size"), ("train", "micro_batch")])
def test_a_kernel_in_bfloat16_drifts_from_itself_a_little(measured, capsys, small_model, role, size):
    folder, (one, other) = measured(role, "bfloat16")
    floor = signed(folder, capsys)
    assert floor["varied"] == {f"extra.{size}": ["1", "4"]}
    tv, flips = floor["values"]
    assert (tv["statistic"], flips["statistic"]) == ("tv", "argmax_flip_rate")
    assert 0.0 <= tv["estimate"] < 0.04  # the plausibility ceiling of bfloat16
    assert tv["units"] == len(one) == len(other) == 6
    exact = np.concatenate([row["exact"]["tv"] for row in other])
    assert 0.0 <= exact.mean() < 0.04
    if role == "inference" and one_row_is_another_kernel(small_model):
        assert min(tv["estimate"], exact.mean()) > 0.0
    assert [row["token_ids"] for row in one] == [row["token_ids"] for row in other]


@pytest.mark.parametrize("role", ["inference", "train"])
def test_in_float32_almost_nothing_is_left(measured, capsys, role):
    folder, _ = measured(role, "float32")
    assert signed(folder, capsys)["values"][0]["estimate"] < 1e-4


def test_a_padded_micro_batch_scores_what_each_sequence_scores_alone(small_model):
    model = open_model(parse_spec(f"hf:{small_model},dtype=float32", Role.TRAIN))
    rng = np.random.default_rng(5)
    prompts = [rng.integers(5, 900, size) for size in (3, 6, 4)]
    tokens = [rng.integers(5, 900, size) for size in (7, 2, 5)]
    for prompt, token, together in zip(prompts, tokens, model.responses(prompts, tokens), strict=True):
        alone = np.concatenate(list(model.response(prompt, token)))
        assert together.shape == alone.shape
        assert together == pytest.approx(alone, abs=2e-3)


def test_a_trainer_scores_what_certify_scores(small_model, measured):
    _, (one, _) = measured("train", "float32")
    scorer = LocalScorer(open_model(parse_spec(f"hf:{small_model},dtype=float32", Role.TRAIN)), top_k=5)
    row = one[0]
    ask = Ask("a", "a", np.array(row["prompt_token_ids"]), 0, 1)
    answer = Answer(ask, np.array(row["token_ids"]), np.zeros(len(row["token_ids"])), [])
    told = scorer.score(answer, Sampling(1.0, 1.0, 0, 0.0))
    assert told.logprob == pytest.approx(np.array(row["logprobs"]), abs=1e-4)
