"""prime-rl exports: steps, ranks and STABLE; the columns are in the golden files."""

from pathlib import Path

import pytest
from dump_lines import encode, prime_line, problems_in, raw_options, traces_in

from paritas.collectors.dumps import read_prime_rl
from paritas.errors import UsageError
from paritas.records import Role


def export(root: Path, step: int, ranks=(0,), *, stable: bool = True) -> Path:
    folder = root / "token_exports" / f"step_{step}"
    folder.mkdir(parents=True)
    for rank in ranks:
        (folder / f"rank_{rank}.jsonl").write_bytes(encode(prime_line(step=step, rank=rank)))
    if stable:
        (folder / "STABLE").touch()
    return folder


def ids(items) -> list[str]:
    return [trace.sequence_id for trace in traces_in(items)][::2]


def test_steps_and_ranks_in_order(tmp_path: Path) -> None:
    for step in (10, 9):
        export(tmp_path, step, ranks=(10, 2))
    (tmp_path / "token_exports" / "notes").mkdir()
    for named in (tmp_path, tmp_path / "token_exports"):
        items = list(read_prime_rl(named, raw_options()))
        assert ids(items) == ["9/2/0", "9/10/0", "10/2/0", "10/10/0"]
    assert [trace.kernel.role for trace in items[:2]] == [Role.INFERENCE, Role.TRAIN]
    told = {"step": "9", "rank": "2", "environment": "math", "advantage": "0.5"}
    assert items[0].attributes == told


def test_unstable_steps_are_named_at_the_end(tmp_path: Path) -> None:
    folder = export(tmp_path, 1, stable=False)
    export(tmp_path, 2)
    *traces, problem = read_prime_rl(tmp_path, raw_options())
    assert ids(traces) == ["2/0/0"]
    assert problem.reason == "unstable_step"
    assert problem.render() == (
        f"{folder}: the step has no STABLE file and was not read\n"
        "  hint: the trainer is still writing it, or stopped inside it"
    )


def test_one_step_and_one_file(tmp_path: Path) -> None:
    folder = export(tmp_path, 4, ranks=(0, 1))
    assert ids(read_prime_rl(folder, raw_options())) == ["4/0/0", "4/1/0"]
    (folder / "STABLE").unlink()
    assert [problem.reason for problem in read_prime_rl(folder, raw_options())] == ["unstable_step"]
    assert ids(read_prime_rl(folder / "rank_1.jsonl", raw_options())) == ["4/1/0"]


def test_a_step_without_ranks(tmp_path: Path) -> None:
    folder = export(tmp_path, 4, ranks=())
    (problem,) = problems_in(read_prime_rl(tmp_path, raw_options()))
    assert problem.render() == f"{folder}: the step holds no rank_{{r}}.jsonl"


def test_missing_sequence_index_is_the_line(tmp_path: Path) -> None:
    folder = export(tmp_path, 4)
    (folder / "rank_0.jsonl").write_bytes(encode(prime_line(), prime_line(export_sequence_idx=None)))
    assert ids(read_prime_rl(folder, raw_options())) == ["3/0/0", "3/0/1"]


def test_folder_without_steps(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_prime_rl(tmp_path, raw_options())
    assert caught.value.render() == (
        f"[usage] {tmp_path}: holds no step_{{n}} folder\n  hint: name the output folder of a prime-rl run"
    )
    with pytest.raises(UsageError, match="no such file or folder"):
        read_prime_rl(tmp_path / "nothing", raw_options())
