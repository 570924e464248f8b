"""One dedicated pod label, patched and read back: whatever selects by it routes accordingly.  Needs aiohttp.

Add the label to the selector of the Service, InferencePool or router, never to that of the ReplicaSet:
a pod that leaves its ReplicaSet's selector is orphaned and another one takes its GPU.  New pods should
be born with the label at "false", so that they wait for a verdict.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from paritas.clock import Clock
from paritas.controller.drivers.driver import Applied, Observed, Outcome
from paritas.controller.drivers.kubernetes_pods import KubernetesSettings, Pod, PodApi
from paritas.controller.drivers.members import members_of
from paritas.controller.drivers.outcomes import outcomes
from paritas.controller.routing.model import Fleet, Replica, Route

__all__ = ["IN", "OUT", "KubernetesLabelDriver", "KubernetesSettings"]

IN, OUT = "true", "false"
Found = Mapping[str, Sequence[Pod]]  # by replica


class KubernetesLabelDriver:
    """Labels the pods of each replica; its target is a pod's name or a selector such as ``app=vllm,kernel=bf16``.

    Pods that no replica selects are shown if they carry the label, and left alone.

    Parameters
    ----------
    settings : KubernetesSettings
        Which cluster.
    fleet : Fleet
        Who may be in rotation.
    clock : Clock
        For how long a change took.

    Raises
    ------
    UsageError
        The certificate of the cluster cannot be read.
    """

    name = "kubernetes-label"

    def __init__(self, settings: KubernetesSettings, fleet: Fleet, clock: Clock) -> None:
        self._settings, self._fleet, self._clock = settings, fleet, clock
        self._api = PodApi(settings)

    async def __aenter__(self) -> Self:
        await self._api.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._api.__aexit__(kind, error, trace)

    async def apply(self, routes: Sequence[Route]) -> Sequence[Applied]:
        """Label those who come in, then those who go out, and read all of them back."""
        members = members_of(self._fleet, routes)
        move = partial(self._move, members.wanted)
        return await outcomes(routes, members.unsupported, move, clock=self._clock)

    async def observe(self) -> Observed:
        """Ask for the pods: a replica serves when one of its pods is ready and labelled in.

        Raises
        ------
        TransientError
            The API server cannot be asked.
        """
        found = await self._found()
        serving = {name for name, pods in found.items() if any(p.ready and p.value == IN for p in pods)}
        known = {pod.name for pods in found.values() for pod in pods}
        inside = await self._api.pods(f"{self._settings.label}={IN}")
        return Observed(
            serving=frozenset(serving), unknown=tuple(p.name for p in inside if p.name not in known)
        )

    async def _move(self, wanted: Sequence[Replica]) -> tuple[Outcome, str]:
        if not wanted:
            return Outcome.FAILED, "no replica would be left in rotation; nothing was changed"
        names, found = {replica.name for replica in wanted}, await self._found()
        if claimed := _claimed_twice(found):
            return Outcome.FAILED, f"{claimed}; nothing was changed"
        inside = await self._label([pod for name in sorted(names) for pod in found[name]], IN)
        if not any(pod.ready for pod in inside):
            where = f"in namespace {self._settings.namespace!r}"
            return Outcome.FAILED, f"no wanted replica has a ready pod {where}; none was labelled out"
        await self._label([pod for name in found if name not in names for pod in found[name]], OUT)
        return _judged(await self._found(), names)

    async def _found(self) -> Found:
        return {r.name: await self._api.pods(r.target or r.name) for r in self._fleet.replicas}

    async def _label(self, pods: Sequence[Pod], value: str) -> Sequence[Pod]:
        """Give pods the label where it differs; return those that are still there."""
        labelled = [pod if pod.value == value else await self._api.label(pod, value) for pod in pods]
        return [pod for pod in labelled if pod is not None]


def _claimed_twice(found: Found) -> str:
    """A pod of two replicas would be labelled in and out again, in turn, at every round."""
    owners: dict[str, str] = {}
    for name, pods in found.items():
        for pod in pods:
            if (owner := owners.setdefault(pod.name, name)) != name:
                return f"pod {pod.name!r} is of replica {owner!r} and of {name!r}"
    return ""


def _judged(found: Found, wanted: set[str]) -> tuple[Outcome, str]:
    """What was read back: the labels first, then who can answer."""
    off = [p.name for n, pods in found.items() for p in pods if (p.value == IN) != (n in wanted)]
    if off:
        return Outcome.ACCEPTED, f"the labels are not so yet: {', '.join(off)}"
    idle = [name for name in sorted(wanted) if not any(pod.ready for pod in found[name])]
    return (Outcome.ACCEPTED, f"no ready pod of {', '.join(idle)}") if idle else (Outcome.APPLIED, "")
