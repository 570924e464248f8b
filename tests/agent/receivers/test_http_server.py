"""The HTTP server where the machine has no thread left."""

import http.client
import logging
import socket
import threading
from http import HTTPStatus

import pytest

from paritas.agent.http_message import response
from paritas.agent.receivers.http_server import MAX_CONNECTIONS, HttpServer

PATIENT_S = 30.0


@pytest.fixture
def address():
    def answering(_request, _stream):
        return response(HTTPStatus.OK, b"here\n", "text/plain")

    with HttpServer(socket.create_server(("127.0.0.1", 0)), answering, name="http") as server:
        yield server.address


def asked(address):
    connection = http.client.HTTPConnection(address, timeout=PATIENT_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()


def test_connections_that_got_no_thread_leave_their_places_to_later_ones(address, monkeypatch, caplog):
    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL):
        # What a limit of processes does; a real one binds no root.
        patch.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("no thread")))
        for _ in range(MAX_CONNECTIONS + 1):
            with pytest.raises((http.client.HTTPException, OSError)):
                asked(address)
    assert asked(address) == 200
