"""A dump is recognised by what is in it."""

import gzip
from pathlib import Path

import pytest
from dump_lines import RECORDINGS, encode, nemo_line, prime_line, raw_options, recorded_line, traces_in

from paritas.collectors.dumps import DumpFormat, read_dump, recognise
from paritas.errors import UsageError
from paritas.records import Role

TRAIN_LINE = {"sample_id": "a", "token_ids": [1], "logprobs": [-0.5]}

KNOWN = [
    (recorded_line(), DumpFormat.RECORDED_INFERENCE),
    (TRAIN_LINE, DumpFormat.RECORDED_TRAIN),
    ({**TRAIN_LINE, "prompt_token_ids": [1]}, DumpFormat.RECORDED_INFERENCE),
    ({**TRAIN_LINE, "role": "inference"}, DumpFormat.RECORDED_INFERENCE),
    (recorded_line(role="train"), DumpFormat.RECORDED_TRAIN),
    (nemo_line(), DumpFormat.NEMO_RL),
    (prime_line(), DumpFormat.PRIME_RL),
]

UNKNOWN_HINT = (
    "readable are: a recorded file (sample_id, token_ids, logprobs); "
    "NeMo-RL train_data_step{N}.jsonl (token_ids, generation_logprobs, prev_logprobs); "
    "prime-rl token_exports (schema_version, token_ids, inference_logprobs, trainer_logprobs)"
)


@pytest.mark.parametrize(("line", "expected"), KNOWN)
@pytest.mark.parametrize("before", [b"", b"\n\n", b"garbage\n[1]\n\xff\n"])
def test_files_whatever_their_name(line, expected: DumpFormat, before: bytes, tmp_path: Path) -> None:
    plain, packed = tmp_path / "train_data_step1.jsonl", tmp_path / "step.txt"
    plain.write_bytes(before + encode(line))
    packed.write_bytes(gzip.compress(before + encode(line), mtime=0))
    assert recognise(plain) is recognise(packed) is expected


def test_folders(tmp_path: Path) -> None:
    nemo, step = tmp_path / "nemo", tmp_path / "run" / "token_exports" / "step_2"
    nemo.mkdir()
    step.mkdir(parents=True)
    (nemo / "train_data_step3.jsonl").write_bytes(encode(nemo_line()))
    (step / "rank_0.jsonl").write_bytes(encode(prime_line()))
    assert recognise(nemo) is DumpFormat.NEMO_RL
    for folder in (step, step.parent, step.parent.parent):
        assert recognise(folder) is DumpFormat.PRIME_RL


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"text\n",
        b'{"sample_id": 1}\n',
        b"[]\n" * 100,
        b"\x00\xff" * 50,
        gzip.compress(b"x\n", mtime=0)[:20],
    ],
)
def test_unknown_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "dump.jsonl"
    path.write_bytes(content)
    for call in (recognise, lambda path: read_dump(path, raw_options())):
        with pytest.raises(UsageError) as caught:
            call(path)
        assert (
            caught.value.render() == f"[usage] {path}: holds no dump that can be read\n  hint: {UNKNOWN_HINT}"
        )


def test_unknown_folders(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(encode(recorded_line()))
    with pytest.raises(UsageError) as caught:
        recognise(tmp_path)
    assert str(caught.value) == f"{tmp_path}: holds no dump that can be read"
    with pytest.raises(UsageError) as caught:
        recognise(tmp_path / "nothing")
    assert str(caught.value) == f"{tmp_path}/nothing: no such file or folder"


def test_the_first_object_decides(tmp_path: Path) -> None:
    path = tmp_path / "dump.jsonl"
    path.write_bytes(encode({"version": 1}, recorded_line()))
    with pytest.raises(UsageError):
        recognise(path)


@pytest.mark.parametrize(("side", "role"), [("serve", Role.INFERENCE), ("train", Role.TRAIN)])
def test_real_sides_are_told_apart(side: str, role: Role) -> None:
    traces = traces_in(read_dump(RECORDINGS / f"bf16.{side}.jsonl.gz", raw_options()))
    assert {trace.kernel.role for trace in traces} == {role}
