"""`paritas roster`: every mistake a person can make, its page, and what it writes when."""

import asyncio
from random import Random

import pytest
from system.agent_process import until

from paritas.agent.health import Health
from paritas.cli import main
from paritas.clock import SystemClock
from paritas.commands.exposition import exposition
from paritas.commands.roster_page import NamespaceReading, RosterReading, judge, roster_families
from paritas.commands.roster_writing import RosterWriter
from paritas.controller.kubernetes.access import ACCOUNT
from paritas.controller.kubernetes.following import Following
from paritas.controller.kubernetes.members import Member, Members
from paritas.errors import TransientError
from paritas.wire import Expected, decode, origin_of

pytest.importorskip("aiohttp", reason="aiohttp is not installed (pip install 'paritas[control]')")
NS = 1_000_000_000
NO_ACCOUNT = (
    "there is no service account in /var/run/secrets/kubernetes.io/serviceaccount\n"
    "  hint: mount the service account's token; outside of a cluster name a --kubeconfig\n"
)


@pytest.fixture
def kubeconfig(tmp_path):
    file = tmp_path / "k"
    file.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\n"
    )
    return file


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--every often", "--every 'often' is no duration\n  hint: write 30s or 1m\n"),
        ("--every 10ms", "--every '10ms' is not from 1s to 1h\n  hint: well under the clause's limit\n"),
        (
            "--namespace a/b",
            "--namespace 'a/b' is no name\n  hint: letters, digits, and - . _ between them\n",
        ),
        (
            "--namespace a --name -x-",
            "--name '-x-' is no name\n  hint: letters, digits, and - . _ between them\n",
        ),
        ("", "it is not said whose pods\n  hint: name a --namespace\n"),
        ("--namespace a --context x", "{k}: there is no context 'x'\n"),
        ("--namespace a --topic t", "--topic needs --kafka\n"),
        (
            "--namespace a --agent tcp:1",
            "--agent is 'tcp:1'\n  hint: write unix:/path/of/the.sock or http://127.0.0.1:PORT\n",
        ),
    ],
)
def test_mistakes_are_one_clear_error(words, says, kubeconfig, capsys):
    words = words.replace("--name -x-", "--name=-x-").split()
    words += [] if "--agent" in words else ["--agent", "unix:/nowhere"]
    assert main(["roster", "--kubeconfig", str(kubeconfig), *words]) == 64
    assert capsys.readouterr().err == "[usage] " + says.replace("{k}", str(kubeconfig))


@pytest.mark.skipif(ACCOUNT.exists(), reason="this machine is a pod with a service account")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--agent unix:/nowhere", NO_ACCOUNT),
        ("--agent unix:/nowhere --context x", "--context needs --kubeconfig\n"),
        (
            "",
            "one of the arguments --kafka --agent --data is required\n  hint: paritas roster --help shows what it takes\n",
        ),
        (
            "--agent unix:/a --data d",
            "argument --data: not allowed with argument --agent\n  hint: paritas roster --help shows what it takes\n",
        ),
    ],
)
def test_mistakes_outside_of_a_cluster(words, says, capsys):
    assert main(["roster", *words.split()]) == 64
    assert capsys.readouterr().err == f"[usage] {says}"


def test_a_folder_where_nothing_runs_is_said(tmp_path, kubeconfig, capsys):
    words = ("--kubeconfig", str(kubeconfig), "--namespace", "a", "--data", str(tmp_path))
    assert main(["roster", *words]) == 64
    assert str(tmp_path) in capsys.readouterr().err


WELL = NamespaceReading(3, 2, 1, 0, 4, 5, is_synced=True)


@pytest.mark.parametrize(
    ("reading", "text", "alive"),
    [
        (RosterReading(), "not ready: starting", True),
        (RosterReading({"a": WELL}), "ready", True),
        (RosterReading({"a": WELL, "b": NamespaceReading(problem="no")}), "not ready: cluster", True),
        (RosterReading({"a": WELL}, problem="no"), "not ready: log", True),
        (RosterReading({"a": WELL}, idle_ns=31 * NS), "not ready: stuck", False),
    ],
)
def test_ready_is_who_knows_the_pods_and_is_heard(reading, text, alive):
    assert (judge(reading).text(), judge(reading).is_alive) == (text, alive)


