"""The first message of a stream."""

import pytest
from escalation_examples import start

from paritas.controller import tokens
from paritas.controller.filters import Filter
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.starts import Start, start_of
from paritas.controller.tokens import Token
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Severity

TOKEN = Token(epoch=7, seq=3)


def test_a_whole_start():
    only = pb.Filter(clauses=["token-tv"], min_severity=pb.SEVERITY_CRITICAL)
    message = start("router", token=tokens.encode(TOKEN), filter=only, max_outstanding=5)
    wanted = Filter(clauses=frozenset({"token-tv"}), min_severity=Severity.CRITICAL)
    assert start_of(message) == Start("router", wanted, "token", TOKEN, 5)


MISTAKES = {
    "the first message of a stream must be start": pb.ClientMsg(ping=pb.ClientMsg.Ping()),
    "start.subscriber_id: must be 1 to 256 bytes long": start(""),
    "start.start: must be one of now, token, snapshot_then_follow, resume": pb.ClientMsg(
        start=pb.ClientMsg.Start(subscriber_id="a", protocol_version=1)
    ),
    "start.token: not a token of this service (7 bytes)": start(token=b"garbage"),
    "start.filter.min_severity: unknown value 8": start(filter=pb.Filter(min_severity=8)),
    "start.filter: 65541 bytes, at most 65536 are taken": start(filter=pb.Filter(slices=["x" * 65537])),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items(), ids=MISTAKES)
def test_mistakes_are_refused_with_their_place(text, message):
    with pytest.raises(RefusalError) as caught:
        start_of(message)
    assert (str(caught.value), caught.value.reason) == (text, Refused.INVALID)


def test_no_message_at_all_and_too_long_a_name():
    with pytest.raises(RefusalError, match="the first message of a stream must be start"):
        start_of(None)
    with pytest.raises(RefusalError, match=r"start\.subscriber_id: must be 1 to 256 bytes long"):
        start_of(start("ä" * 129))


def test_another_protocol_is_a_precondition():
    with pytest.raises(RefusalError) as caught:
        start_of(start(protocol_version=2))
    assert str(caught.value) == "start.protocol_version: 2 is not spoken here, 1 is"
    assert caught.value.reason is Refused.PRECONDITION


def kept(name, owner=""):
    return Start(name, Filter(), "resume", None, 0, owner=owner).kept_as


def test_no_name_spells_the_place_of_anothers_subscriber():
    """Nobody was asked who calls before there was an access file, so whoever came then had no owner."""
    spelt = kept("router", "team-a")
    assert kept("router") == "router"
    assert len({spelt, kept(spelt), kept(spelt, "team-a"), kept(kept(spelt)), kept("router")}) == 5
