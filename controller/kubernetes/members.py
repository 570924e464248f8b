"""Pods of the API → who is expected to report.  Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

__all__ = ["Member", "Members", "member_of", "slim"]

OVER = ("Succeeded", "Failed")  # phases from which no pod comes back
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What is read of a pod; None takes a field whole.
READ: Mapping[str, Any] = {
    "metadata": {"name": None, "uid": None, "deletionTimestamp": None},
    "spec": {"containers": {"name": None}, "initContainers": {"name": None}},
    "status": {"phase": None, "startTime": None, "containerStatuses": {"state": None, "lastState": None}},
}


@dataclass(frozen=True, slots=True)
class Member:
    """A pod that is there to stay.

    Attributes
    ----------
    name, uid : str
    since_ns : int
        Unix ns at which the first of its containers started; 0 before.
    has_sidecar : bool
        Whether a container of it is the agent.
    """

    name: str
    uid: str
    since_ns: int
    has_sidecar: bool


def slim(pod: Any) -> Any:
    """Return a pod with what `member_of` reads of it alone; what is no pod stays as wrong as it is.

    Four thousand whole pods are a quarter of a gigabyte.

    Examples
    --------
    >>> slim({"metadata": {"name": "a", "managedFields": []}, "spec": {"containers": [{"name": "e", "env": []}]}})
    {'metadata': {'name': 'a'}, 'spec': {'containers': [{'name': 'e'}]}}
    """
    return _picked(pod, READ)


def _picked(value: Any, wanted: Mapping[str, Any] | None) -> Any:
    if isinstance(value, list):
        return [_picked(item, wanted) for item in value]
    if wanted is None or not isinstance(value, dict):
        return value
    return {name: _picked(value[name], inner) for name, inner in wanted.items() if name in value}


def member_of(pod: Mapping[str, Any], *, container: str) -> Member | None:
    """Return what counts of a pod; None where it is being deleted or has ended.

    A pod is expected to report from when the first of its containers started, not those that prepare it: while
    images are pulled and weights are fetched there is nothing to report.

    Raises
    ------
    KeyError, TypeError, ValueError, AttributeError
        It is no pod.

    Examples
    --------
    >>> pod = {"metadata": {"name": "a", "uid": "u"}, "spec": {"containers": [{"name": "engine"}]},
    ...        "status": {"phase": "Running", "startTime": "1970-01-01T00:00:07Z"}}
    >>> member_of(pod, container="paritas-agent")
    Member(name='a', uid='u', since_ns=7000000000, has_sidecar=False)
    """
    place, status, spec = pod["metadata"], pod.get("status") or {}, pod["spec"]
    if "deletionTimestamp" in place or status.get("phase") in OVER:
        return None
    containers = [
        *spec["containers"],
        *(spec.get("initContainers") or ()),
    ]  # a native sidecar is among the latter
    has_sidecar = any(one["name"] == container for one in containers)
    since_ns = _since_ns(status) if status.get("phase") == "Running" else 0
    return Member(place["name"], place["uid"], since_ns, has_sidecar)


def _since_ns(status: Mapping[str, Any]) -> int:
    started = [
        _ns(state[phase]["startedAt"])
        for one in status.get("containerStatuses") or ()
        for state in (one.get("state") or {}, one.get("lastState") or {})
        for phase in ("running", "terminated")
        if (state.get(phase) or {}).get("startedAt")
    ]
    return min(started, default=_ns(status["startTime"]) if status.get("startTime") else 0)


def _ns(text: str) -> int:
    since = datetime.fromisoformat(text) - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000


@dataclass(slots=True)
class Members:
    """The pods of one namespace by uid.

    Attributes
    ----------
    container : str
        Name of the agent's container.
    pods : dict of str to Member
    """

    container: str
    pods: dict[str, Member] = field(default_factory=dict)

    def put(self, pods: Iterable[Mapping[str, Any]]) -> bool:
        """Take the whole list; return whether anything is different."""
        before = dict(self.pods)
        found = [self._kept(member_of(pod, container=self.container)) for pod in pods]
        self.pods = {member.uid: member for member in found if member is not None}
        return self.pods != before

    def change(self, kind: str, pod: Mapping[str, Any]) -> bool:
        """Take one event: ADDED, MODIFIED or DELETED; return whether anything is different."""
        uid = pod["metadata"]["uid"]
        before = self.pods.get(uid)
        after = None if kind == "DELETED" else self._kept(member_of(pod, container=self.container))
        if after is None:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = after
        return after != before

    def _kept(self, member: Member | None) -> Member | None:
        """Containers that are started again and again do not move the time from which their pod is expected."""
        known = self.pods.get(member.uid) if member else None
        return replace(member, since_ns=known.since_ns) if member and known and known.since_ns else member
