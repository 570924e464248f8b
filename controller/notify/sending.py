"""One message to one receiver over HTTP; says what went wrong in one line.  Needs aiohttp."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from io import BytesIO

import aiohttp

from paritas.clock import NS_PER_S
from paritas.controller.notify.looking_up import Resolver
from paritas.controller.notify.model import Receiver, ReceiverKind
from paritas.controller.secret_files import bearer, read_secret
from paritas.controller.signatures import authority, is_private, signed_headers, signing_key
from paritas.errors import TransientError, UsageError

__all__ = ["Message", "Undelivered", "UndeliveredError", "send", "url_of"]


class Undelivered(StrEnum):
    """Why a message was not taken; the names of what is counted."""

    REFUSED = "refused"  # another status, a redirect too
    TIMED_OUT = "timed_out"  # also one that answers on and on, and never to the end
    UNREACHABLE = "unreachable"
    BROKEN = "broken"  # what it says is no answer in HTTP, or breaks off
    UNUSABLE = "unusable"  # our side: the URL, or a file that holds it or the key


class UndeliveredError(TransientError):
    """A receiver did not take a message, for `reason`; the text never holds the URL, which may be a secret.

    Examples
    --------
    >>> str(UndeliveredError("receiver 'ops' answered 503", reason=Undelivered.REFUSED))
    "receiver 'ops' answered 503"
    """

    def __init__(self, message: str, *, reason: Undelivered, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent to one receiver, decided and rendered at `made_ns`."""

    receiver: Receiver
    body: bytes
    message_id: str
    made_ns: int


def url_of(receiver: Receiver) -> str:
    """Return where messages go.

    Raises
    ------
    UsageError
        There is not exactly one of `url` and `url_file`, the file cannot be read, the URL is neither https nor
        on this machine, or it holds a password beside a bearer token.
    """
    if bool(receiver.url) == (receiver.url_file is not None):
        raise UsageError(f"receiver {receiver.name!r}: give either url or url_file")
    url = (
        receiver.url
        if receiver.url_file is None
        else read_secret(receiver.url_file).decode("utf-8", "replace")
    )
    if not is_private(url):
        where = "url" if receiver.url else "the URL in url_file"
        raise UsageError(f"receiver {receiver.name!r}: {where} is neither https nor on this machine")
    if receiver.key_file is not None and receiver.kind is not ReceiverKind.WEBHOOK and "@" in authority(url):
        raise UsageError(f"receiver {receiver.name!r}: give either key_file or a password in the URL")
    return url if receiver.kind is not ReceiverKind.ALERTMANAGER else f"{url.rstrip('/')}/api/v2/alerts"


async def send(message: Message, *, deadline_s: float) -> None:
    """Post `message`; return when the receiver has taken it.

    Parameters
    ----------
    deadline_s : float
        For all of it, from the look-up of the name to the head of the answer: a limit of each read would
        let a receiver that drips one byte at a time hold on for ever.  The answer's body is not read.

    Raises
    ------
    UndeliveredError
        The receiver did not take it, or its files cannot be used.
    """
    who = f"receiver {message.receiver.name!r}"
    try:
        async with asyncio.timeout(deadline_s):
            status = await _post(message)
    except UsageError as error:
        raise UndeliveredError(str(error), reason=Undelivered.UNUSABLE, hint=error.hint) from error
    except TimeoutError as error:
        text = f"{who} did not answer within {deadline_s:g} s"
        raise UndeliveredError(text, reason=Undelivered.TIMED_OUT) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _explained(who, error) from error
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise UndeliveredError(f"{who} answered {status}", reason=Undelivered.REFUSED)


async def _post(message: Message) -> int:
    """A redirect would carry incidents, and a key, to a place nobody declared."""
    url, headers = url_of(message.receiver), _headers(message)
    body = BytesIO(message.body)  # a large one goes piece by piece, and the other lanes in between
    async with (
        _opened() as session,
        session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status


@asynccontextmanager
async def _opened() -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session for one message, which leaves nothing behind.

    No connection goes on to the next message, which might find it dead; there are no cookies, of which a
    receiver could hand out ever more; a proxy set for the internet is not used.
    """
    sockets: list[socket.socket] = []

    def connected(address: aiohttp.AddrInfoType) -> socket.socket:
        sockets.append(socket.socket(*address[:3]))
        return sockets[-1]

    connector = aiohttp.TCPConnector(force_close=True, socket_factory=connected, resolver=Resolver())
    timeout, jar = aiohttp.ClientTimeout(total=None), aiohttp.DummyCookieJar()  # the deadline is the caller's
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=jar) as session:
        try:
            yield session
        finally:
            for opened in sockets:  # else it would stay until a receiver that reads nothing has read it all
                with suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)


def _explained(who: str, error: Exception) -> UndeliveredError:
    """The words of most of these may hold the URL or the key; those of the operating system do not."""
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, OSError) and not isinstance(error, aiohttp.ClientError):
        text = f"{who} cannot be reached: {_words_of(error)}"
        return UndeliveredError(text, reason=Undelivered.UNREACHABLE)
    if isinstance(error, ValueError):
        text = f"{who} cannot be spoken to: {type(error).__name__}"
        return UndeliveredError(text, reason=Undelivered.UNUSABLE)
    text = f"{who} gave no answer in HTTP: {type(error).__name__}"
    return UndeliveredError(text, reason=Undelivered.BROKEN)


def _words_of(error: OSError) -> str:
    """What the system says of it; the event loop puts words of its own in their place, and keeps the number."""
    by_name = isinstance(error, socket.gaierror)  # its numbers are no errnos
    return os.strerror(error.errno) if error.errno and not by_name else error.strerror or str(error)


def _headers(message: Message) -> dict[str, str]:
    receiver = message.receiver
    headers = {"content-type": "application/json", "user-agent": "paritas"}
    if receiver.key_file is None:
        return headers
    if receiver.kind is not ReceiverKind.WEBHOOK:
        return headers | bearer(receiver.key_file)
    key, timestamp_s = signing_key(receiver.key_file), message.made_ns // NS_PER_S
    return headers | signed_headers(
        key, message_id=message.message_id, timestamp_s=timestamp_s, body=message.body
    )
