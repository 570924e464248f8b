"""A real controller, a real receiver over HTTP, and the notifier between them."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from escalation_examples import DEADLINE_S, config, escalation

from paritas.clock import SystemClock
from paritas.controller.client import EscalationClient, StartAt, SubscriptionOptions
from paritas.controller.notify.log import NotificationLog
from paritas.controller.notify.model import Grouping, Receiver, ReceiverKind
from paritas.controller.notify.notifier import Notifier, Plan
from paritas.controller.notify.sending import send
from paritas.controller.server import serving
from paritas.errors import TransientError, UsageError
from paritas.records import Phase

AT_ONCE = Grouping(wait_s=0.0, interval_s=0.0, repeat_s=3600.0)


class Inbox:
    """Keeps what is posted to it; `answers` are the statuses of the next posts, then 200; 0 is no HTTP."""

    def __init__(self, *answers):
        self.posts, self.answers, self.changed = [], list(answers), threading.Condition()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = "http://127.0.0.1:{1}/hook".format(*self.server.server_address)

    def _handler(self):
        inbox = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with inbox.changed:
                    status = inbox.answers.pop(0) if inbox.answers else 200
                    inbox.posts.append((status, self.headers, body))
                    inbox.changed.notify_all()
                if status == 0:
                    self.close_connection = True
                    self.wfile.write(b"220 mail.example ready\r\n\r\n")
                    return
                self.send_response(status)
                self.send_header("location", "http://127.0.0.1:1/")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_words):
                pass

        return Answers

    def wait_for(self, count):
        """Return the posts when there are `count` of them."""
        with self.changed:
            came = self.changed.wait_for(lambda: len(self.posts) >= count, timeout=DEADLINE_S)
            assert came, f"only {len(self.posts)} of {count} messages came"
            return list(self.posts)


@pytest.fixture
def inbox():
    opened = Inbox()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(opened.server.serve_forever)
        yield opened
        opened.server.shutdown()
    opened.server.server_close()


@pytest.fixture
def client(tmp_path):
    with serving(config(tmp_path)) as target, EscalationClient(target) as client:
        yield client


@contextmanager
def notifying(client, inbox, folder, *, grouping=AT_ONCE, key_file=None):
    receiver = Receiver("ops", ReceiverKind.WEBHOOK, inbox.url, key_file=key_file, grouping=grouping)
    options = SubscriptionOptions(start=StartAt.SNAPSHOT)
    follow = lambda: client.subscribe("notify", options)  # noqa: E731  # a name would say no more
    kept = NotificationLog(folder / "notify.json")
    with Notifier(Plan((receiver,)), follow, kept, clock=SystemClock()) as notifier:
        yield notifier


def told(post):
    """The reason and the incidents of one message."""
    body = post[2]
    return (
        body["reason"],
        [e["incident_id"] for e in body["firing"]],
        [e["incident_id"] for e in body["resolved"]],
    )


def test_a_beginning_and_an_end_are_told(client, inbox, tmp_path):
    with notifying(client, inbox, tmp_path) as notifier:
        client.publish([escalation(incident_id="a")])
        assert told(inbox.wait_for(1)[0]) == ("first", ["a"], [])
        client.publish([escalation(2, incident_id="a", after=Phase.RESOLVED)])
        assert told(inbox.wait_for(2)[1]) == ("all_resolved", [], ["a"])
    assert notifier.counts == {"sent:ops": 2}


def test_a_restart_says_nothing_twice_and_tells_what_ended_meanwhile(client, inbox, tmp_path):
    with notifying(client, inbox, tmp_path):
        client.publish([escalation(incident_id="a"), escalation(incident_id="b")])
        first = inbox.wait_for(1)
        told_first = {name for post in first for name in told(post)[1]}
        if told_first != {"a", "b"}:  # both may have come in one look or in two
            inbox.wait_for(2)
    before = len(inbox.posts)
    client.publish([escalation(2, incident_id="a", after=Phase.RESOLVED)])
    with notifying(client, inbox, tmp_path):
        post = inbox.wait_for(before + 1)[before]
    assert told(post) == ("some_resolved", ["b"], ["a"])
    assert len(inbox.posts) == before + 1


def test_what_is_refused_or_redirected_is_told_later_and_counted(client, inbox, tmp_path):
    inbox.answers = [500, 302]
    with notifying(client, inbox, tmp_path) as notifier:
        client.publish([escalation(incident_id="a")])
        posts = inbox.wait_for(3)
    assert [status for status, _, _ in posts] == [500, 302, 200]
    assert notifier.counts == {"failed:ops": 2, "sent:ops": 1}
    assert posts[0][2]["firing"] == posts[2][2]["firing"]


def test_a_receiver_that_speaks_no_http_stops_nothing(client, inbox, tmp_path, caplog):
    inbox.answers = [0]
    with notifying(client, inbox, tmp_path) as notifier:
        client.publish([escalation(incident_id="a")])
        posts = inbox.wait_for(2)
    assert [status for status, _, _ in posts] == [0, 200]
    assert notifier.counts == {"failed:ops": 1, "sent:ops": 1}
    [said] = [r.error for r in caplog.records if r.message == "Message was not delivered."]
    assert said == "receiver 'ops' cannot be spoken to: BadStatusLine"


def test_an_address_that_is_none_is_said_without_it(tmp_path):
    secret = tmp_path / "url"
    secret.write_text("http://127.0.0.1:1/a secret")
    receiver = Receiver("ops", ReceiverKind.SLACK, url_file=secret)
    with pytest.raises(TransientError) as failed:
        send(receiver, b"{}", message_id="m", now_ns=0)
    assert str(failed.value) == "receiver 'ops' cannot be spoken to: InvalidURL"


def test_a_plan_that_groups_by_other_fields_tells_the_ends_all_the_same(client, inbox, tmp_path):
    with notifying(client, inbox, tmp_path):
        client.publish([escalation(incident_id="a")])
        inbox.wait_for(1)
    by_clause = replace(AT_ONCE, by=("clause",))
    with notifying(client, inbox, tmp_path, grouping=by_clause) as notifier:
        client.publish([escalation(2, incident_id="a", after=Phase.RESOLVED)])
        post = inbox.wait_for(2)[1]
    assert (told(post), post[2]["group"]) == (("all_resolved", [], ["a"]), {"clause": "token-tv"})
    assert notifier.counts == {"sent:ops": 1}


def test_a_reminder_is_no_repeat_of_the_one_before(client, inbox, tmp_path):
    """A receiver that drops what has an id that it knows must not drop it."""
    key = tmp_path / "key"
    key.write_text("secret")
    with notifying(client, inbox, tmp_path, grouping=replace(AT_ONCE, repeat_s=0.0), key_file=key):
        client.publish([escalation(incident_id="a")])
        posts = inbox.wait_for(4)
    assert [told(post)[0] for post in posts[:4]] == ["first", "repeat", "repeat", "repeat"]
    assert len({headers["webhook-id"] for _, headers, _ in posts}) == len(posts)


def test_a_signed_message_has_the_same_id_when_it_is_sent_again(client, inbox, tmp_path):
    key = tmp_path / "key"
    key.write_text("secret")
    inbox.answers = [503]
    with notifying(client, inbox, tmp_path, key_file=key):
        client.publish([escalation(incident_id="a")])
        posts = inbox.wait_for(2)
    assert posts[0][1]["webhook-id"] == posts[1][1]["webhook-id"]
    assert posts[1][1]["webhook-signature"].startswith("v1,")


@pytest.mark.parametrize("held", [b"", b"{}", b'{"version": 9}', b'{"version":1,"groups":[{}],"awaited":[]}'])
def test_a_log_of_somebody_else_is_one_clear_error(tmp_path, held):
    path = tmp_path / "notify.json"
    path.write_bytes(held)
    with pytest.raises(UsageError) as refused:
        NotificationLog(path).load()
    assert str(refused.value) == f"{str(path)!r} is not a notification log of this version"
    assert refused.value.hint == "move it away; open incidents are then told once more"
