"""``/healthz``, ``/readyz`` and ``/metrics`` over HTTP."""

from collections.abc import Callable
from http import HTTPStatus
from io import BufferedReader

from paritas.agent.health import Health
from paritas.agent.http_message import Request, response
from paritas.agent.metrics import CONTENT_TYPE
from paritas.agent.receivers.http_server import HttpServer
from paritas.agent.receivers.listening import listen_tcp

__all__ = ["health_page"]

TEXT = "text/plain; charset=utf-8"


def health_page(listen: str, *, health: Callable[[], Health], page: Callable[[], str]) -> HttpServer:
    """Return the server of health and metrics; enter it to serve.

    Parameters
    ----------
    health, page : callable
        The judgement now, and the metrics text.

    Raises
    ------
    UsageError
        The address cannot be bound.
    """

    def answer(request: Request, _stream: BufferedReader) -> bytes:
        return _answer(request.path.partition("?")[0], health, page)

    return HttpServer(listen_tcp(listen), answer, name="health")


def _answer(path: str, health: Callable[[], Health], page: Callable[[], str]) -> bytes:
    match path:
        case "/metrics":
            return response(HTTPStatus.OK, page().encode(), CONTENT_TYPE)
        case "/healthz":
            found = health()
            return _text(found.is_alive, "alive" if found.is_alive else found.text())
        case "/readyz":
            found = health()
            return _text(found.is_ready, found.text())
        case _:
            text = b"/healthz, /readyz and /metrics are served here\n"
            return response(HTTPStatus.NOT_FOUND, text, TEXT)


def _text(is_well: bool, text: str) -> bytes:
    status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
    return response(status, f"{text}\n".encode(), TEXT)
