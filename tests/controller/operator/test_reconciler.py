"""What a pass asks of the cluster.  The cluster here only counts: a real one (tests/deploy) does not say what it was asked."""

import asyncio

from paritas.clock import SystemClock
from paritas.controller.operator.counts import Counts
from paritas.controller.operator.model import FIELD_MANAGER, Plan
from paritas.controller.operator.passes import Passes
from paritas.controller.operator.reconciler import Reconciler
from paritas.errors import PermanentError


class Cluster:
    """Objects and ConfigMaps in memory; `asked` has the namespaces whose ConfigMap was read since the last pass."""

    def __init__(self, *namespaces):
        self.objects = [thing(namespace) for namespace in namespaces]
        self.maps, self.asked, self.told = {}, [], []
        self.closed = set()  # namespaces whose ConfigMap we may not read

    async def contracts(self):
        self.asked = []
        return self.objects

    async def config_map(self, namespace, _name):
        self.asked.append(namespace)
        if namespace in self.closed:
            raise PermanentError(f"configmaps of {namespace} are forbidden")
        return self.maps.get(namespace)

    async def apply_config_map(self, body):
        owned = {"f:data": {f"f:{key}": {} for key in body["data"]}}
        entry = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": owned}
        metadata = {**body["metadata"], "managedFields": [entry]}
        self.maps[metadata["namespace"]] = {**body, "metadata": metadata}

    async def apply_status(self, item, _status):
        self.told.append(item.namespace)


def thing(namespace):
    metadata = {"name": "a", "namespace": namespace, "uid": namespace, "generation": 1}
    metadata |= {"creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"paritas.dev/version": "1.0.0"}}
    return {"metadata": metadata, "spec": {"preset": "lora"}}


def test_a_namespace_that_was_cleared_is_not_asked_about_for_ever():
    cluster = Cluster("one", "two")
    passes = Reconciler(Plan("", "contracts"), cluster, None, clock=SystemClock(), counts=Counts())

    async def scene():
        await passes.run_pass()
        assert cluster.asked == ["one", "two"]
        cluster.objects = [thing("one")]
        await passes.run_pass()
        assert (cluster.asked, cluster.maps["two"]["data"]) == (["one", "two"], {})
        await passes.run_pass()
        await passes.run_pass()
        assert cluster.asked == ["one"]
        cluster.objects.append(thing("two"))
        await passes.run_pass()
        assert list(cluster.maps["two"]["data"]) == ["a.yaml"]

    asyncio.run(scene())


def test_the_operators_own_namespace_is_looked_at_also_while_it_is_empty():
    cluster = Cluster()
    passes = Reconciler(Plan("rl", "contracts"), cluster, None, clock=SystemClock(), counts=Counts())

    async def scene():
        for _ in range(3):
            await passes.run_pass()
            assert cluster.asked == ["rl"]

    asyncio.run(scene())


def test_one_namespace_that_is_closed_keeps_no_other_waiting():
    cluster, counts = Cluster("one", "two"), Counts()
    cluster.closed = {"one"}
    assert readiness(cluster, counts) == ""
    assert (cluster.told, counts.failures["cluster"], counts.passes) == (["two"], 1, 1)


def test_an_operator_that_reads_no_config_map_at_all_is_not_ready():
    """It tells nobody anything: neither detectors by the ConfigMap, nor people by a status."""
    cluster, counts = Cluster("one", "two"), Counts()
    cluster.closed = {"one", "two"}
    assert readiness(cluster, counts) == "configmaps of one are forbidden"
    assert (cluster.told, counts.failures["cluster"], counts.passes, counts.last_pass_ns) == ([], 1, 0, 0)


def readiness(cluster, counts):
    """What `/readyz` says after one pass; empty if it is ready."""
    plan, clock = Plan("", "contracts"), SystemClock()
    reconciler = Reconciler(plan, cluster, None, clock=clock, counts=counts)
    passes = Passes(plan, reconciler, clock=clock, counts=counts)

    async def scene():
        running = asyncio.create_task(passes.run())
        async with asyncio.timeout(30):
            while not (counts.passes or counts.failures["cluster"]):  # noqa: ASYNC110 -- a pass that fails sets no event
                await asyncio.sleep(0)
        running.cancel()

    asyncio.run(scene())
    return passes.why_not_ready()
