"""The driver of pod labels against a real Kubernetes API server; pods are stored there, readiness is set by hand."""

import asyncio
import shutil
import signal
import zlib
from pathlib import Path

import pytest
from certificates import self_signed
from fleets import route
from system.kubernetes_api import MERGE, KubernetesApi, RefusedError, kubectl
from system.labelled_pods import LABEL, Pods, seen, told
from system.otel_parts import wait_until
from system.parts import why_not

from paritas.controller.drivers.driver import Outcome
from paritas.controller.drivers.kubernetes_label import KubernetesLabelDriver
from paritas.errors import TransientError

EXAMPLES = Path(__file__).parents[2] / "examples" / "kubernetes"
ROLE, POLICY = EXAMPLES / "label-driver-rbac.yaml", EXAMPLES / "label-driver-policy.yaml"
ACCOUNT = "system:serviceaccount:paritas:paritas-controller"
PODS = {"r0-0": "r0", "r0-1": "r0", "r1-0": "r1", "ref-0": "ref"}
ALL_IN = {"r0-0": "true", "r0-1": "true", "r1-0": "true", "ref-0": "false"}
ALL_MOVED = {"r0-0": "false", "r0-1": "false", "r1-0": "false", "ref-0": "true"}
NONE_READY = "no wanted replica has a ready pod in namespace {!r}; none was labelled out"
APPLIED = (Outcome.APPLIED, "")


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """One API server for this file, with two users who hold no role yet."""
    if reason := why_not("kubernetes"):
        pytest.skip(reason)
    users = {"stranger-token": "stranger", "reader-token": "reader"}
    with KubernetesApi(tmp_path_factory.mktemp("kubernetes"), users=users) as opened:
        opened.namespace("paritas")
        yield opened


@pytest.fixture
def pods(api, request, tmp_path):
    """A namespace of its own with the example's role and the pods of the fleet, born without the label."""
    api.start()
    namespace = api.namespace(f"pods-{zlib.crc32(request.node.name.encode()):08x}")
    api.apply_text(ROLE.read_text().replace("namespace: serving", f"namespace: {namespace}"))
    api.wait_allowed(ACCOUNT, "patch", "pods", namespace)
    made = Pods(api, namespace, tmp_path)
    for pod, replica in PODS.items():
        made.make(pod, replica)
    return made


def refused(driver):
    """Return what a driver says that is refused, having checked that it cannot observe either."""
    ((outcome, detail),) = told(driver, route())
    assert outcome is Outcome.FAILED
    with pytest.raises(TransientError) as caught:
        seen(driver)
    assert str(caught.value).partition("gave")[0] == detail.partition("gave")[0]
    return detail


def test_drain_move_and_back_are_on_the_real_pods(pods):
    found = []
    for state in (route(), route(drained=("r0",)), route(inference=0.0), route()):
        (said,) = told(pods.driver(), state)
        found.append((said, pods.labels(), seen(pods.driver()).serving))
    drained = ALL_IN | {"r0-0": "false", "r0-1": "false"}
    assert found == [
        (APPLIED, ALL_IN, {"r0", "r1"}),
        (APPLIED, drained, {"r1"}),
        (APPLIED, ALL_MOVED, {"ref"}),
        (APPLIED, ALL_IN, {"r0", "r1"}),
    ]


def test_a_service_that_selects_by_the_label_would_get_exactly_these_pods(pods):
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: an operator's way to ask is not tried")

    told(pods.driver(), route(drained=("r0",)))
    asked = ("get", "pods", "-n", pods.namespace, "-l", f"app=vllm,{LABEL}=true", "-o", "name")
    assert kubectl(pods.api, *asked).split() == ["pod/r1-0"]


def test_applying_again_writes_nothing(pods):
    told(pods.driver(), route())
    before = pods.versions()
    assert told(pods.driver(), route(), route()) == [APPLIED, APPLIED]
    assert pods.versions() == before


def test_only_the_pods_that_differ_are_written(pods):
    told(pods.driver(), route())
    before = pods.versions()
    told(pods.driver(), route(drained=("r1",)))
    after = pods.versions()
    assert {name for name in after if after[name] != before[name]} == {"r1-0"}


def test_pods_of_nobody_are_left_alone_and_shown_when_they_carry_the_label(pods):
    pods.make("stranger-in", "stranger")
    pods.make("stranger-out", "stranger")
    pods.label("stranger-in", **{LABEL: "true"})
    before = pods.versions()
    told(pods.driver(), route(), route(inference=0.0))
    after = pods.versions()
    assert [after[name] == before[name] for name in ("stranger-in", "stranger-out")] == [True, True]
    assert seen(pods.driver()).unknown == ("stranger-in",)


def test_what_else_the_pods_carry_stays(pods):
    pods.label("r1-0", tier="gold")
    told(pods.driver(), route(drained=("r1",)))
    (pod,) = (pod for pod in pods.listed() if pod.name == "r1-0")
    assert pod.labels == {"app": "vllm", "replica": "r1", "tier": "gold", LABEL: "false"}


