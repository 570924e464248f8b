"""The generated code loads everywhere we promise, and no field number ever changes its meaning."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from proto_fields import PROTO, fields_of, golden_path, reserved_of

from paritas.proto.v1 import token_block_pb2
from paritas.proto.v1.token_block_pb2 import TokenBlock

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path.stem for path in PROTO.glob("*.proto"))
REMEMBERED = [name for name in SOURCES if golden_path(name).exists()]


def numbers(version):
    return tuple(int(part) for part in version.split("."))


@pytest.mark.parametrize("name", SOURCES)
def test_the_stamp_is_not_newer_than_the_oldest_runtime_we_promise(name):
    code = (PROTO / f"{name}_pb2.py").read_text()
    stamp = re.search(r"# Protobuf Python Version: ([\d.]+)", code)[1]
    checked = ".".join(re.search(r"Domain.PUBLIC,\s+(\d+),\s+(\d+),\s+(\d+),", code).groups())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    floor = re.search(r"protobuf>=([\d.]+)", " ".join(project["dependencies"]))[1]
    assert stamp == checked
    assert numbers(stamp) <= numbers(floor)


@pytest.mark.parametrize("name", REMEMBERED)
def test_no_field_number_changed_its_meaning(name):
    remembered, now = json.loads(golden_path(name).read_text()), fields_of(name)
    changed = {
        (message, number): now[message][number]
        for message, fields in remembered.items()
        for number, meaning in fields.items()
        if now.get(message, {}).get(number, meaning) != meaning
    }
    assert changed == {}


@pytest.mark.parametrize("name", REMEMBERED)
def test_a_removed_field_stays_reserved_and_a_new_one_is_remembered(name):
    remembered, now = json.loads(golden_path(name).read_text()), fields_of(name)
    assert set(remembered) >= set(now), "run: python tests/proto_fields.py"
    for message, fields in now.items():
        assert set(remembered[message]) >= set(fields), "run: python tests/proto_fields.py"
        gone = {int(number) for number in set(remembered[message]) - set(fields)}
        assert gone <= reserved_of(name)[message]


def test_every_file_is_remembered():
    assert REMEMBERED == SOURCES, "run: python tests/proto_fields.py"
    assert {"token_block", "log_record"} <= set(SOURCES)


def test_descriptors_are_registered_under_our_own_path():
    assert token_block_pb2.DESCRIPTOR.name == "paritas/proto/v1/token_block.proto"
    assert TokenBlock.DESCRIPTOR.full_name == "paritas.proto.v1.TokenBlock"


def test_a_block_is_these_very_bytes():
    block = TokenBlock(
        schema=1, n=1, start=2, final=True, logprob_f32le=b"abcd", token_u64le=b"12345678", status_u8=b"\0",
        itl_f32le=b"", topk_k=1, topk_token_u64le=b"12345678", topk_logprob_f32le=b"wxyz",
    )  # fmt: skip
    assert block.SerializeToString().hex() == (
        "0801100118022001" "2a0461626364" "32083132333435363738" "3a0100" "4200" "4801"
        "52083132333435363738" "5a047778797a"
    )  # fmt: skip


def test_a_rank_comes_behind_and_a_block_without_one_is_read_as_before():
    bare = TokenBlock(schema=1, n=1, logprob_f32le=b"abcd", token_u64le=b"12345678", status_u8=b"\0")
    ranked = TokenBlock.FromString(bare.SerializeToString())
    ranked.rank_u32le = b"\1\0\0\0"
    assert ranked.SerializeToString() == bare.SerializeToString() + bytes.fromhex("620401000000")
    assert not TokenBlock.FromString(bare.SerializeToString()).HasField("rank_u32le")


def test_the_folder_is_no_package():
    assert not (ROOT / "proto" / "__init__.py").exists()
    assert not (PROTO / "__init__.py").exists()
