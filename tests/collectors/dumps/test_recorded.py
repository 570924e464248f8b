"""Recorded pairs: what the golden files do not reach."""

from pathlib import Path

import numpy as np
import pytest
from dump_lines import HASHER, RECORDINGS, encode, problems_in, raw_options, recorded_line, traces_in

from paritas.collectors.dumps import ReadOptions, read_recorded
from paritas.errors import UsageError
from paritas.records import LogprobSemantics, Role, TokenStatus


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dump.jsonl"


def read(path: Path, *lines, role=Role.INFERENCE, **changes):
    path.write_bytes(encode(*lines))
    return list(read_recorded(path, role, raw_options(**changes)))


def test_real_pair_is_read_whole() -> None:
    options = ReadOptions(HASHER)
    serve = list(read_recorded(RECORDINGS / "bf16.serve.jsonl.gz", Role.INFERENCE, options))
    train = list(read_recorded(RECORDINGS / "bf16.train.jsonl.gz", Role.TRAIN, options))
    assert [len(traces_in(items)) for items in (serve, train)] == [12, 12]
    for ours, theirs in zip(serve, train, strict=True):
        assert (ours.run_id, ours.sequence_id, ours.event_ns) == (
            theirs.run_id,
            theirs.sequence_id,
            theirs.event_ns,
        )
        assert np.array_equal(ours.token, theirs.token)
        assert set(ours.status.tolist()) | set(theirs.status.tolist()) == {TokenStatus.VALID}
        assert ours.top.token.shape == theirs.top.token.shape == (len(ours), 1)
        assert ours.kernel.engine == "vllm"
        assert ours.sampling.semantics is LogprobSemantics.RAW
        assert theirs.sampling.semantics is LogprobSemantics.UNKNOWN
        # A healthy bfloat16 pair, so a column that is off by one or by a sign shows.
        assert np.abs(ours.logprob - theirs.logprob).mean() < 0.1
        assert ours.timings.decode_s > 0


def test_hashed_by_default_and_raw_where_opted_in(path: Path) -> None:
    path.write_bytes(encode(recorded_line()))
    (hashed,) = read_recorded(path, Role.TRAIN, ReadOptions(HASHER))
    assert hashed.token.tolist() == HASHER.hash(np.array([11, 12, 13])).tolist()
    (raw,) = read_recorded(path, Role.TRAIN, raw_options())
    assert raw.token.tolist() == [11, 12, 13]


def test_times_follow_the_line_even_past_bad_ones(path: Path) -> None:
    items = read(path, recorded_line(), [], recorded_line(sample_id="b"), base_ns=100, step_ns=7)
    assert [trace.event_ns for trace in traces_in(items)] == [100, 114]


@pytest.mark.parametrize("stamp", [1e300, -1e300, 1e12, -1.0])
def test_a_time_that_cannot_be_is_one_clear_problem(path: Path, stamp: float) -> None:
    (problem,) = read(path, recorded_line(timestamp=stamp))
    assert problem.render() == f"{path}:1: the time of the line is out of range\n  hint: Unix time is meant"


def test_numbers_beyond_float32_make_no_noise(path: Path) -> None:
    """Warnings of numpy would be errors here."""
    columns = {name: [1e300, 0.0, 0.0] for name in ("tv", "oscillation", "flip", "confidence_gap")}
    (trace,) = read(path, recorded_line(exact=columns))
    assert trace.exact.tv.tolist() == [np.inf, 0.0, 0.0]


def test_declared_semantics_only_where_the_file_is_silent(path: Path) -> None:
    declared = {Role.TRAIN: LogprobSemantics.RAW, Role.INFERENCE: LogprobSemantics.TEMPERATURE_ONLY}
    silent = {name: value for name, value in recorded_line().items() if name != "logprobs_mode"}
    (train,) = read(path, silent, role=Role.TRAIN, semantics=declared)
    assert train.sampling.semantics is LogprobSemantics.RAW
    (told,) = read(path, recorded_line(logprobs_mode="processed_logprobs"), semantics=declared)
    assert told.sampling.semantics is LogprobSemantics.PROCESSED


def test_equal_kernels_are_one_object(path: Path) -> None:
    one, two, other = read(path, recorded_line(), recorded_line(), recorded_line(dtype="float16"))
    assert one.kernel is two.kernel
    assert other.kernel != one.kernel


def top_line(sample_id: str, tokens, lists):
    return recorded_line(
        sample_id=sample_id, token_ids=tokens, logprobs=[-0.5] * len(tokens), top_logprobs=lists
    )


EXTRA = [[7, -3.0], [5, -0.25]]  # top-1 and a sampled token outside
INSIDE = [[5, -0.25]]  # the sampled token is the top-1


def test_depth_of_a_line_comes_from_the_file(path: Path) -> None:
    items = read(path, top_line("a", [7, 7], [EXTRA, EXTRA]), top_line("b", [5], [INSIDE]))
    assert [trace.top.token.tolist() for trace in items] == [[[5], [5]], [[5]]]


def test_depth_that_nothing_shows_is_the_safe_one(path: Path) -> None:
    (trace,) = read(path, top_line("a", [7, 7], [EXTRA, EXTRA]))
    assert trace.top.token.tolist() == [[5], [5]]
    (trace,) = read(path, top_line("a", [5], [INSIDE]))
    assert trace.top is None
    (trace,) = read(path, top_line("a", [5], [INSIDE]), top_k=1)
    assert trace.top.token.tolist() == [[5]]


def test_fewer_top_entries_on_request(path: Path) -> None:
    lists = [[[5, -0.25], [6, -0.5], [7, -3.0]]]
    for top_k, kept in ((1, [[5]]), (2, [[5, 6]]), (9, [[5, 6, 7]])):
        (trace,) = read(path, top_line("a", [5], lists), top_k=top_k)
        assert trace.top.token.tolist() == kept
    (trace,) = read(path, top_line("a", [5], lists), top_k=0)
    assert trace.top is None


def test_a_line_beyond_the_limit(path: Path) -> None:
    items = read(
        path, recorded_line(), recorded_line(note="x" * 5000), recorded_line(), limit_line_bytes=1000
    )
    assert len(traces_in(items)) == 2
    assert problems_in(items)[0].render() == (
        f"{path}:2: longer than the limit\n  hint: is this JSON Lines, one sequence a line?"
    )


def test_labels_are_bounded(path: Path) -> None:
    (trace,) = read(path, {**recorded_line(), **{f"k{i}": i for i in range(100)}})
    assert len(trace.attributes) == 32
    assert trace.attributes["slice"] == "chat"


def test_usage_errors_come_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_recorded(tmp_path / "nothing", Role.TRAIN, raw_options())
    assert str(caught.value) == f"{tmp_path}/nothing: no such file or folder"
    with pytest.raises(UsageError) as caught:
        read_recorded(tmp_path, Role.TRAIN, raw_options())
    assert str(caught.value) == f"{tmp_path}: is a folder, expected a file"


def test_reading_is_lazy_and_can_stop(path: Path) -> None:
    path.write_bytes(encode(recorded_line()) * 50)
    reader = read_recorded(path, Role.TRAIN, raw_options())
    assert len(next(reader)) == 3
    reader.close()  # closes the file: an open one would be a ResourceWarning, hence an error
