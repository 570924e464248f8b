"""Floors and keys on disk: one clear error for every mistake."""

import stat

import pytest
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric import ec
from floor_cases import KEY, floor

from paritas.contracts.floors import read_floor, write_floor
from paritas.errors import UsageError
from paritas.signing import key_pair, private_key, public_key

MEASURE = "\n  hint: paritas floor measure writes one"
MAKE = "\n  hint: paritas floor key PRIVATE.pem PUBLIC.pem makes a pair"
NEVER = "\n  hint: keys are never overwritten: name new files, in a folder that is there"


def refused(call, *arguments):
    with pytest.raises(UsageError) as caught:
        call(*arguments)
    return caught.value.render()


def test_what_one_key_of_a_pair_signs_the_other_reads(tmp_path):
    key_pair(tmp_path / "k.pem", tmp_path / "p.pem")
    write_floor(tmp_path / "aa.json", floor(), private_key(tmp_path / "k.pem"))
    assert read_floor(tmp_path / "aa.json", public_key(tmp_path / "p.pem")) == floor()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["aa.json", "k.pem", "p.pem"]


def test_a_private_key_is_its_owners_alone_and_no_key_is_overwritten(tmp_path):
    key_pair(tmp_path / "k.pem", tmp_path / "p.pem")
    assert stat.S_IMODE((tmp_path / "k.pem").stat().st_mode) == 0o600
    before = (tmp_path / "k.pem").read_bytes()
    text = refused(key_pair, tmp_path / "k.pem", tmp_path / "q.pem")
    assert text == f"[usage] {tmp_path}/k.pem: cannot be written: File exists{NEVER}"
    assert (tmp_path / "k.pem").read_bytes() == before


def test_files_that_are_not_there_or_no_keys(tmp_path):
    missing = tmp_path / "no.pem"
    assert (
        refused(public_key, missing) == f"[usage] {missing}: cannot be read: No such file or directory{MAKE}"
    )
    assert refused(read_floor, missing, KEY.public_key()) == (
        f"[usage] {missing}: cannot be read: No such file or directory{MEASURE}"
    )
    key_pair(tmp_path / "k.pem", tmp_path / "p.pem")
    swapped = f"is not an Ed25519 public key in PEM without a password{MAKE}"
    assert refused(public_key, tmp_path / "k.pem") == f"[usage] {tmp_path}/k.pem: {swapped}"
    swapped = f"is not an Ed25519 private key in PEM without a password{MAKE}"
    assert refused(private_key, tmp_path / "p.pem") == f"[usage] {tmp_path}/p.pem: {swapped}"
    folder = refused(write_floor, tmp_path / "no" / "aa.json", floor(), KEY)
    assert folder == f"[usage] {tmp_path}/no/aa.json: cannot be written: No such file or directory"


def test_a_key_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "ec.pem"
    other = ec.generate_private_key(ec.SECP256R1())
    told = other.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())
    path.write_bytes(told)
    assert "is not an Ed25519 private key" in refused(private_key, path)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_floor(tmp_path, content):
    path = tmp_path / "aa.json"
    path.write_bytes(content)
    assert refused(read_floor, path, KEY.public_key()) == f"[usage] {path}: is not a signed envelope{MEASURE}"


def test_a_changed_floor_is_refused(tmp_path):
    path = tmp_path / "aa.json"
    write_floor(path, floor(), KEY)
    text = path.read_text()
    payload = text.split('"payload": "')[1].split('"')[0]
    path.write_text(text.replace(payload, payload[:40] + "A" + payload[41:]))
    told = refused(read_floor, path, KEY.public_key())
    assert told == f"[usage] {path}: is not signed by this key, or was changed since{MEASURE}"
