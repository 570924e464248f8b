"""Two calls of the Kubernetes API, so no client library: list pods, merge-patch one pod's label.  Needs aiohttp."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from paritas.controller.http_client import HttpClient
from paritas.controller.kubernetes.words import refusal_words
from paritas.controller.secret_files import bearer
from paritas.errors import TransientError, UsageError

__all__ = ["KubernetesSettings", "Pod", "PodApi"]

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NAME = "kubernetes-label"
_OVER = ("Succeeded", "Failed")  # phases from which no pod comes back


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
        The account's token, read again for every request because it is renewed, and whom to trust.
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
        """Refuse what would show the token in the clear, and what names no pods."""
        if not self.server.startswith("https://"):
            raise UsageError(f"server: {self.server!r} is not an https URL")
        for name in ("namespace", "label"):
            if not getattr(self, name):
                raise UsageError(f"{name}: must not be empty")
        if not self.request_s > 0:
            raise UsageError(f"request_s: must be positive, got {self.request_s!r}")


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod that may serve: its name, the label's value ("" without it) and whether it is ready."""

    name: str
    value: str
    ready: bool


class PodApi(HttpClient):
    """The pods of one namespace; a context manager.

    Parameters
    ----------
    settings : KubernetesSettings
        Which cluster.

    Raises
    ------
    UsageError
        The certificate of the cluster cannot be read.
    """

    def __init__(self, settings: KubernetesSettings) -> None:
        super().__init__(f"{_NAME}: the driver", limit_s=settings.request_s)
        self._settings = settings
        self._tls = _trusting(settings.ca_file)
        self._pods = (
            f"{settings.server.rstrip('/')}/api/v1/namespaces/{quote(settings.namespace, safe='')}/pods"
        )

    async def pods(self, target: str) -> tuple[Pod, ...]:
        """Return the pods of a selector (it has ``=`` or ``(``) or of a name; not those that are ending or have ended.

        Raises
        ------
        TransientError
            The API server cannot be asked or says no.
        """
        selects = "=" in target or "(" in target  # neither can be in a pod's name
        query = {"labelSelector": target} if selects else {"fieldSelector": f"metadata.name={target}"}
        answer = await self._call("GET", "", params=query)
        try:
            return tuple(self._pod(item) for item in answer["items"] if _may_serve(item))
        except (KeyError, TypeError, AttributeError) as error:
            raise TransientError(f"{_NAME}: the answer is no list of pods") from error

    async def label(self, pod: Pod, value: str) -> Pod | None:
        """Give the pod the label; return what became of it, None if it is gone meanwhile.

        Raises
        ------
        TransientError
            The API server cannot be asked or says no.
        """
        body = {"metadata": {"labels": {self._settings.label: value}}}
        headers = {"content-type": "application/merge-patch+json"}
        answer = await self._call("PATCH", f"/{quote(pod.name, safe='')}", json=body, headers=headers)
        try:
            return self._pod(answer) if answer is not None and _may_serve(answer) else None
        except (KeyError, TypeError, AttributeError) as error:
            raise TransientError(f"{_NAME}: the answer is no pod") from error

    def _pod(self, item: Mapping[str, Any]) -> Pod:
        place = item["metadata"]
        conditions = item["status"].get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        return Pod(place["name"], (place.get("labels") or {}).get(self._settings.label, ""), ready)

    async def _call(self, method: str, path: str, **content: Any) -> Any:
        """Return the answer; None for a pod that is not there."""
        session = self.session
        content["headers"] = content.get("headers", {}) | self._token()
        content |= {"ssl": self._tls, "allow_redirects": False}  # the token is for this server alone
        try:
            async with session.request(method, self._pods + path, **content) as answer:
                if path and answer.status == HTTPStatus.NOT_FOUND:
                    return None
                if answer.status != HTTPStatus.OK:
                    why = f"{answer.status}: {refusal_words(await answer.text())}"
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


def _may_serve(item: Mapping[str, Any]) -> bool:
    """No pod that is being deleted, as it takes no new request, and none that has ended, as of an eviction."""
    return "deletionTimestamp" not in item["metadata"] and item["status"].get("phase") not in _OVER


def _trusting(ca_file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:
        reason = error.strerror or "it holds no certificate"
        raise UsageError(f"{_NAME}: cannot use {str(ca_file)!r}: {reason}") from error
