"""Which pods count, from when, and that containers started again and again move nothing."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.controller.kubernetes.members import Member, Members, member_of, slim

NS = 1_000_000_000


def at(second):
    return f"1970-01-01T00:{second // 60:02}:{second % 60:02}Z"


def pod(name="pod-1", *, uid=None, phase="Running", containers=("engine",), deleted=False, **status):
    place = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": "1"}
    place |= {"deletionTimestamp": at(1)} if deleted else {}
    spec = {"containers": [{"name": one} for one in containers]}
    return {"metadata": place, "spec": spec, "status": {"phase": phase, "startTime": at(5)} | status}


def state(**phases):
    """The states of one container: phase → second at which it started."""
    states = {phase: {"startedAt": at(second)} for phase, second in phases.items() if phase != "last"}
    last = {"lastState": {"terminated": {"startedAt": at(phases["last"])}}} if "last" in phases else {}
    return {"state": states} | last


@pytest.mark.parametrize(
    ("told", "since"),
    [
        (pod(), 5),
        (pod(phase="Pending"), 0),
        (pod(phase="Unknown"), 0),
        (pod(containerStatuses=[state(running=40), state(running=30)]), 30),
        (pod(containerStatuses=[state(running=40, last=20)]), 20),
        (pod(containerStatuses=[state(terminated=25)]), 25),
        (pod(containerStatuses=[{"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {}}]), 5),
        (pod(initContainerStatuses=[state(terminated=6)], containerStatuses=[state(running=90)]), 90),
    ],
)
def test_a_pod_is_expected_from_when_its_first_container_started(told, since):
    assert member_of(told, container="paritas-agent") == Member(
        "pod-1", "uid-pod-1", since * NS, has_sidecar=False
    )


@pytest.mark.parametrize("told", [pod(deleted=True), pod(phase="Succeeded"), pod(phase="Failed")])
def test_a_pod_that_goes_or_has_ended_does_not_count(told):
    assert member_of(told, container="paritas-agent") is None


def test_a_sidecar_is_a_container_or_an_init_container_that_goes_on():
    native = pod()
    native["spec"]["initContainers"] = [{"name": "paritas-agent", "restartPolicy": "Always"}]
    assert member_of(native, container="paritas-agent").has_sidecar
    assert member_of(pod(containers=("engine", "paritas-agent")), container="paritas-agent").has_sidecar
    assert not member_of(pod(containers=("engine", "paritas-agent")), container="agent").has_sidecar


def test_a_pod_without_a_status_is_not_expected_yet():
    told = pod()
    del told["status"]
    assert member_of(told, container="a").since_ns == 0


def test_times_with_fractions_and_offsets_are_exact():
    told = pod(containerStatuses=[{"state": {"running": {"startedAt": "1970-01-01T01:00:00.000007+01:00"}}}])
    assert member_of(told, container="a").since_ns == 7000


def names(members):
    return {one.name: one.since_ns // NS for one in members.pods.values()}


def test_events_add_change_and_take_away_and_say_whether_anything_is_different():
    members = Members("paritas-agent")
    assert members.put([pod("a"), pod("b", phase="Pending"), pod("c", phase="Failed")])
    assert not members.put([pod("b", phase="Pending"), pod("a")])
    assert members.change("MODIFIED", pod("b", containerStatuses=[state(running=9)]))
    assert not members.change("MODIFIED", pod("b", containerStatuses=[state(running=9)]))
    assert names(members) == {"a": 5, "b": 9}
    assert members.change("MODIFIED", pod("a", deleted=True))
    assert not members.change("DELETED", pod("a", deleted=True))
    assert members.change("ADDED", pod("d"))
    assert members.change("DELETED", pod("b"))
    assert names(members) == {"d": 5}
    assert members.put([])
    assert names(members) == {}


def test_a_container_that_is_started_again_does_not_move_the_time_and_another_pod_by_the_name_does():
    members = Members("paritas-agent")
    members.put([pod("a", containerStatuses=[state(running=10)])])
    assert not members.change("MODIFIED", pod("a", containerStatuses=[state(running=70, last=40)]))
    assert not members.put([pod("a", containerStatuses=[state(running=99, last=70)])])
    assert names(members) == {"a": 10}
    members.change("DELETED", pod("a"))
    members.change("ADDED", pod("a", uid="another", containerStatuses=[state(running=99)]))
    assert names(members) == {"a": 99}


@pytest.mark.parametrize("broken", [{}, {"metadata": {}}, {"metadata": {"name": "a", "uid": "u"}}])
def test_what_is_no_pod_raises(broken):
    with pytest.raises(KeyError):
        Members("a").put([broken])


FIELDS = (
    *(
        "metadata",
        "spec",
        "status",
        "name",
        "uid",
        "deletionTimestamp",
        "containers",
        "initContainers",
        "phase",
    ),
    *(
        "startTime",
        "containerStatuses",
        "state",
        "lastState",
        "running",
        "terminated",
        "startedAt",
        "managedFields",
    ),
)
things = st.recursive(
    st.none() | st.sampled_from(["a", "Running", "Failed", at(7)]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=len(FIELDS))
    ),
    max_leaves=30,
)
stamps = st.fixed_dictionaries({"startedAt": st.sampled_from([at(3), at(9), "", None])})
states = st.dictionaries(st.sampled_from(["running", "terminated", "waiting"]), stamps, max_size=2)
pods = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"name": st.just("a"), "uid": st.just("u"), "labels": things}),
        "spec": st.fixed_dictionaries(
            {"containers": st.just([{"name": "engine", "env": []}])},
            optional={"initContainers": st.just([{"name": "x", "image": "i"}]), "volumes": things},
        ),
    },
    optional={
        "status": st.fixed_dictionaries(
            {"phase": st.sampled_from(["Running", "Pending", "Failed"]), "startTime": st.just(at(5))},
            optional={
                "containerStatuses": st.lists(st.fixed_dictionaries({"state": states, "lastState": states}))
            },
        )
    },
)


@given(pods | things)
@settings(deadline=None, max_examples=200)
def test_a_slim_pod_says_the_same_and_what_is_no_pod_is_as_wrong(told):
    assert said_of(slim(told)) == said_of(told)


def said_of(told):
    try:
        return member_of(told, container="x")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return type(error)


def test_a_slim_pod_is_slim():
    """A list of 4096 pods must fit into the 256 MiB that the chart gives the roster: they took 240 MiB whole."""
    whole = pod(containers=("engine", "paritas-agent"), containerStatuses=[state(running=40)])
    whole["metadata"] |= {"managedFields": [{"fieldsV1": "x" * 4000}], "annotations": {"a": "x" * 2000}}
    whole["spec"]["containers"][0] |= {"env": [{"name": "A", "value": "x" * 2000}], "image": "x"}
    whole["spec"]["volumes"] = [{"name": "x" * 1000}]
    assert len(json.dumps(whole)) > 9000
    assert len(json.dumps(slim(whole))) < 400
