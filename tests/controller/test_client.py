"""The client against a real server: in order, again after a failure, and when it gives up."""

import pytest
from escalation_examples import DEADLINE_S, config, escalation, plain
from hypothesis import given
from hypothesis import strategies as st

from paritas.clock import ManualClock
from paritas.controller.backoff import Backoff
from paritas.controller.client import EscalationClient, Published, batches
from paritas.controller.convert import escalation_to
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.server import serving
from paritas.errors import PermanentError, TransientError
from paritas.proto.v1 import escalation_pb2 as pb


class ServerOnSecondWait(ManualClock):
    """Moves by itself, and starts the server when the client waits for the second time."""

    def __init__(self, begin):
        super().__init__()
        self.waits = []
        self._begin = begin

    def wait(self, event, *, timeout_s):
        self.waits.append(timeout_s)
        if len(self.waits) == 2:
            self._begin()
        return super().wait(event, timeout_s=timeout_s)


def test_publish_in_order_and_repeat_safely(tmp_path):
    events = [escalation(n) for n in range(1, 1201)]
    # A call that is given up is sent again, and what it had brought counts as a repeat.
    with serving(config(tmp_path)) as target, EscalationClient(target, timeout_s=DEADLINE_S) as client:
        assert client.publish(events) == Published(accepted=1200)
        assert client.publish(iter(events[-3:])) == Published(duplicates=3)
        assert client.publish([]) == Published()
        history = client.history("incident-1")
    assert plain(history.transitions[-1]) == plain(events[-1])


def test_publish_waits_for_a_server_that_is_starting(tmp_path):
    from contextlib import ExitStack

    listen = f"unix:{tmp_path}/c.sock"
    with ExitStack() as stack:
        clock = ServerOnSecondWait(lambda: stack.enter_context(serving(config(tmp_path, listen=listen))))
        # The channel itself waits a moment between its own tries, so allow many of ours.
        backoff = Backoff(tries=100_000, most_s=0.2)
        client = stack.enter_context(EscalationClient(listen, clock=clock, backoff=backoff))
        assert client.publish([escalation(1)]) == Published(accepted=1)
    first, second = clock.waits[:2]
    assert (0.05 <= first <= 0.1, 0.1 <= second <= 0.2) == (True, True)


def test_publish_gives_up_after_its_tries(tmp_path):
    clock = ManualClock()
    listen = f"unix:{tmp_path}/nobody.sock"
    with EscalationClient(listen, clock=clock, backoff=Backoff(tries=4)) as client:
        begin_ns = clock.monotonic_ns()
        with pytest.raises(TransientError) as caught:
            client.publish([escalation(1)])
    assert str(caught.value).startswith(f"{listen}: UNAVAILABLE: ")
    assert caught.value.hint == "is the controller running?"
    waited_s = (clock.monotonic_ns() - begin_ns) / 1e9
    assert 0.35 <= waited_s <= 0.7  # between half and all of 0.1 + 0.2 + 0.4


def test_a_closed_client_does_not_go_on_trying(tmp_path):
    clock = ManualClock()
    client = EscalationClient(f"unix:{tmp_path}/nobody.sock", clock=clock, backoff=Backoff(tries=10**9))
    client._closed.set()
    with pytest.raises(TransientError):
        client.publish([escalation(1)])
    client.close()
    client.close()


def test_what_is_refused_is_not_tried_again(tmp_path):
    clock = ManualClock()
    with serving(config(tmp_path)) as target, EscalationClient(target, clock=clock) as client:
        begin_ns = clock.monotonic_ns()
        with pytest.raises(PermanentError) as caught:
            client.publish([escalation(1), escalation(2, contract="")])
        assert isinstance(caught.value, RefusalError)
        assert caught.value.render() == "[permanent] events[1].contract: must not be empty"
        assert caught.value.reason is Refused.INVALID
        assert clock.monotonic_ns() == begin_ns
        assert list(client.incidents()) == []


@given(st.lists(st.integers(0, 700_000), max_size=8), st.integers(0, 1200))
def test_batches_keep_order_and_stay_small(sizes, count):
    messages = [pb.Escalation(summary="x" * size, transition=i) for i, size in enumerate(sizes)]
    messages += [pb.Escalation(transition=len(sizes) + i) for i in range(count)]
    cut = list(batches(messages))
    assert [m.transition for batch in cut for m in batch] == list(range(len(messages)))
    for batch in cut:
        assert 1 <= len(batch) <= 500
        assert len(batch) == 1 or sum(m.ByteSize() for m in batch) <= 1024 * 1024


def test_a_batch_of_the_largest_events_fits_one_message(tmp_path):
    """The sizes that client and server each choose belong together."""
    large = "x" * 250_000
    with serving(config(tmp_path)) as target, EscalationClient(target) as client:
        assert client.publish([escalation(n, summary=large) for n in range(1, 9)]) == Published(accepted=8)
        assert escalation_to(escalation(1, summary=large)).ByteSize() < 256 * 1024
