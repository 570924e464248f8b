"""`paritas roster` against a real API server: a pod without its sidecar is named, one with it is not, a deleted one no more."""

import asyncio
import signal
import tempfile
import zlib
from pathlib import Path
from random import Random

import pytest
from system.agent_process import until
from system.control_process import Command
from system.kubernetes_api import KubernetesApi
from system.parts import why_not
from system.roster_scene import CONTRACT, Cluster, Pipeline, Telling

from paritas.controller.kubernetes.access import in_cluster
from paritas.controller.kubernetes.following import Following
from paritas.controller.kubernetes.kubeconfig import from_kubeconfig
from paritas.controller.kubernetes.members import Members
from paritas.controller.kubernetes.pods import ExpiredError, PodSource
from paritas.errors import TransientError
from paritas.records import Phase, Reason
from paritas.wire import decode, origin_of

pytestmark = pytest.mark.timeout(600)
SELECTOR = "paritas.dev/inject=true"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """One API server for this file."""
    if reason := why_not("kubernetes"):
        pytest.skip(reason)
    with KubernetesApi(tmp_path_factory.mktemp("kubernetes")) as opened:
        yield opened


@pytest.fixture
def cluster(api, request):
    """A namespace of its own, whose service account may list and watch its pods."""
    api.start()
    return Cluster(api, f"roster-{zlib.crc32(request.node.name.encode()):08x}")


