"""A real controller, a real receiver over HTTP, and the notifier between them."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from escalation_examples import DEADLINE_S, config, escalation
from odd_servers import Dripping

from paritas.clock import SystemClock
from paritas.controller.client import EscalationClient, StartAt, SubscriptionOptions
from paritas.controller.notify.log import NotificationLog
from paritas.controller.notify.model import Grouping, Receiver, ReceiverKind
from paritas.controller.notify.notifier import Notifier, Plan
from paritas.controller.server import serving
from paritas.errors import UsageError
from paritas.records import Phase

AT_ONCE = Grouping(wait_s=0.0, interval_s=0.0, repeat_s=3600.0)


class Inbox:
    """Keeps what is posted to it; `answers` are the statuses of the next posts, then 200; 0 is no HTTP."""

    def __init__(self, *answers):
        self.posts, self.answers, self.changed = [], list(answers), threading.Condition()
        self.refuses, self.open = (
            lambda _body: False,
            threading.Event(),
        )  # closed, it takes and does not answer
        self.open.set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = "http://127.0.0.1:{1}/hook".format(*self.server.server_address)

    def _handler(self):
        inbox = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with inbox.changed:
                    status = inbox.answers.pop(0) if inbox.answers else 400 if inbox.refuses(body) else 200
                    inbox.posts.append((status, self.headers, body))
                    inbox.changed.notify_all()
                assert inbox.open.wait(DEADLINE_S)
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


@contextmanager
def receiving():
    opened = Inbox()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(opened.server.serve_forever)
        yield opened
        opened.server.shutdown()
    opened.server.server_close()


@pytest.fixture
def inbox():
    with receiving() as opened:
        yield opened


@pytest.fixture
def client(tmp_path):
    with serving(config(tmp_path)) as target, EscalationClient(target) as client:
        yield client


@contextmanager
def notifying(client, inbox, folder, *, grouping=AT_ONCE, key_file=None):
    receiver = Receiver("ops", ReceiverKind.WEBHOOK, inbox.url, key_file=key_file, grouping=grouping)
    with telling(client, folder, receiver) as notifier:
        yield notifier


@contextmanager
def telling(client, folder, *receivers, **changes):
    options = SubscriptionOptions(start=StartAt.SNAPSHOT)
    follow = lambda: client.subscribe("notify", options)  # noqa: E731  # a name would say no more
    kept = NotificationLog(folder / "notify.json")
    with Notifier(Plan(receivers), follow, kept, clock=SystemClock(), **changes) as notifier:
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
    assert notifier.counts == {"failed:refused:ops": 2, "sent:ops": 1}
    assert posts[0][2]["firing"] == posts[2][2]["firing"]


def test_a_receiver_that_speaks_no_http_stops_nothing(client, inbox, tmp_path, caplog):
    inbox.answers = [0]
    with notifying(client, inbox, tmp_path) as notifier:
        client.publish([escalation(incident_id="a")])
        posts = inbox.wait_for(2)
    assert [status for status, _, _ in posts] == [0, 200]
    assert notifier.counts == {"failed:broken:ops": 1, "sent:ops": 1}
    [said] = [r.error for r in caplog.records if r.message == "Message was not delivered."]
    assert said == "receiver 'ops' gave no answer in HTTP: ClientResponseError"


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


def test_a_receiver_that_drips_its_answer_holds_up_nobody_else(client, inbox, tmp_path):
    """Its own deadline is far away here: the others have lanes of their own."""
    with Dripping() as slow:
        receivers = [at_once(name, url) for name, url in (("slow", slow.url), ("ops", inbox.url))]
        with telling(client, tmp_path, *receivers, deadline_s=3600) as notifier:
            client.publish([escalation(incident_id="a")])
            assert told(inbox.wait_for(1)[0]) == ("first", ["a"], [])
            client.publish([escalation(2, incident_id="a", after=Phase.RESOLVED)])
            assert told(inbox.wait_for(2)[1]) == ("all_resolved", [], ["a"])
            assert slow.wait_for(1, timeout_s=DEADLINE_S)
            slow.stop()
    assert (slow.connections, notifier.counts["sent:ops"], notifier.counts["failed:broken:slow"]) == (1, 2, 1)


def test_a_receiver_that_drips_its_answer_is_left_at_the_deadline_and_tried_again(client, tmp_path):
    with (
        Dripping() as slow,
        telling(client, tmp_path, at_once("slow", slow.url), deadline_s=0.2) as notifier,
    ):
        client.publish([escalation(incident_id="a")])
        assert slow.wait_for(2, timeout_s=DEADLINE_S)
    assert notifier.counts["failed:timed_out:slow"] >= 1
    assert set(notifier.counts) == {"failed:timed_out:slow"}


def test_what_ends_while_its_first_message_is_on_its_way_is_told_as_ended(client, inbox, tmp_path):
    with receiving() as other:
        inbox.open.clear()
        receivers = [at_once(name, url) for name, url in (("ops", inbox.url), ("other", other.url))]
        with telling(client, tmp_path, *receivers, deadline_s=DEADLINE_S):
            client.publish([escalation(incident_id="a")])
            inbox.wait_for(1)
            other.wait_for(1)
            client.publish([escalation(2, incident_id="a", after=Phase.RESOLVED)])
            assert told(other.wait_for(2)[1]) == ("all_resolved", [], ["a"])
            for number, name in enumerate("bc", 3):  # the one after the next: all that was landed is settled
                client.publish([escalation(incident_id=name)])
                other.wait_for(number)
            inbox.open.set()
            assert told(inbox.wait_for(2)[1]) == ("new_incidents", ["b", "c"], ["a"])


def test_what_arrives_while_it_closes_is_not_told_again(client, inbox, tmp_path):
    inbox.open.clear()
    with telling(client, tmp_path, at_once("ops", inbox.url), deadline_s=DEADLINE_S) as notifier:
        client.publish([escalation(incident_id="a")])
        inbox.wait_for(1)
        [reading] = [t for t in threading.enumerate() if t.name == "notify-read"]
        threading.Thread(target=lambda: (reading.join(DEADLINE_S), inbox.open.set())).start()
    assert notifier.counts == {"sent:ops": 1}
    [(_, known)] = NotificationLog(tmp_path / "notify.json").load()[0].items()
    assert known.firing == {("a", "warning")}


def test_a_group_that_is_always_refused_does_not_keep_the_others_of_its_receiver_waiting(
    client, inbox, tmp_path
):
    inbox.refuses = lambda body: body["group"]["policy"] == "refused"
    with telling(client, tmp_path, at_once("ops", inbox.url)):
        client.publish([escalation(incident_id=name, policy=name) for name in ("refused", "taken")])
        posts = inbox.wait_for(2)
    assert sorted((told(post)[1], post[0]) for post in posts[:2]) == [(["refused"], 400), (["taken"], 200)]


def at_once(name, url):
    return Receiver(name, ReceiverKind.WEBHOOK, url, grouping=AT_ONCE)


def test_nobody_is_waited_for_longer_than_until_the_next_reminder(client, inbox, tmp_path, caplog):
    """An Alertmanager that was away has no alerts: it needs them as soon as it is back."""
    inbox.answers = [503, 503, 503]
    with notifying(client, inbox, tmp_path, grouping=replace(AT_ONCE, repeat_s=1.0)):
        client.publish([escalation(incident_id="a")])
        inbox.wait_for(4)
    waits = [r.wait_s for r in caplog.records if r.message == "Message was not delivered."]
    assert len(waits) == 3
    assert max(waits) <= 1.0, "without an end to it the third is at least two"


UNKNOWN_SEVERITY = (
    b'{"version":1,"awaited":[],"groups":'
    b'[{"receiver":"ops","values":[],"since_ns":0,"sent_ns":0,"firing":[["a","odd"]]}]}'
)


@pytest.mark.parametrize(
    "held", [b"", b"{}", b'{"version": 9}', b'{"version":1,"groups":[{}],"awaited":[]}', UNKNOWN_SEVERITY]
)
def test_a_log_of_somebody_else_is_one_clear_error(tmp_path, held):
    path = tmp_path / "notify.json"
    path.write_bytes(held)
    with pytest.raises(UsageError) as refused:
        NotificationLog(path).load()
    assert str(refused.value) == f"{str(path)!r} is not a notification log of this version"
    assert refused.value.hint == "move it away; open incidents are then told once more"