def test_the_page_tells_every_namespace():
    reading = RosterReading({"a": WELL, "b": NamespaceReading()}, 7, 2, "no", 5 * NS)
    lines = exposition(roster_families(reading, Health(True, ()))).splitlines()
    assert {
        'paritas_roster_pods{namespace="a"} 3',
        'paritas_roster_expected{namespace="a"} 2',
        'paritas_roster_without_sidecar{namespace="a"} 1',
        'paritas_roster_lists_total{namespace="a"} 4',
        'paritas_roster_api_failures_total{namespace="a"} 5',
        'paritas_roster_synced{namespace="a"} 1',
        'paritas_roster_synced{namespace="b"} 0',
        "paritas_roster_records_total 7",
        "paritas_roster_write_failures_total 2",
        "paritas_roster_last_write_timestamp_seconds 5",
    } <= set(lines)


class Log:
    """A sink that keeps what it is given, and refuses rosters of the pods it is told to."""

    def __init__(self):
        self.records, self.refuses = [], set()

    def post(self, record):
        if self.refuses & {one.agent for roster in decode(record.value).rosters for one in roster.agents}:
            raise TransientError("the log is away")
        self.records.append(record)

    def close(self):
        pass

    def rosters(self):
        return [roster for record in self.records for roster in decode(record.value).rosters]


class Scene:
    """A writer of two namespaces over members that a test sets."""

    def __init__(self, every_s=3600.0):
        names = {"a": "roster:a", "b": "roster:b"}
        self.log = Log()
        self.writer = RosterWriter(self.log, names, every_s, SystemClock())
        for space in names:
            followed = Following(None, Members("x"), on_change=self.writer.changed(space), random=Random(1))
            self.writer.followed[space] = followed

    def put(self, space, *pods):
        followed = self.writer.followed[space]
        followed.members.pods = {pod: Member(pod, pod, 5, has_sidecar=True) for pod in pods}
        followed.is_synced = True
        self.writer.changed(space)()

    async def until(self, holds):
        await asyncio.to_thread(until, holds, "the writer has done it")

    def run(self, play):
        async def all_of_it():
            task = asyncio.create_task(self.writer.run())
            await play(self)
            task.cancel()

        return all_of_it()


def played(play, **more):
    async def scene():
        made = Scene(**more)
        await made.run(play)
        return made

    return asyncio.run(scene())


def test_a_namespace_is_told_when_it_is_known_and_again_when_it_changes():
    async def play(scene):
        scene.put("a", "pod-1")
        await scene.until(lambda: len(scene.log.records) == 1)
        scene.put("a", "pod-1", "pod-2")
        await scene.until(lambda: len(scene.log.records) == 2)

    found = played(play)
    first, second = found.log.rosters()
    assert [r.name for r in (first, second)] == ["roster:a"] * 2
    assert first.agents == (Expected("pod-1", 5, "present"),)
    assert [one.agent for one in second.agents] == ["pod-1", "pod-2"]
    assert (second.epoch, second.number) > (first.epoch, first.number)
    origin = origin_of(found.log.records[1].headers)
    assert (origin.agent, origin.epoch, origin.seq) == ("roster:a", second.epoch, second.number)


def test_an_unchanged_roster_is_told_again_and_again_but_not_while_nothing_is_known():
    async def play(scene):
        scene.put("a", "pod-1")
        scene.put("b", "pod-2")
        scene.writer.followed["b"].is_synced = False
        await scene.until(lambda: len(scene.log.records) >= 3)

    found = played(play, every_s=0.01)
    assert {roster.name for roster in found.log.rosters()} == {"roster:a"}
    assert found.writer.read().namespaces["b"].is_synced is False


def test_a_log_that_is_away_is_counted_said_and_tried_again_with_what_is_true_then():
    async def play(scene):
        scene.log.refuses = {"pod-1"}  # also where it is tried again before there is another
        scene.put("a", "pod-1")
        await scene.until(lambda: scene.writer.write_failures)
        assert judge(scene.writer.read()).text() == "not ready: starting, log"
        scene.put("a", "pod-2")
        await scene.until(lambda: scene.log.records)

    found = played(play)
    (roster,) = found.log.rosters()
    assert [one.agent for one in roster.agents] == ["pod-2"]
    assert roster.number == found.writer.write_failures + 1
