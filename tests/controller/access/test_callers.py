"""A name of a subscriber is its caller's own: with another token or certificate nothing of it can be had or disturbed."""

from contextlib import contextmanager

import pytest
from certificates import self_signed
from escalation_examples import config, escalation, take

from paritas.controller.access.grants import add_grant
from paritas.controller.access.roles import Role
from paritas.controller.client import EscalationClient
from paritas.controller.config import TlsFiles
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.server import serving


@contextmanager
def by_token(folder):
    """A server with an access file, and clients by the name of their token."""
    path, files = folder / "access.jsonl", {}
    for name in ("owner", "other"):
        files[name] = folder / name
        files[name].write_text(add_grant(path, name, Role.ACTOR))
    with serving(config(folder, access=path)) as target:
        yield lambda name: EscalationClient(target, token_file=files[name])


@contextmanager
def by_certificate(folder):
    """A server that only demands a certificate, and clients by its common name."""
    made = {}
    for name in ("localhost", "owner", "other"):
        (folder / name).mkdir()
        made[name] = self_signed(folder / name, common=name)
    trusted = folder / "ca.pem"
    trusted.write_bytes(b"".join(pki.ca.read_bytes() for pki in made.values()))
    own = made["localhost"]
    with serving(config(folder, tls=TlsFiles(own.certificate, own.key, trusted))) as bound:
        target = bound.replace("127.0.0.1", "localhost")
        yield lambda name: EscalationClient(
            target, tls=TlsFiles(made[name].certificate, made[name].key, own.ca)
        )


@pytest.fixture(params=[by_token, by_certificate])
def client_of(request, tmp_path):
    with request.param(tmp_path) as client_of:
        yield client_of


def ids(deliveries):
    return [delivery.event_id for delivery in deliveries]


def heard(subscription, count):
    """The ids of the next events; not what belongs to a snapshot."""
    return ids(take(subscription, count, keep=lambda delivery: delivery.escalation))


def test_anothers_acks_under_one_name_move_no_place_and_its_stream_ends_none(client_of):
    with client_of("owner") as owner, client_of("other") as other:
        with owner.subscribe("router") as mine:
            take(mine, 2)  # the snapshot, empty
            owner.publish([escalation(1)])
            mine.ack(take(mine, 1)[0])
            with other.subscribe("router") as theirs:
                assert take(theirs, 1)[0].incident is None, "a snapshot: it never acknowledged"
                owner.publish([escalation(2)])
                [last] = take(theirs, 1, keep=lambda delivery: delivery.escalation)
                theirs.ack(last)
                theirs.nack(last, error="not for me")
            assert heard(mine, 1) == ["incident-1/2"], "and it was not ended"
        with owner.subscribe("router") as again:
            assert heard(again, 1) == ["incident-1/2"], "which it has not acknowledged"
        owner.publish([escalation(3)])
        with other.subscribe("router") as again:
            assert heard(again, 1) == ["incident-1/3"], "the other's own place is kept too"


def test_a_newer_stream_of_one_name_and_one_caller_replaces_the_older(client_of):
    with client_of("owner") as one, client_of("owner") as two, one.subscribe("router") as old:
        take(old, 2)
        with two.subscribe("router") as new:
            take(new, 2)
            with pytest.raises(RefusalError) as ended:
                take(old, 1)
    assert ended.value.reason is Refused.REPLACED
    assert str(ended.value) == "another stream of subscriber 'router' has started"
