"""Names whose look-up hangs: they hold up no other name, and not the end.

The system's look-up is replaced for them: no server of names can be had here that does not answer.
"""

import asyncio
import queue
import socket
import threading

import pytest
from escalation_examples import DEADLINE_S
from odd_servers import speaking

from paritas.controller.background import running
from paritas.controller.notify.lanes import Lanes
from paritas.controller.notify.looking_up import Resolver
from paritas.controller.notify.model import Receiver, ReceiverKind
from paritas.controller.notify.sending import Message, Undelivered

MORE_THAN_A_LOOP_HAS = 33  # threads of its own


class Hanging:
    """Look-ups that wait until they are let go, and then know nothing."""

    def __init__(self):
        self.let_go, self.ended = threading.Event(), queue.SimpleQueue()
        self._known = socket.getaddrinfo

    def look_up(self, host, *where, **how):
        if not host.endswith(".invalid"):
            return self._known(host, *where, **how)
        self.let_go.wait(DEADLINE_S)
        self.ended.put(host)
        raise socket.gaierror(socket.EAI_AGAIN, "let go")


@pytest.fixture
def hanging(monkeypatch):
    held = Hanging()
    monkeypatch.setattr(socket, "getaddrinfo", held.look_up)
    yield held
    held.let_go.set()
    for thread in threading.enumerate():
        if thread.name == "notify-name":
            thread.join(DEADLINE_S)


def message(url):
    return Message(Receiver("ops", ReceiverKind.SLACK, url), b"{}", "m-1", 0)


def test_names_that_hang_hold_up_no_other_name(hanging):
    landed = queue.SimpleQueue()
    with (
        speaking(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") as url,
        running(Lanes(landed.put, deadline_s=2 * DEADLINE_S), name="lanes") as lanes,
    ):
        for number in range(MORE_THAN_A_LOOP_HAS):
            lanes.post(message(f"https://{number}.invalid/"))
        lanes.post(message(url.replace("127.0.0.1", "localhost")))
        try:
            assert landed.get(timeout=DEADLINE_S).failure is None
        finally:
            hanging.let_go.set()
    reasons = [landed.get_nowait().failure.reason for _ in range(MORE_THAN_A_LOOP_HAS)]
    assert set(reasons) == {Undelivered.UNREACHABLE}


def test_a_name_that_hangs_is_left_at_the_deadline_and_does_not_hold_up_the_end(hanging):
    landed = queue.SimpleQueue()
    with running(Lanes(landed.put, deadline_s=0.1), name="lanes") as lanes:
        lanes.post(message("https://hooks.invalid/"))
    assert landed.get_nowait().failure.reason is Undelivered.TIMED_OUT
    assert hanging.ended.empty()


def test_addresses_are_those_of_the_system_also_where_one_holds_in_one_network_only(monkeypatch):
    tcp, near, far = socket.IPPROTO_TCP, ("fe80::1", 443, 0, 2), ("192.0.2.1", 443)
    told = [
        (socket.AF_INET6, socket.SOCK_STREAM, tcp, "", near),
        (socket.AF_INET, socket.SOCK_STREAM, tcp, "", far),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_where, **_how: told)
    found = asyncio.run(Resolver().resolve("hooks.example", 443, socket.AF_UNSPEC))
    assert [(one["host"], one["port"], one["family"]) for one in found] == [
        ("fe80::1%2", 443, socket.AF_INET6),
        ("192.0.2.1", 443, socket.AF_INET),
    ]