@pytest.fixture
def folder():
    """A folder with a short name: sockets are in it."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_pod_without_its_sidecar_is_named_and_resolved_when_it_is_deleted(cluster, folder):
    for name, more in {"pod-good": {"sidecar": True}, "pod-bare": {}, "pod-mute": {"sidecar": True}}.items():
        cluster.pod(name, since_s=60, **more)
    cluster.pod("pod-else", labels={"app": "vllm"})
    cluster.pod("pod-pending", phase="Pending")
    with Pipeline(folder) as pipeline, Telling(cluster, "--agent", f"unix:{pipeline.socket}") as telling:
        assert telling.is_ready()
        missing = {"agent=pod-bare", "agent=pod-mute"}
        told = pipeline.until(
            lambda told: missing <= {name for name, one in told.items() if one.after is Phase.FIRING},
            "both pods are missing",
        )
        assert set(told) == missing
        causes = {name: one.diagnosis[0] for name, one in told.items()}
        assert {cause.cause for cause in causes.values()} == {"agent_missing"}
        assert causes["agent=pod-bare"].facts == {"agent": "pod-bare", "sidecar": "absent"}
        assert causes["agent=pod-mute"].facts == {"agent": "pod-mute", "sidecar": "present"}
        assert {one.verdict.reason for one in told.values()} == {Reason.NOT_REPORTED}
        assert telling.metric("paritas_roster_pods") == 4
        assert telling.metric("paritas_roster_expected") == 3
        assert telling.metric("paritas_roster_without_sidecar") == 2

        cluster.delete("pod-bare")
        told = pipeline.until(
            lambda told: told["agent=pod-bare"].after is Phase.RESOLVED, "the deleted pod is resolved"
        )
        assert told["agent=pod-mute"].after is Phase.FIRING
        assert set(told) == missing
        assert telling.command.end() == 0
        assert telling.command.out.splitlines()[-1].endswith(" rosters written, 0 failed")


@pytest.mark.thorough
def test_into_paritas_up_and_an_api_server_that_is_away_is_said_and_survived(cluster, folder):
    (folder / "contract.yaml").write_text(CONTRACT)
    config = cluster.kubeconfig()
    cluster.pod("pod-1")
    words = ("up", "--data", folder / "up", "--contract", folder / "contract.yaml", "--listen", "127.0.0.1:0")
    with Command(*words) as up:
        up.says("watching contract")
        with Telling(cluster, "--data", folder / "up", kubeconfig=config) as telling:
            assert telling.is_ready()
            cluster.api.stop()
            until(
                lambda: telling.ask("/readyz") == (503, "not ready: cluster"), "the server's absence is said"
            )
            assert telling.ask("/healthz") == (200, "alive")
            assert telling.metric("paritas_roster_api_failures_total") > 0
            cluster.api.start()
            assert telling.is_ready()
            cluster.pod("pod-2")
            until(lambda: telling.metric("paritas_roster_pods") == 2, "the new pod is known")
            assert up.end() == 0
            until(lambda: telling.ask("/readyz") == (503, "not ready: log"), "the log's absence is said")
            assert telling.metric("paritas_roster_write_failures_total") > 0
            assert telling.command.end(signal.SIGINT) == 0


def source(cluster, **more):
    return PodSource(
        from_kubeconfig(cluster.kubeconfig()), namespace=cluster.namespace, selector=SELECTOR, **more
    )


def asked(scene):
    return asyncio.run(scene())


def test_pods_are_listed_page_by_page_and_an_old_place_is_expired(cluster):
    for i in range(5):
        cluster.pod(f"pod-{i}")
    config = from_kubeconfig(cluster.kubeconfig())
    cluster.api.stop()
    cluster.api.start()  # it remembers no change from before

    async def scene():
        async with PodSource(config, namespace=cluster.namespace, selector=SELECTOR, page=2) as opened:
            pods, version = await opened.listed()
            with pytest.raises(ExpiredError, match=r"^watch pods gave 410: "):
                await anext(opened.events("1"))
        return sorted(pod["metadata"]["name"] for pod in pods), version

    names, version = asked(scene)
    assert names == [f"pod-{i}" for i in range(5)]
    assert int(version) > 1


def test_following_goes_on_over_the_ends_of_watches_and_sees_every_kind_of_change(cluster):
    cluster.pod("pod-1", phase="Pending")

    async def scene():
        changed, members = asyncio.Event(), Members("paritas-agent")

        async def is_so(expected):
            while {m.name: m.since_ns > 0 for m in members.pods.values()} != expected:
                await changed.wait()
                changed.clear()

        async with source(cluster, watch_s=1.0) as opened, asyncio.timeout(90):
            following = Following(opened, members, on_change=changed.set, random=Random(1))
            task = asyncio.create_task(following.run())
            await is_so({"pod-1": False})
            await asyncio.to_thread(cluster.pod, "pod-2")
            await is_so({"pod-1": False, "pod-2": True})
            await asyncio.to_thread(cluster.status, "pod-1", phase="Running")
            await is_so({"pod-1": True, "pod-2": True})
            await asyncio.to_thread(cluster.delete, "pod-2")
            await is_so({"pod-1": True})
            await asyncio.to_thread(cluster.status, "pod-1", phase="Succeeded")
            await is_so({})
            task.cancel()
        return following.lists, following.failures

    assert asked(scene) == (1, 0)


def test_the_role_is_enough_and_no_more(cluster):
    cluster.pod("pod-1")
    beyond = [("GET", f"{cluster.path}/pod-1"), ("DELETE", f"{cluster.path}/pod-1"), ("GET", "/api/v1/pods")]
    assert all(cluster.is_refused(*one) for one in beyond)


def test_a_service_account_is_enough_and_its_renewed_token_is_used(cluster, folder):
    cluster.pod("pod-1")
    token = cluster.api.account_token(cluster.namespace, "default")
    files = {"token": token, "ca.crt": cluster.api.ca_file.read_text(), "namespace": cluster.namespace}
    for name, text in files.items():
        (folder / name).write_text(text)
    access = in_cluster(folder, server=cluster.api.server)

    async def scene():
        said = []
        async with PodSource(access, namespace=access.namespace, selector=SELECTOR) as opened:
            for text in (token, "expired", token):
                (folder / "token").write_text(text)
                try:
                    said.append(len((await opened.listed())[0]))
                except TransientError as error:
                    said.append(str(error))
        return said

    assert asked(scene) == [1, "list pods gave 401: Unauthorized", 1]


def test_an_account_without_the_role_is_told_in_the_servers_words(api, request):
    bare = Cluster(api, "roster-bare", role=False)

    async def scene():
        async with source(bare) as opened:
            with pytest.raises(TransientError) as caught:
                await opened.listed()
        return str(caught.value)

    assert asked(scene) == (
        f'list pods gave 403: pods is forbidden: User "{bare.account}" cannot list resource "pods" in API group "" '
        'in the namespace "roster-bare"'
    )


def test_into_a_topic_and_it_ends_in_order_while_the_broker_does_not_answer(cluster, serving_broker, request):
    from system.kafka_topics import fresh_topic, read_topic

    settings = fresh_topic(serving_broker, request)
    cluster.pod("pod-1", sidecar=True)
    words = ("--kafka", serving_broker.bootstrap, "--topic", settings.topic, "--name", "east")
    with Telling(cluster, *words) as telling:
        assert telling.is_ready()
        until(lambda: telling.metric("paritas_roster_records_total") > 2, "rosters are written")
        serving_broker.pause()
        try:
            written = telling.metric("paritas_roster_records_total")
            assert telling.command.end() == 0
        finally:
            serving_broker.resume()
    records, _ = read_topic(settings)
    rosters = [decode(record.value).rosters[0] for record in records]
    assert len(rosters) >= written
    assert {(r.name, *(one.agent for one in r.agents)) for r in rosters} == {
        (f"roster:east/{cluster.namespace}", "pod-1")
    }
    origins = [origin_of(record.headers) for record in records]
    assert [o.seq for o in origins] == sorted({o.seq for o in origins})
    assert {o.agent for o in origins} == {f"roster:east/{cluster.namespace}"}
