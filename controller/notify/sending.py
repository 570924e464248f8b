"""One message to one receiver over HTTP, bounded in time; says what went wrong in one line."""

import urllib.error
import urllib.request
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

from paritas.clock import NS_PER_S
from paritas.controller.notify.model import Receiver, ReceiverKind
from paritas.controller.secret_files import bearer, read_secret
from paritas.controller.signatures import is_private, signed_headers, signing_key
from paritas.errors import TransientError, UsageError

__all__ = ["send", "url_of"]

_TIMEOUT_S = 10.0


def url_of(receiver: Receiver) -> str:
    """Return where messages go.

    Raises
    ------
    UsageError
        There is not exactly one of `url` and `url_file`, the file cannot be read, or the URL is neither
        https nor on this machine.
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
    return url if receiver.kind is not ReceiverKind.ALERTMANAGER else f"{url.rstrip('/')}/api/v2/alerts"


def send(receiver: Receiver, body: bytes, *, message_id: str, now_ns: int) -> None:
    """Post `body`; return when the receiver has taken it.

    Raises
    ------
    TransientError
        It did not: the message does not hold the URL, which may be a secret.
    UsageError
        The receiver's files cannot be used.
    """
    request = urllib.request.Request(url_of(receiver), data=body, method="POST")  # noqa: S310  # is_private
    for name, value in _headers(receiver, body, message_id=message_id, now_ns=now_ns).items():
        request.add_header(name, value)
    try:
        with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
            status = int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        raise TransientError(f"receiver {receiver.name!r} answered {error.code}") from error
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise TransientError(f"receiver {receiver.name!r} cannot be reached: {reason}") from error
    except (
        HTTPException,
        ValueError,
    ) as error:  # no HTTP there, or no URL: their words may hold the URL or the key
        message = f"receiver {receiver.name!r} cannot be spoken to: {type(error).__name__}"
        raise TransientError(message) from error
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        raise TransientError(f"receiver {receiver.name!r} answered {status}")


def _headers(receiver: Receiver, body: bytes, *, message_id: str, now_ns: int) -> dict[str, str]:
    headers = {"content-type": "application/json", "user-agent": "paritas"}
    if receiver.key_file is None:
        return headers
    if receiver.kind is not ReceiverKind.WEBHOOK:
        return headers | bearer(receiver.key_file)
    key = signing_key(receiver.key_file)
    return headers | signed_headers(key, message_id=message_id, timestamp_s=now_ns // NS_PER_S, body=body)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry incidents, and a key, to a place nobody declared."""

    def redirect_request(self, *_words: Any, **_more: Any) -> None:
        """Follow none; the status is an error then."""


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