def test_a_replica_without_a_pod_is_told_and_the_others_go_on(pods):
    pods.delete("r1-0")
    assert told(pods.driver(), route()) == [(Outcome.ACCEPTED, "no ready pod of r1")]
    assert pods.labels() == {name: value for name, value in ALL_IN.items() if name != "r1-0"}
    assert seen(pods.driver()).serving == {"r0"}


def test_one_pod_that_comes_back_into_a_drained_replica_is_seen_and_put_right(pods):
    told(pods.driver(), route(drained=("r0",)))
    pods.label("r0-1", **{LABEL: "true"})
    assert seen(pods.driver()).serving == {"r0", "r1"}
    assert told(pods.driver(), route(drained=("r0",))) == [APPLIED]
    assert seen(pods.driver()).serving == {"r1"}


def unready(pods):
    scheduled = {"type": "PodScheduled", "status": "True"}
    pods.status("ref-0", conditions=[scheduled, {"type": "Ready", "status": "False"}])


def evicted(pods):
    pods.status("ref-0", phase="Failed", reason="Evicted")


def ending(pods):
    """Deleted, and still there: a finalizer holds it, as a grace period does where a kubelet runs."""
    pods.api.call(
        "PATCH", f"{pods.path}/ref-0", {"metadata": {"finalizers": ["paritas.dev/test"]}}, content_type=MERGE
    )
    pods.delete("ref-0")
    assert "ref-0" in pods.labels()


def deleted(pods):
    pods.delete("ref-0")


@pytest.mark.parametrize("happened", [unready, evicted, ending, deleted])
def test_nobody_leaves_for_a_replica_that_cannot_answer(pods, happened):
    told(pods.driver(), route())
    happened(pods)
    said = told(pods.driver(), route(inference=0.0))
    assert said == [(Outcome.FAILED, NONE_READY.format(pods.namespace))]
    labels = pods.labels()
    assert [labels[name] for name in ("r0-0", "r0-1", "r1-0")] == ["true"] * 3
    assert seen(pods.driver()).serving == {"r0", "r1"}


def losing(pods, *, pod):
    """A driver between whose first list and patch `pod` is deleted."""

    class Losing(KubernetesLabelDriver):
        async def _found(self):
            found = await super()._found()
            if pod in pods.labels():
                pods.delete(pod)
            return found

    return pods.driver(Losing)


def test_a_pod_deleted_between_list_and_patch_is_no_error(pods):
    assert told(losing(pods, pod="r0-1"), route()) == [APPLIED]
    assert pods.labels() == {name: value for name, value in ALL_IN.items() if name != "r0-1"}


def test_nobody_leaves_for_a_pod_that_was_deleted_meanwhile(pods):
    told(pods.driver(), route())
    said = told(losing(pods, pod="ref-0"), route(inference=0.0))
    assert said == [(Outcome.FAILED, NONE_READY.format(pods.namespace))]
    assert set(pods.labels().values()) == {"true"}


def test_a_pod_that_is_born_with_the_label_meanwhile_is_told(pods):
    class Growing(KubernetesLabelDriver):
        async def _label(self, chosen, value):
            done = await super()._label(chosen, value)
            if value == "false":
                pods.make("r0-2", "r0")
                pods.label("r0-2", **{LABEL: "true"})
            return done

    said = told(pods.driver(Growing), route(drained=("r0",)))
    assert said == [(Outcome.ACCEPTED, "the labels are not so yet: r0-2")]


def test_a_pod_of_two_replicas_is_refused_before_anything_changes(pods):
    before = pods.versions()
    said = told(pods.driver(targets={"r1": "app=vllm"}), route(drained=("r1",)))
    assert said == [
        (Outcome.FAILED, "pod 'r0-0' is of replica 'r0' and of 'r1'; nothing was changed"),
    ]
    assert pods.versions() == before


def test_a_selector_that_is_none_is_told_in_the_servers_words(pods):
    detail = refused(pods.driver(targets={"r0": "app=vllm,=r0"}))
    assert detail == "kubernetes-label: GET pods gave 400: found '=', expected: identifier after ','"


def test_a_selector_of_sets_is_a_selector_too(pods):
    targets = {"r0": "replica in (r0, ref)", "ref": "replica in (nobody)"}
    assert told(pods.driver(targets=targets), route()) == [APPLIED]
    assert pods.labels() == dict.fromkeys(PODS, "true")


def test_an_account_without_the_role_is_told_in_the_servers_words(pods):
    pods.token_file.write_text("stranger-token")
    assert refused(pods.driver()) == (
        'kubernetes-label: GET pods gave 403: pods is forbidden: User "stranger" cannot list resource "pods" '
        f'in API group "" in the namespace "{pods.namespace}"'
    )


