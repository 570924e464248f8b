"""The two lines of a response are read back as they were meant."""

import json
from dataclasses import replace

import numpy as np
import pytest
from dump_lines import raw_options
from toy_kernels import ToyModel

from paritas.collectors.dumps import read_recorded
from paritas.collectors.kernels import Ask, LocalSampler, LocalScorer
from paritas.collectors.kernels.recording import inference_line, train_line
from paritas.exact import ExactDrift
from paritas.records import LogprobSemantics, Role, Sampling, TokenStatus

LAW = Sampling(0.8, 0.95, 0, 0.0, semantics=LogprobSemantics.PROCESSED)
SCORED = Sampling(0.8, 1.0, 0, 0.0)


def pair():
    ask = Ask("a/0", "a", np.array([5, 6]), seed=3, max_tokens=9, labels={"slice": "x", "engine": "fake"})
    (answer,) = LocalSampler(ToyModel(), top_k=4).sample([ask], LAW)
    return answer, LocalScorer(ToyModel(Role.TRAIN, noise=0.2), top_k=4).score(answer, SCORED)


def read_back(path, role, line):
    path.write_text(json.dumps(line) + "\n")
    (trace,) = read_recorded(path, role, raw_options())
    return trace


def test_both_lines_are_read_back(tmp_path):
    answer, scored = pair()
    sampler, trainer = ToyModel().identity, ToyModel(Role.TRAIN).identity
    serve = read_back(tmp_path / "s", Role.INFERENCE, inference_line(answer, sampler, LAW))
    train = read_back(tmp_path / "t", Role.TRAIN, train_line(answer, scored, trainer, SCORED))
    for trace, logprob, kernel in ((serve, answer.logprob, sampler), (train, scored.logprob, trainer)):
        assert (trace.sequence_id, trace.group_id, trace.kernel) == ("a/0", "a", kernel)
        assert trace.attributes == {"slice": "x"} | (
            {"finish_reason": answer.finish} if trace is serve else {}
        )
        assert trace.token.tolist() == answer.token.tolist()
        np.testing.assert_allclose(trace.logprob, logprob, atol=1e-6)
        assert set(trace.status.tolist()) == {TokenStatus.VALID}
        assert trace.top.token.shape == (answer.token.size, 4)
    assert serve.sampling == LAW
    assert train.sampling == replace(SCORED, semantics=LogprobSemantics.UNKNOWN)
    for name in ExactDrift.__slots__:
        np.testing.assert_allclose(getattr(train.exact, name), getattr(scored.exact, name), atol=1e-6)
    assert serve.exact is None


def test_what_was_not_reported_is_missing(tmp_path):
    answer, _ = pair()
    gap = answer.logprob.copy()
    gap[1] = np.nan
    line = inference_line(replace(answer, logprob=gap), ToyModel().identity, LAW)
    trace = read_back(tmp_path / "s", Role.INFERENCE, line)
    assert trace.status.tolist()[:2] == [TokenStatus.VALID, TokenStatus.MISSING]


@pytest.mark.parametrize(
    ("exact", "message"),
    [
        (3, "'exact' is an integer, expected an object"),
        ({"tv": [0.1]}, "'exact.oscillation' is null, expected a list"),
        (
            {name: [0.1] for name in ("tv", "oscillation", "flip", "confidence_gap")},
            (
                "columns differ in length: token_ids 2, exact.tv 1, exact.oscillation 1, exact.flip 1, "
                "exact.confidence_gap 1"
            ),
        ),
    ],
)
def test_a_wrong_comparison_is_a_problem_of_its_line(tmp_path, exact, message):
    line = {"sample_id": "a", "token_ids": [1, 2], "logprobs": [-1.0, -2.0], "exact": exact}
    assert read_back(tmp_path / "t", Role.TRAIN, line).message == message


def test_extra_must_be_texts(tmp_path):
    line = {"sample_id": "a", "token_ids": [1], "logprobs": [-1.0], "extra": {"rope": 3}}
    assert read_back(tmp_path / "t", Role.TRAIN, line).message == "'rope' is an integer, expected text"
