"""Following pods over everything that a cluster may answer; the source plays a script (no API server fails on demand)."""

import asyncio
from random import Random

import pytest

from paritas.controller.kubernetes.following import Following
from paritas.controller.kubernetes.members import Members
from paritas.controller.kubernetes.pods import ExpiredError
from paritas.errors import TransientError


def pod(name, version="9"):
    place = {"name": name, "uid": name, "resourceVersion": version}
    return {"metadata": place, "spec": {"containers": []}, "status": {"phase": "Pending"}}


class Script:
    """Gives one list after the other, and one watch after the other; an exception is raised; then waits for ever."""

    def __init__(self, lists, watches):
        self.lists, self.watches, self.versions, self.is_over = (
            list(lists),
            list(watches),
            [],
            asyncio.Event(),
        )

    async def listed(self):
        return self._next(self.lists), "1"

    async def events(self, version):
        self.versions.append(version)
        if not self.watches:
            self.is_over.set()
            await asyncio.Event().wait()
        for event in self._next(self.watches):
            yield event

    def _next(self, script):
        told = script.pop(0)
        if isinstance(told, Exception):
            raise told
        return told


def followed(lists, watches):
    """Play the script to its end; returns the following, the script, and what was known at each change."""
    known = []

    async def scene():
        script, members = Script(lists, watches), Members("x")
        following = Following(
            script, members, on_change=lambda: known.append(sorted(members.pods)), random=Random(1)
        )
        task = asyncio.create_task(following.run())
        async with asyncio.timeout(60):
            await script.is_over.wait()
        task.cancel()
        return following, script

    return *asyncio.run(scene()), known


def test_each_watch_goes_on_from_the_last_word_of_the_one_before_bookmarks_too():
    watches = [[("ADDED", pod("b", "5"))], [("BOOKMARK", {"metadata": {"resourceVersion": "8"}})]]
    following, script, known = followed([[pod("a")]], watches)
    assert (script.versions, known) == (["1", "5", "8"], [["a"], ["a", "b"]])
    assert (following.lists, following.failures, following.is_synced) == (1, 0, True)


def test_a_place_that_is_lost_is_no_failure_and_everything_is_listed_again():
    following, _, known = followed([[pod("a")], [pod("b")]], [ExpiredError("old")])
    assert (following.lists, following.failures, following.is_synced, following.problem) == (2, 0, True, "")
    assert known == [["a"], ["b"]]


def test_a_server_that_ends_every_watch_at_once_is_not_stormed():
    async def scene():
        script = Script([[pod("a")]], [[]] * 10_000)
        following = Following(script, Members("x"), on_change=lambda: None, random=Random(1))
        task = asyncio.create_task(following.run())
        for _ in range(1000):
            await asyncio.sleep(0)
        task.cancel()
        return script.versions

    assert asyncio.run(scene()) == ["1"]


def test_a_list_that_changes_nothing_is_no_change():
    assert followed([[pod("a")], [pod("a")]], [ExpiredError("old")])[2] == [["a"]]


@pytest.mark.parametrize(
    ("lists", "watches", "problem"),
    [
        ([TransientError("away"), [pod("a")]], [], "away"),
        ([[{}], [pod("a")]], [], "the API server sent what is no pod: KeyError('metadata')"),
        ([[pod("a")], [pod("a")]], [TransientError("gone")], "gone"),
        (
            [[pod("a")], [pod("a")]],
            [[("ADDED", {})]],
            "the API server sent what is no pod: KeyError('metadata')",
        ),
    ],
)
def test_a_failure_is_counted_said_and_over_when_everything_was_listed_again(lists, watches, problem, caplog):
    following, _, known = followed(lists, watches)
    assert (following.failures, following.is_synced, following.problem) == (1, True, "")
    assert [record.detail for record in caplog.records] == [problem]
    assert known[-1] == ["a"]


def test_the_same_failure_is_said_once(caplog):
    following, _, _ = followed([TransientError("away"), TransientError("away"), []], [])
    assert (following.failures, len(caplog.records)) == (2, 1)
