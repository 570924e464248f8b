"""One dedicated pod label, patched and read back: whatever selects by it routes accordingly.  Needs aiohttp.

Add the label to the selector of the Service, InferencePool or router, never to that of the ReplicaSet:
a pod that leaves its ReplicaSet's selector is orphaned and another one takes its GPU.  New pods should
be born with the label at "false", so that they wait for a verdict.

Two calls of the Kubernetes API, so no client library: list pods, merge-patch one pod's labels.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp

from paritas.clock import NS_PER_S, Clock
from paritas.controller.drivers.driver import Applied, Observed, Outcome
from paritas.controller.drivers.members import members_of
from paritas.controller.routing.model import Fleet, Replica, Route
from paritas.controller.secret_files import bearer
from paritas.errors import TransientError, UsageError

__all__ = ["IN", "OUT", "KubernetesLabelDriver", "KubernetesSettings"]

IN, OUT = "true", "false"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NAME = "kubernetes-label"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Which pods of which cluster; the defaults are those of a pod with a service account.

    Attributes
    ----------
    namespace : str
        Where the pods are.
    label : str
        The dedicated label; its values are "true" and "false".
    server : str
        Base URL of the API server, https.
    token_file, ca_file : Path
        The account's token, read again for every change because it is renewed, and whom to trust.
    request_s : float
        Limit of one request.
    """

    namespace: str
    label: str = "paritas.dev/eligible"
    server: str = "https://kubernetes.default.svc"
    token_file: Path = _ACCOUNT / "token"
    ca_file: Path = _ACCOUNT / "ca.crt"
    request_s: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what would show the token in the clear."""
        if not self.server.startswith("https://"):
            raise UsageError(f"server: {self.server!r} is not an https URL")
        if not self.request_s > 0:
            raise UsageError(f"request_s: must be positive, got {self.request_s!r}")


@dataclass(frozen=True, slots=True)
class _Pod:
    name: str
    value: str  # of the label; "" without it


class KubernetesLabelDriver:
    """Labels the pods of each replica; its target is a pod's name or a selector such as ``app=vllm,kernel=bf16``.

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

    name = _NAME

    def __init__(self, settings: KubernetesSettings, fleet: Fleet, clock: Clock) -> None:
        self._settings, self._fleet, self._clock = settings, fleet, clock
        self._tls = _trusting(settings.ca_file)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._settings.request_s)
        self._session = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def apply(self, routes: Sequence[Route]) -> Sequence[Applied]:
        """Label those who come in, then those who go out, and read all of them back."""
        started_ns = self._clock.monotonic_ns()
        members = members_of(self._fleet, routes)
        try:
            outcome, detail = await self._move(members.wanted)
        except TransientError as error:
            outcome, detail = Outcome.FAILED, str(error)
        took_s = (self._clock.monotonic_ns() - started_ns) / NS_PER_S
        return [
            Applied(route.key, Outcome.UNSUPPORTED, members.unsupported[route.key])
            if route.key in members.unsupported
            else Applied(route.key, outcome, detail, took_s)
            for route in routes
        ]

    async def observe(self) -> Observed:
        """Ask for the pods: a replica serves when it has pods and all of them are labelled in.

        Raises
        ------
        TransientError
            The API server cannot be asked.
        """
        found = {replica.name: await self._pods(replica) for replica in self._fleet.replicas}
        serving = {name for name, pods in found.items() if pods and all(pod.value == IN for pod in pods)}
        return Observed(serving=frozenset(serving))

    async def _move(self, wanted: Sequence[Replica]) -> tuple[Outcome, str]:
        if not wanted:
            return Outcome.FAILED, "no replica would be left in rotation; nothing was changed"
        names = {replica.name for replica in wanted}
        podless = [replica.name for replica in wanted if not await self._label(replica, IN)]
        if len(podless) == len(wanted):
            return Outcome.FAILED, "no wanted replica has a pod; none was labelled out"
        for replica in self._fleet.replicas:
            if replica.name not in names:
                await self._label(replica, OUT)
        return self._judged((await self.observe()).serving, names, podless)

    @staticmethod
    def _judged(serving: frozenset[str], wanted: set[str], podless: Sequence[str]) -> tuple[Outcome, str]:
        if podless:
            return Outcome.ACCEPTED, f"no pod of {', '.join(podless)}"
        return (Outcome.APPLIED, "") if serving == wanted else (Outcome.ACCEPTED, "the labels are not so yet")

    async def _label(self, replica: Replica, value: str) -> int:
        """Give the replica's pods the label where it differs; return how many pods there are."""
        pods = await self._pods(replica)
        for pod in pods:
            if pod.value != value:
                await self._patch(pod.name, value)
        return len(pods)

    async def _pods(self, replica: Replica) -> list[_Pod]:
        target = replica.target or replica.name
        query = {"labelSelector": target} if "=" in target else {"fieldSelector": f"metadata.name={target}"}
        answer = await self._call("GET", "", params=query)
        try:
            items = [item["metadata"] for item in answer["items"]]
            return [_Pod(i["name"], (i.get("labels") or {}).get(self._settings.label, "")) for i in items]
        except (KeyError, TypeError, AttributeError) as error:
            raise TransientError(f"{_NAME}: the answer is no list of pods") from error

    async def _patch(self, pod: str, value: str) -> None:
        """A pod that is gone meanwhile needs no label."""
        body = {"metadata": {"labels": {self._settings.label: value}}}
        headers = {"content-type": "application/merge-patch+json"}
        await self._call(
            "PATCH", f"/{quote(pod, safe='')}", json=body, headers=headers, allowed=HTTPStatus.NOT_FOUND
        )

    async def _call(self, method: str, path: str, *, allowed: int = 0, **content: Any) -> Any:
        if self._session is None:
            raise TransientError(f"{_NAME}: the driver is not open")
        url = f"{self._settings.server.rstrip('/')}/api/v1/namespaces/{quote(self._settings.namespace)}/pods{path}"
        content["headers"] = content.get("headers", {}) | self._token()
        try:
            async with self._session.request(method, url, ssl=self._tls, **content) as answer:
                if answer.status >= HTTPStatus.BAD_REQUEST and answer.status != allowed:
                    why = f"{answer.status}: {(await answer.text())[:200]}"
                    raise TransientError(f"{_NAME}: {method} pods{path} gave {why}")
                return await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise TransientError(f"{_NAME}: {method} pods{path} failed: {reason}") from error

    def _token(self) -> dict[str, str]:
        try:
            return bearer(self._settings.token_file)
        except UsageError as error:  # it was there at the start; it may be in renewal
            raise TransientError(f"{_NAME}: {error}") from error


def _trusting(ca_file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:
        reason = error.strerror or "it holds no certificate"
        raise UsageError(f"{_NAME}: cannot use {str(ca_file)!r}: {reason}") from error
