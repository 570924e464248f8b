"""NeMo-RL dumps: folders and names; the columns are in the golden files."""

import gzip
from pathlib import Path

import pytest
from dump_lines import encode, nemo_line, raw_options, traces_in

from paritas.collectors.dumps import read_nemo_rl
from paritas.errors import UsageError
from paritas.records import LogprobSemantics, Role


def ids(items) -> list[str]:
    return [trace.sequence_id for trace in items]


def test_folder_in_the_order_of_the_steps(tmp_path: Path) -> None:
    for step in (10, 9, 100):
        (tmp_path / f"train_data_step{step}.jsonl").write_bytes(encode(nemo_line()))
    (tmp_path / "train_data_step11.jsonl.gz").write_bytes(gzip.compress(encode(nemo_line())))
    (tmp_path / "val_data_step9.jsonl").write_text("not of this format\n")
    (tmp_path / "train_data_step.jsonl").write_text("no step\n")
    items = list(read_nemo_rl(tmp_path, raw_options(base_ns=5, step_ns=10)))
    assert ids(items) == ["9/0", "9/0", "10/0", "10/0", "11/0", "11/0", "100/0", "100/0"]
    assert [trace.event_ns for trace in items] == [5, 5, 15, 15, 25, 25, 35, 35]
    assert [trace.attributes["step"] for trace in items][::2] == ["9", "10", "11", "100"]


def test_inference_comes_first_and_tokens_agree(tmp_path: Path) -> None:
    path = tmp_path / "train_data_step1.jsonl"
    path.write_bytes(encode(nemo_line()))
    inference, train = read_nemo_rl(path, raw_options())
    assert (inference.kernel.role, train.kernel.role) == (Role.INFERENCE, Role.TRAIN)
    assert inference.token.tolist() == train.token.tolist() == [11, 12, 13]


def test_a_file_of_another_name_has_no_step(tmp_path: Path) -> None:
    path = tmp_path / "copied.jsonl"
    path.write_bytes(encode(nemo_line(idx=4)))
    items = list(read_nemo_rl(path, raw_options()))
    assert ids(items) == ["copied.jsonl/4"] * 2
    assert "step" not in items[0].attributes


@pytest.mark.parametrize("length", [2.5, None, float("nan"), "4", [4, 4], -1, 7])
def test_a_length_that_is_none(tmp_path: Path, length) -> None:
    path = tmp_path / "train_data_step1.jsonl"
    path.write_bytes(encode(nemo_line(input_lengths=[length]), nemo_line(input_lengths=[4.0])))
    problem, *traces = read_nemo_rl(path, raw_options())
    assert problem.reason in {"bad_value", "bad_type"}
    assert "'input_lengths'" in problem.message
    assert len(traces) == 2


def test_declared_semantics(tmp_path: Path) -> None:
    path = tmp_path / "train_data_step1.jsonl"
    path.write_bytes(encode(nemo_line()))
    declared = {Role.INFERENCE: LogprobSemantics.PROCESSED}
    inference, train = traces_in(read_nemo_rl(path, raw_options(semantics=declared)))
    assert inference.sampling.semantics is LogprobSemantics.PROCESSED
    assert train.sampling.semantics is LogprobSemantics.UNKNOWN


def test_folder_without_a_dump(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_nemo_rl(tmp_path, raw_options())
    assert caught.value.render() == (
        f"[usage] {tmp_path}: holds no train_data_step{{N}}.jsonl\n  hint: name the log folder of a NeMo-RL run"
    )


@pytest.mark.parametrize(
    ("rewards", "label"),
    [
        ([1.0], "1.0"),
        ([-2], "-2"),
        (0.25, "0.25"),
        ([float("nan")], None),
        ([True], None),
        (["good"], None),
        ([0.5, 0.5], None),
        (None, None),
    ],
)
def test_a_reward_is_a_label_where_it_is_one_number(tmp_path: Path, rewards, label) -> None:
    path = tmp_path / "train_data_step1.jsonl"
    path.write_bytes(encode(nemo_line(rewards=rewards)))
    inference, train = traces_in(read_nemo_rl(path, raw_options()))
    assert inference.attributes.get("reward") == train.attributes.get("reward") == label
