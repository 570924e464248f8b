"""The announcement of a running instance: whole, or the one before."""

import os
from types import SimpleNamespace

import pytest

from paritas.commands.places import DataFolder, Running
from paritas.commands.up import Up

ME = os.getpid()


def full(folder):
    """Make it refuse what is written there: what a full disk does."""
    (folder.root / "running.json.new").mkdir()


def test_a_disk_that_refuses_leaves_the_announcement_before(tmp_path):
    folder = DataFolder(tmp_path)
    folder.announce(Running(ME, "127.0.0.1:1", "old"))
    full(folder)
    with pytest.raises(OSError, match=r"running\.json\.new"):
        folder.announce(Running(ME, "127.0.0.1:1", "new"))
    assert folder.running() == Running(ME, "127.0.0.1:1", "old")


def test_a_contract_that_is_taken_over_on_a_full_disk_ends_nothing(tmp_path):
    folder = DataFolder(tmp_path)
    up = Up(folder, "127.0.0.1:1", loop=None, numbers=SimpleNamespace(page=""))
    up.renew(SimpleNamespace(name="old"))
    full(folder)
    up.renew(SimpleNamespace(name="new"))
    assert folder.running() == Running(ME, "127.0.0.1:1", "old")
