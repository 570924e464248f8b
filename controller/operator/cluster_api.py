"""Four calls of the Kubernetes API: list contracts, read and apply the ConfigMap, apply a status.  Needs kopf.

Kopf says where the API is and who we are: the pod's service account, else a kubeconfig.
"""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import aiohttp
import kopf

from paritas.contracts.cluster.definition import GROUP, PLURAL, VERSION
from paritas.controller.http_client import HttpClient
from paritas.controller.kubernetes.words import refusal_words
from paritas.controller.operator.depths import loaded_json
from paritas.controller.operator.model import FIELD_MANAGER, Item
from paritas.errors import PermanentError, TransientError, UsageError

__all__ = ["ClusterApi", "connection"]

REQUEST_S = 15.0
PAGE_ITEMS = 200  # objects of one answer of a list
_APPLY = {"content-type": "application/apply-patch+yaml"}
_WORDS = 2000  # characters of a refusal that are told
_BUSY = (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS)  # a token may be in renewal
_log = logging.getLogger(__name__)


def connection() -> kopf.ConnectionInfo:
    """Return where the cluster is and the credentials as they are now: tokens are renewed.

    Raises
    ------
    UsageError
        There is neither a service account nor a kubeconfig, or it cannot be read.
    """
    settings = kopf.OperatorSettings()
    try:
        found = kopf.login_with_service_account(settings=settings, logger=_log)
        if found is None:
            found = kopf.login_with_kubeconfig(settings=settings, logger=_log)
    except (OSError, ValueError, KeyError, AttributeError, kopf.LoginError) as error:
        message = f"no cluster: the service account or kubeconfig cannot be read: {error}"
        raise UsageError(message, hint="check KUBECONFIG") from error
    if not isinstance(found, kopf.ConnectionInfo):
        message = "no cluster: there is neither a service account nor a kubeconfig"
        raise UsageError(message, hint="run it in a pod, or set KUBECONFIG")
    return found


class ClusterApi(HttpClient):
    """The contracts of one namespace, or of all where it is empty; a context manager."""

    def __init__(self, namespace: str) -> None:
        super().__init__("the cluster", limit_s=REQUEST_S)
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        self._contracts = f"/apis/{GROUP}/{VERSION}{within}/{PLURAL}"

    async def contracts(self) -> list[dict[str, Any]]:
        """Return every contract object that is not being deleted.

        Raises
        ------
        TransientError
            From any call: the API server cannot be asked now.
        PermanentError
            From any call: it refuses, in its own words.
        """
        found: list[dict[str, Any]] = []
        query = {"limit": str(PAGE_ITEMS)}
        while True:
            answer = await self._call("GET", self._contracts, params=query)
            if answer is None:
                message = "the cluster knows no KernelContract: apply deploy/crd/kernelcontracts.yaml"
                raise TransientError(message)
            found += [o for o in answer["items"] if "deletionTimestamp" not in o["metadata"]]
            if not (following := answer["metadata"].get("continue")):
                return found
            query["continue"] = following

    async def config_map(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a ConfigMap; None if there is none."""
        found: dict[str, Any] | None = await self._call("GET", _config_map(namespace, name))
        return found

    async def apply_config_map(self, body: Mapping[str, Any]) -> None:
        """Make the ConfigMap, or change what is ours of it; keys of others must not be in it."""
        place = body["metadata"]
        path = f"{_config_map(place['namespace'], place['name'])}?fieldManager={FIELD_MANAGER}&force=true"
        await self._call("PATCH", path, data=_json(body), headers=_APPLY)

    async def apply_status(self, item: Item, status: Mapping[str, Any]) -> None:
        """Replace the status of an object; nothing if it is gone meanwhile."""
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{quote(item.namespace, safe='')}/{PLURAL}/{quote(item.name, safe='')}"
        metadata = {"name": item.name, "namespace": item.namespace, "uid": item.uid}
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "KernelContract", "metadata": metadata}
        query = f"fieldManager={FIELD_MANAGER}&force=true"
        await self._call(
            "PATCH", f"{path}/status?{query}", data=_json({**body, "status": status}), headers=_APPLY
        )

    async def _call(self, method: str, path: str, **content: Any) -> Any:
        """Return the answer; None for what is not there."""
        session, to = self.session, connection()
        content["headers"] = {**content.get("headers", {}), **to.as_http_headers()}
        content |= {
            "ssl": to.as_ssl_context(),
            "allow_redirects": False,
        }  # the token is for this server alone
        try:
            async with session.request(method, to.server.rstrip("/") + path, **content) as answer:
                if answer.status == HTTPStatus.NOT_FOUND:
                    return None
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransientError(
                f"the API server cannot be asked: {error or type(error).__name__}"
            ) from error
        return _read(answer.status, text)


def _read(status: int, text: str) -> Any:
    if status in {HTTPStatus.OK, HTTPStatus.CREATED}:
        return loaded_json(text)
    said = f"the API server says {status}: {refusal_words(text, most_chars=_WORDS)}"
    is_busy = status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    raise TransientError(said) if is_busy else PermanentError(said)


def _config_map(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"


def _json(body: Mapping[str, Any]) -> bytes:
    """The API server reads this as YAML, which knows no pairs of escapes: nothing is escaped that need not be."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
