"""Whatever a file holds, a reader gives traces and problems, and every line ends as one of them."""

import contextlib
import gzip
import json
from pathlib import Path

import pytest
from dump_lines import GOLDEN, HASHER, encode, nemo_line, prime_line, problems_in, recorded_line, traces_in
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.collectors import Accounting
from paritas.collectors.dumps import (
    Problem,
    ReadOptions,
    read_dump,
    read_nemo_rl,
    read_prime_rl,
    read_recorded,
)
from paritas.errors import UsageError
from paritas.records import Role, TokenTrace

OPTIONS = ReadOptions(HASHER, limit_line_bytes=1 << 16)

READERS = {
    "recorded": (lambda path: read_recorded(path, Role.INFERENCE, OPTIONS), recorded_line, 1),
    "nemo": (lambda path: read_nemo_rl(path, OPTIONS), nemo_line, 2),
    "prime": (lambda path: read_prime_rl(path, OPTIONS), prime_line, 2),
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
NUMBERS = st.none() | st.floats() | st.sampled_from([0.0, -0.5, 1.0, -9999.0]) | st.integers()
COLUMNS = st.lists(NUMBERS, max_size=5) | st.lists(st.lists(NUMBERS, max_size=5), max_size=2)
GOLDEN_FILES = sorted(GOLDEN.glob("*.in.jsonl"))


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "train_data_step1.jsonl"


def check(items: list[TokenTrace | Problem], path: Path, per_line: int) -> None:
    """Every item is of one of two kinds, every line and token is in the counts."""
    assert all(isinstance(item, TokenTrace | Problem) for item in items)
    accounting = Accounting()
    for item in items:
        accounting.add(item)
        if isinstance(item, TokenTrace):
            assert len(item.trace_id) == len(item.kernel.digest) == 32
            json.dumps([dict(item.attributes), item.weights_version, item.group_id]).encode()
        else:
            assert item.file == str(path)
            item.render().encode()
    assert accounting.balanced
    if not any(item.reason in FILE_REASONS for item in problems_in(items)):
        lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
        assert len(traces_in(items)) == per_line * (len(lines) - len(problems_in(items)))


FILE_REASONS = {"empty_file", "truncated_gzip", "corrupt_gzip"}


@pytest.mark.parametrize("name", READERS)
@given(
    content=st.binary(max_size=200)
    | st.binary(max_size=60).map(gzip.compress)
    | st.text(max_size=80).map(str.encode)
)
@settings(deadline=None, max_examples=60)
def test_arbitrary_bytes(name: str, path: Path, content: bytes) -> None:
    read, _, per_line = READERS[name]
    path.write_bytes(content)
    items = list(read(path))
    if not content.startswith(b"\x1f\x8b"):
        check(items, path, per_line)
    assert items  # something is always said


@pytest.mark.parametrize("name", READERS)
@given(lines=st.lists(JSON, min_size=1, max_size=4))
@settings(deadline=None, max_examples=60)
def test_arbitrary_json(name: str, path: Path, lines) -> None:
    read, _, per_line = READERS[name]
    path.write_bytes(encode(*lines))
    check(list(read(path)), path, per_line)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(deadline=None, max_examples=120)
def test_good_lines_with_wrong_fields(name: str, path: Path, data) -> None:
    read, make, per_line = READERS[name]
    optional = [
        "top_logprobs",
        "metrics",
        "timestamp",
        "event_ns",
        "weights_version",
        "group_id",
        "agent_ref",
        "tp",
    ]
    fields = st.sampled_from([*make(), *optional])
    changes = data.draw(st.dictionaries(fields, JSON | COLUMNS, min_size=1, max_size=2))
    path.write_bytes(encode(make(), make(**changes), make()))
    items = list(read(path))
    check(items, path, per_line)
    assert len(traces_in(items)) >= 2 * per_line  # the neighbours of a bad line are read


@pytest.mark.parametrize("name", READERS)
@given(n=st.integers(0, 6), data=st.data())
@settings(deadline=None, max_examples=60)
def test_arbitrary_log_probabilities_lose_no_token(name: str, path: Path, n: int, data) -> None:
    read, make, per_line = READERS[name]
    column = st.lists(st.none() | st.floats() | st.sampled_from([0.0, -9999.0, 1.0]), min_size=n, max_size=n)
    changes = {"token_ids": data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=n, max_size=n))}
    names = {"recorded": ["logprobs"], "nemo": ["generation_logprobs", "prev_logprobs"]}
    changes |= {
        field: data.draw(column) for field in names.get(name, ["inference_logprobs", "trainer_logprobs"])
    }
    changes |= {"loss_mask": [True] * n, "token_loss_mask": [1] * n, "input_lengths": n}
    changes |= {"rl_weights": None, "ref_kl_weights": None, "advantages": None}
    path.write_bytes(encode(make(**changes)))
    items = list(read(path))
    check(items, path, per_line)
    assert not problems_in(items)
    expected = max(n - 1, 0) if name == "nemo" else n  # entry 0 is a dummy there
    assert [len(trace) for trace in items] == [expected] * per_line


@given(
    source=st.sampled_from(GOLDEN_FILES),
    edits=st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 255), st.sampled_from("rid")), min_size=1, max_size=5
    ),
)
@settings(deadline=None, max_examples=150)
def test_mutated_golden_files(path: Path, source: Path, edits) -> None:
    content = bytearray(source.read_bytes())
    for where, byte, kind in edits:
        at = where % max(len(content), 1)
        content[at : at + (kind != "i")] = b"" if kind == "d" else bytes([byte])
    path.write_bytes(bytes(content))
    for read, _, per_line in READERS.values():
        check(list(read(path)), path, per_line)
    with contextlib.suppress(UsageError):  # no dump at all any more
        assert all(isinstance(item, TokenTrace | Problem) for item in read_dump(path, OPTIONS))


@given(cut=st.integers(2, 400), flip=st.none() | st.tuples(st.integers(10, 10**6), st.integers(1, 255)))
@settings(deadline=None, max_examples=80)
def test_cut_and_damaged_gzip(path: Path, cut: int, flip) -> None:
    packed = bytearray(gzip.compress(encode(*[recorded_line(sample_id=f"s{i}") for i in range(30)])))
    if flip is not None:
        packed[flip[0] % len(packed)] ^= flip[1]
    path.write_bytes(bytes(packed[:cut]))
    items = list(read_recorded(path, Role.TRAIN, OPTIONS))
    assert all(isinstance(item, TokenTrace | Problem) for item in items)
    assert len([item for item in problems_in(items) if item.reason in FILE_REASONS]) <= 1
    if cut < len(packed):
        assert items[-1].reason in FILE_REASONS or flip is not None
