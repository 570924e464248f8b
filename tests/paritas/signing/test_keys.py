"""Keys on disk that decide who is believed: private ones stay private, trusted ones are found by name."""

import pytest

from paritas.errors import UsageError
from paritas.signing import key_id, key_pair, private_key, public_key, trusted_keys


def test_a_private_key_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "k.pem"
    key_pair(path, tmp_path / "p.pem")
    path.chmod(0o640)
    with pytest.raises(UsageError) as caught:
        private_key(path)
    assert caught.value.render() == (
        f"[usage] {path}: others can read this private key (mode 0640)\n"
        f"  hint: chmod 600 {path}; if others may have read it, make a new one"
    )
    path.chmod(0o400)
    assert key_id(private_key(path).public_key()) == key_id(public_key(tmp_path / "p.pem"))


def test_a_pair_is_made_whole_or_not_at_all(tmp_path):
    with pytest.raises(UsageError) as caught:
        key_pair(tmp_path / "k.pem", tmp_path / "trusted" / "p.pem")
    assert caught.value.render() == (
        f"[usage] {tmp_path}/trusted/p.pem: cannot be written: No such file or directory\n"
        "  hint: keys are never overwritten: name new files, in a folder that is there"
    )
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError):
        key_pair(tmp_path / "k.pem", tmp_path / "k.pem")
    assert list(tmp_path.iterdir()) == []
    key_pair(tmp_path / "k.pem", tmp_path / "p.pem")


def test_trusted_keys_of_a_file_and_of_a_folder(tmp_path):
    folder = tmp_path / "trusted"
    folder.mkdir()
    for name in "ab":
        key_pair(tmp_path / f"{name}.pem", folder / f"{name}.pem")
    both = {key_id(public_key(folder / f"{name}.pem")) for name in "ab"}
    assert set(trusted_keys(folder)) == both
    assert set(trusted_keys(folder / "a.pem")) < both


def test_a_folder_without_a_key_trusts_nobody_and_says_so(tmp_path):
    with pytest.raises(UsageError) as caught:
        trusted_keys(tmp_path)
    assert caught.value.render() == (
        f"[usage] {tmp_path}: holds no key\n  hint: put the public keys to be trusted there, as NAME.pem"
    )
