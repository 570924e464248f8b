"""Listing and watching the pods of one namespace; needs aiohttp."""

import json
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import aiohttp

from paritas.controller.http_client import HttpClient
from paritas.controller.kubernetes.access import ClusterAccess
from paritas.controller.kubernetes.members import slim
from paritas.controller.kubernetes.words import refusal_words
from paritas.errors import TransientError

__all__ = ["ExpiredError", "PodSource"]

PAGE = 500  # pods of one answer
WATCH_S = 60.0  # of one watch: a connection that died unseen is noticed a little later
QUIET_S = 15.0  # beyond it
REQUEST_S = 30.0
LINE_BYTES = 8 << 20  # a pod has a megabyte at most

Event = tuple[str, Mapping[str, Any]]


class ExpiredError(TransientError):
    """What the watch would go on from is no longer known: list again."""


class PodSource(HttpClient):
    """The pods of one namespace that a label selector names; a context manager.

    Parameters
    ----------
    access : ClusterAccess
    namespace, selector : str
    watch_s : float, seconds
        How long one watch lasts.
    page : int
        Pods of one answer.
    """

    def __init__(
        self,
        access: ClusterAccess,
        *,
        namespace: str,
        selector: str,
        watch_s: float = WATCH_S,
        page: int = PAGE,
    ) -> None:
        super().__init__("the source of pods", limit_s=REQUEST_S)
        self._access, self._selector, self._watch_s, self._limit = access, selector, watch_s, page
        self._url = f"{access.server.rstrip('/')}/api/v1/namespaces/{quote(namespace, safe='')}/pods"

    async def listed(self) -> tuple[list[Mapping[str, Any]], str]:
        """Return every pod, with what `member_of` reads of it, and the version from which to watch.

        Raises
        ------
        TransientError
            The API server cannot be asked or says no.
        """
        pods: list[Mapping[str, Any]] = []
        more: dict[str, str] = {}
        while True:
            answer = await self._page({"limit": str(self._limit), **more})
            try:
                pods += [slim(pod) for pod in answer["items"]]  # page by page: all of them whole do not fit
                version, token = answer["metadata"]["resourceVersion"], answer["metadata"].get("continue")
            except (KeyError, TypeError, AttributeError) as error:
                raise TransientError("the answer is no list of pods") from error
            if not token:
                return pods, version
            more = {"continue": token}

    async def _page(self, query: Mapping[str, str]) -> Any:
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        async with self._get("list", query, timeout) as answer:
            try:
                return await answer.json(content_type=None)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise _failed("list", error) from error

    async def events(self, version: str) -> AsyncIterator[Event]:
        """Yield what happens after a version, until the server ends the watch; bookmarks among it.

        Raises
        ------
        ExpiredError
            The version is too old.
        TransientError
            The API server cannot be asked, says no, or went away.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_S, sock_read=self._watch_s + QUIET_S)
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        query["timeoutSeconds"] = str(max(round(self._watch_s), 1))
        async with self._get("watch", query, timeout) as answer:
            async for line in _lines(answer):
                yield _event(line)

    def _get(self, verb: str, query: Mapping[str, str], timeout: aiohttp.ClientTimeout) -> "_Asked":
        request = self.session.get(
            self._url,
            params={"labelSelector": self._selector, **query},
            headers=self._access.headers(),
            ssl=self._access.tls,
            allow_redirects=False,  # the token is for this server alone
            timeout=timeout,
        )
        return _Asked(verb, request)


class _Asked:
    """An answer that is open while inside; everything but success is raised."""

    def __init__(self, verb: str, request: Any) -> None:
        self._verb, self._request = verb, request

    async def __aenter__(self) -> aiohttp.ClientResponse:
        try:
            answer: aiohttp.ClientResponse = await self._request.__aenter__()
            if answer.status == HTTPStatus.OK:
                return answer
            text = refusal_words(await answer.text())
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _failed(self._verb, error) from error
        answer.close()
        if answer.status == HTTPStatus.GONE:
            raise ExpiredError(f"{self._verb} pods gave 410: {text}")
        raise TransientError(f"{self._verb} pods gave {answer.status}: {text}")

    async def __aexit__(self, *reason: object) -> None:
        await self._request.__aexit__(*reason)


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The answer line by line; a pod may be longer than the library's own lines."""
    rest = bytearray()
    try:
        async for piece in answer.content.iter_any():
            rest += piece
            if b"\n" in piece:
                *whole, last = bytes(rest).split(b"\n")
                rest = bytearray(last)
                for line in filter(None, whole):
                    yield line
            if len(rest) > LINE_BYTES:
                raise TransientError("watch pods: an event without end")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _failed("watch", error) from error


def _event(line: bytes) -> Event:
    try:
        told = json.loads(line)
        kind, thing = told["type"], told["object"]
        code = thing.get("code") if kind == "ERROR" else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TransientError("watch pods: the answer is no event") from error
    if code == HTTPStatus.GONE:
        raise ExpiredError(f"watch pods gave 410: {refusal_words(json.dumps(thing))}")
    if kind == "ERROR":
        raise TransientError(f"watch pods gave {code}: {refusal_words(json.dumps(thing))}")
    return kind, thing


def _failed(verb: str, error: Exception) -> TransientError:
    return TransientError(f"{verb} pods failed: {str(error) or type(error).__name__}")