def test_an_account_that_may_only_read_observes_and_changes_nothing(pods):
    told(pods.driver(), route())
    role = ROLE.read_text().replace("namespace: serving", f"namespace: {pods.namespace}")
    role = role.replace("name: paritas-label-driver", "name: reader").replace("[list, patch]", "[list]")
    subject = "{kind: ServiceAccount, name: paritas-controller, namespace: paritas}"
    user = "{kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}"
    pods.api.apply_text(role.replace(subject, user))
    pods.api.wait_allowed("reader", "list", "pods", pods.namespace)
    pods.token_file.write_text("reader-token")
    ((outcome, detail),) = told(pods.driver(), route(drained=("r1",)))
    assert outcome is Outcome.FAILED
    assert detail == (
        'kubernetes-label: PATCH pods/r1-0 gave 403: pods "r1-0" is forbidden: User "reader" cannot patch '
        f'resource "pods" in API group "" in the namespace "{pods.namespace}"'
    )
    assert pods.labels() == ALL_IN
    assert seen(pods.driver()).serving == {"r0", "r1"}


def test_the_role_of_the_example_is_enough_and_no_more(pods):

    token = pods.token_file.read_text().strip()
    beyond = [("GET", f"{pods.path}/r0-0"), ("DELETE", f"{pods.path}/r0-0"), ("GET", "/api/v1/pods")]
    for method, path in beyond:
        with pytest.raises(RefusedError) as caught:
            pods.api.call(method, path, token=token)
        assert caught.value.status == 403
    assert told(pods.driver(), route()) == [APPLIED]


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"activeDeadlineSeconds": 60}},
        {"spec": {"containers": [{"name": "engine", "image": "another"}]}},
        {"metadata": {"labels": {"replica": "r0"}}},
        {"metadata": {"labels": {"replica": None}}},
        {"metadata": {"labels": {"tier": "gold"}}},
        {"metadata": {"annotations": {"note": "x"}}},
        {"metadata": {"finalizers": ["paritas.dev/test"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}},
    ],
)
def test_with_the_policy_of_the_example_the_account_changes_the_label_alone(pods, change):

    token = pods.token_file.read_text().strip()

    def refusal():
        try:
            pods.api.call(
                "PATCH",
                f"{pods.path}/r1-0?dryRun=All",
                change,
                token=token,
                content_type="application/strategic-merge-patch+json",
            )
        except RefusedError as error:
            return str(error)
        return ""

    pods.api.apply_text(POLICY.read_text())
    said = "denied request: the controller may change the label paritas.dev/eligible only"
    wait_until(
        lambda: refusal().endswith(said), "the policy is followed"
    )  # at first it may not be ready to judge
    assert told(pods.driver(), route(), route(inference=0.0), route()) == [APPLIED] * 3


def test_a_wrong_token_is_a_failure_and_the_renewed_one_is_used_by_the_same_driver(pods):
    right = pods.token_file.read_text()
    driver = pods.driver()

    async def scene():
        found = []
        async with driver:
            for token in ("expired", right, "expired again"):
                pods.token_file.write_text(token)
                found += await driver.apply([route()])
        return [(applied.outcome, applied.detail) for applied in found]

    wrong = (Outcome.FAILED, "kubernetes-label: GET pods gave 401: Unauthorized")
    assert asyncio.run(scene()) == [wrong, APPLIED, wrong]


def test_a_token_file_in_renewal_is_a_failure_not_an_end(pods):
    pods.token_file.unlink()
    detail = refused(pods.driver())
    assert detail == (
        f"kubernetes-label: cannot read key file {str(pods.token_file)!r}: No such file or directory"
    )


def test_a_server_that_is_down_is_a_failure_and_the_same_driver_goes_on_when_it_is_back(pods):
    driver = pods.driver()

    async def scene():
        async with driver:
            said = [*await driver.apply([route()])]
            await asyncio.to_thread(pods.api.stop)
            said += await driver.apply([route(drained=("r1",))])
            with pytest.raises(TransientError, match=r"^kubernetes-label: GET pods failed: Cannot connect "):
                await driver.observe()
            await asyncio.to_thread(pods.api.start)
            return [*said, *await driver.apply([route(drained=("r1",))])]

    first, down, back = asyncio.run(scene())
    assert (first.outcome, down.outcome, back.outcome) == (Outcome.APPLIED, Outcome.FAILED, Outcome.APPLIED)
    assert down.detail.startswith("kubernetes-label: GET pods failed: Cannot connect to host 127.0.0.1:")
    assert pods.labels() == ALL_IN | {"r1-0": "false"}


def test_a_server_that_says_nothing_is_a_failure_after_the_limit(pods):
    process = pods.api.part.process
    process.send_signal(signal.SIGSTOP)
    try:
        detail = refused(pods.driver(request_s=0.2))
    finally:
        process.send_signal(signal.SIGCONT)
    assert detail.startswith("kubernetes-label: GET pods failed: ")
    assert told(pods.driver(), route()) == [APPLIED]


def test_a_server_with_another_certificate_gets_no_token(pods, tmp_path):
    detail = refused(pods.driver(ca_file=self_signed(tmp_path).certificate))
    assert "certificate verify failed" in detail
    assert set(pods.labels().values()) == {None}


def test_the_documented_role_is_the_example():
    page = (Path(__file__).parents[2] / "docs" / "routing.md").read_text()
    shown = ROLE.read_text().split("---\n", 1)[1]
    assert f"```text\n{shown}```\n" in page
