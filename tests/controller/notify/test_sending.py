"""One message to odd receivers: every reason it is not taken, in time, and without the URL in its words."""

import asyncio
import contextlib
import gc
import http.server
import socket

import pytest
from escalation_examples import DEADLINE_S
from http_servers import serving
from odd_servers import NO_HTTP, Dripping, speaking

from paritas.controller.notify.model import Receiver, ReceiverKind
from paritas.controller.notify.sending import Message, Undelivered, UndeliveredError, send

SECRET = "a-secret-path"


def sent(receiver, *, body=b"{}", deadline_s=DEADLINE_S):
    """Send one message."""
    asyncio.run(send(Message(receiver, body, "m-1", 0), deadline_s=deadline_s))


def refusal(url, *, kind=ReceiverKind.SLACK, **sending):
    """Why one message was not taken: the reason and the words."""
    with pytest.raises(UndeliveredError) as failed:
        sent(Receiver("ops", kind, url), **sending)
    assert SECRET not in str(failed.value)
    return failed.value.reason, str(failed.value)


def answering(status):
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("location", "http://127.0.0.1:1/")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_words):
            pass

    return serving(Answers)


def test_two_hundred_and_its_kin_are_a_yes():
    with answering(202) as url:
        sent(Receiver("ops", ReceiverKind.SLACK, url))


@pytest.mark.parametrize("status", [302, 404, 503])
def test_another_status_is_a_refusal(status):
    with answering(status) as url:
        assert refusal(f"{url}/{SECRET}") == (Undelivered.REFUSED, f"receiver 'ops' answered {status}")


@pytest.mark.parametrize("words", [NO_HTTP[0], b"", b"HTTP/1.1 200 O"])
def test_what_is_no_answer_is_broken(words):
    with speaking(words) as url:
        reason, text = refusal(f"{url}/{SECRET}")
    assert reason is Undelivered.BROKEN
    assert text.startswith("receiver 'ops' gave no answer in HTTP: ")


def test_a_yes_counts_though_its_body_breaks_off():
    with speaking(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsorry") as url:
        sent(Receiver("ops", ReceiverKind.SLACK, url))


def test_nobody_there_is_unreachable():
    told = "receiver 'ops' cannot be reached: Connection refused"
    assert refusal(f"http://127.0.0.1:1/{SECRET}") == (Undelivered.UNREACHABLE, told)


def test_an_address_that_is_none_is_said_without_it():
    told = "receiver 'ops' cannot be spoken to: InvalidUrlClientError"
    assert refusal(f"https:///{SECRET}") == (Undelivered.UNUSABLE, told)


def test_a_file_that_has_gone_is_ours_to_mend(tmp_path):
    receiver = Receiver("ops", ReceiverKind.SLACK, url_file=tmp_path / "no")
    with pytest.raises(UndeliveredError) as failed:
        sent(receiver)
    assert failed.value.reason is Undelivered.UNUSABLE
    assert str(failed.value) == f"cannot read key file {str(tmp_path / 'no')!r}: No such file or directory"


def test_one_that_answers_byte_by_byte_has_no_more_time_than_another():
    with Dripping() as slow:
        told = "receiver 'ops' did not answer within 0.2 s"
        assert refusal(slow.url, deadline_s=0.2) == (Undelivered.TIMED_OUT, told)


def test_one_that_reads_nothing_has_no_more_time_either_and_is_left_for_good():
    """Else each try would stay open, with what it still has to say, for as long as the receiver likes."""

    async def play(address):
        receiver = Receiver("ops", ReceiverKind.SLACK, f"http://127.0.0.1:{address[1]}/")
        body = bytes(32 << 20)  # more than the sockets hold
        with pytest.raises(UndeliveredError) as failed:
            await send(Message(receiver, body, "m-1", 0), deadline_s=0.2)
        turns = 0
        while open_to(address) and turns < 100:  # the loop closes it in one of its next turns
            turns += 1
            await asyncio.sleep(0)
        return failed.value.reason, open_to(address)

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        assert asyncio.run(play(deaf.getsockname())) == (Undelivered.TIMED_OUT, 0)


def open_to(address):
    """How many sockets of this process are connected to `address`."""
    sockets = [s for s in gc.get_objects() if type(s) is socket.socket and s.fileno() >= 0]
    return sum(peer_of(s) == address for s in sockets)


def peer_of(connection):
    with contextlib.suppress(OSError):
        return connection.getpeername()
