"""A signed webhook: whoever routes gets the desired state, and can prove who sent it.  Needs aiohttp."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from paritas.clock import NS_PER_S, Clock
from paritas.controller.drivers.document import document_of, encoded, observed_of
from paritas.controller.drivers.driver import Applied, Observed, Outcome
from paritas.controller.drivers.outcomes import outcomes
from paritas.controller.http_client import HttpClient
from paritas.controller.routing.model import Fleet, Route
from paritas.controller.signatures import is_private, signed_headers, signing_key
from paritas.errors import TransientError, UsageError

__all__ = ["WebhookDriver", "WebhookSettings"]

_ANSWER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where to send, with which key, and where to read back.

    Attributes
    ----------
    url : str
        Receives POST; https, or this machine.
    key_file : Path
        Holds the key both sides know.
    observe_url : str
        Answers GET with the document that is in effect; "" if there is none, and then a route is
        only ever `accepted`.
    request_s : float
        Limit of one request.
    """

    url: str
    key_file: Path
    observe_url: str = ""
    request_s: float = 2.0

    def __post_init__(self) -> None:
        """Refuse what would send routes in the clear."""
        for name in ("url", "observe_url"):
            if (url := getattr(self, name)) and not is_private(url):
                message = f"{name}: {url!r} is neither https nor on this machine"
                raise UsageError(message, hint="routes must not be forged on the way")
        if not self.request_s > 0:
            raise UsageError(f"request_s: must be positive, got {self.request_s!r}")


class WebhookDriver(HttpClient):
    """Sends every desired state whole; the receiver keeps the newest revision.

    Parameters
    ----------
    settings : WebhookSettings
        Where to.
    fleet : Fleet
        Whose routes.
    clock : Clock
        Stamps each message, so that a replayed one is seen to be old.

    Raises
    ------
    UsageError
        The key file cannot be read.
    """

    name = "webhook"

    def __init__(self, settings: WebhookSettings, fleet: Fleet, clock: Clock) -> None:
        super().__init__("webhook: the driver", limit_s=settings.request_s)
        self._settings, self._fleet, self._clock = settings, fleet, clock
        self._key = signing_key(settings.key_file)

    async def apply(self, routes: Sequence[Route]) -> Sequence[Applied]:
        """Send, then read back where that is possible."""
        return await outcomes(routes, {}, partial(self._tell, routes), clock=self._clock)

    async def observe(self) -> Observed:
        """Ask what is in effect.

        Raises
        ------
        TransientError
            There is nobody to ask, or the answer is no document of this fleet.
        """
        if not self._settings.observe_url:
            raise TransientError("webhook: no observe_url is set; what is in effect is not known")
        try:
            return observed_of(self._fleet, json.loads(await self._call("GET", self._settings.observe_url)))
        except ValueError as error:
            raise TransientError(f"webhook: {self._settings.observe_url} gave no routes: {error}") from error

    async def _tell(self, routes: Sequence[Route]) -> tuple[Outcome, str]:
        document = document_of(self._fleet, routes)
        await self._send(encoded(document), revision=max((r.revision for r in routes), default=0))
        return await self._confirm(document)

    async def _confirm(self, document: dict[str, Any]) -> tuple[Outcome, str]:
        if not self._settings.observe_url:
            return Outcome.ACCEPTED, "no observe_url is set"
        if await self.observe() == observed_of(self._fleet, document):
            return Outcome.APPLIED, ""
        return Outcome.ACCEPTED, "the receiver does not show it yet"

    async def _send(self, body: bytes, *, revision: int) -> None:
        message_id = f"{self._fleet.policy}-{revision}"
        timestamp_s = self._clock.now_ns() // NS_PER_S
        headers = {"content-type": "application/json"}
        headers |= signed_headers(self._key, message_id=message_id, timestamp_s=timestamp_s, body=body)
        await self._call("POST", self._settings.url, data=body, headers=headers)

    async def _call(self, method: str, url: str, **content: Any) -> bytes:
        """Redirects are not followed: they would carry signed routes to a place nobody declared."""
        try:
            async with self.session.request(method, url, allow_redirects=False, **content) as answer:
                if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
                    raise TransientError(f"webhook: {method} {url} gave {answer.status}")
                return await _whole(answer.content)
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise TransientError(f"webhook: {method} {url} failed: {reason}") from error


async def _whole(content: aiohttp.StreamReader) -> bytes:
    """Return an answer, however many pieces it comes in; TransientError when it is too long for a document."""
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > _ANSWER_BYTES:
            raise TransientError(f"webhook: the answer has more than {_ANSWER_BYTES} bytes")
    return bytes(body)
