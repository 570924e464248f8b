"""A real server with an access file; every method of every service is listed."""

import grpc
import pytest
from certificates import self_signed
from escalation_examples import config, escalation, take
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from paritas.contracts.model import Operator, Requirement
from paritas.controller.access.authors import sign
from paritas.controller.access.grants import add_grant
from paritas.controller.access.roles import Role, needed_by
from paritas.controller.client import EscalationClient, StartAt, SubscriptionOptions
from paritas.controller.config import TlsFiles
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.server import serving
from paritas.errors import UsageError
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.proto.v1 import promotion_pb2, route_pb2

MATCHER = Requirement("clause", Operator.IN, ("token-tv",))


@pytest.fixture
def guarded(tmp_path):
    """A server that asks for tokens; yields its target and a token file by role."""
    path, files = tmp_path / "access.jsonl", {}
    for role in Role:
        files[role] = tmp_path / role
        files[role].write_text(add_grant(path, role.value, role) + "\n")
    with serving(config(tmp_path, access=path)) as target:
        yield target, files


def said(target, token_file, call):
    """What the server answers to `call`: "ok", or the reason and the words of its refusal."""
    with EscalationClient(target, token_file=token_file) as client:
        try:
            call(client)
        except RefusalError as error:
            return error.reason, str(error)
    return "ok"


def reads(client):
    list(client.incidents())


def writes(client):
    client.silence([MATCHER], author="ana", comment="swap", duration_s=60)


def test_each_role_may_what_it_is_for(guarded):
    target, files = guarded
    found = {role: (said(target, files[role], reads), said(target, files[role], writes)) for role in Role}
    refused = (Refused.FORBIDDEN, "subscriber is subscriber; this takes actor")
    assert found == {
        Role.SUBSCRIBER: ("ok", refused),
        Role.ACTOR: ("ok", "ok"),
        Role.ADMIN: ("ok", "ok"),
    }


def test_what_a_person_does_carries_the_name_of_the_token(guarded):
    target, files = guarded
    with EscalationClient(target, token_file=files[Role.ACTOR]) as client:
        made = client.silence([MATCHER], author="ana", comment="swap", duration_s=60)
        assert made.author == "ana (actor)"
        assert client.expire_silence(made.silence_id, author="actor").expired_by == "actor"


def test_a_word_about_a_route_is_signed_one_level_down():
    asked = route_pb2.OverrideRequest(override=route_pb2.RouteOverride(author="ana"))
    sign(asked, "sre")
    assert asked.override.author == "ana (sre)"
    asked = route_pb2.OverrideRequest()
    sign(asked, "sre")
    assert not asked.HasField("override")


def test_every_message_that_names_who_did_it_is_signed():
    """A field of another name, or deeper down, would pass unsigned."""
    requests = [
        method.input_type
        for module in (pb, promotion_pb2, route_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if needed_by(f"/{service.full_name}/{method.name}") not in {None, Role.SUBSCRIBER}
    ]
    unsigned = {r.name for r in requests if not ({"author", "actor", "override"} & set(r.fields_by_name))}
    assert unsigned == {
        "PublishRequest",
        "SubmitVerdictRequest",
    }  # detectors; evidence is signed by its own key


def test_without_a_token_and_with_a_wrong_one_nothing_is_told(guarded, tmp_path):
    target, _ = guarded
    wrong = tmp_path / "wrong"
    wrong.write_text("not-a-token")
    unknown = (Refused.FORBIDDEN, "no token or certificate of a known name was shown")
    assert said(target, None, reads) == said(target, wrong, reads) == unknown


def test_a_stream_is_guarded_too_and_serves_who_may(guarded):
    target, files = guarded
    options = SubscriptionOptions(start=StartAt.SNAPSHOT)
    unknown = pytest.raises(RefusalError, match=r"^no token or certificate of a known name was shown$")
    with EscalationClient(target) as client, client.subscribe("x", options) as deliveries, unknown:
        next(deliveries)
    with EscalationClient(target, token_file=files[Role.ACTOR]) as client:
        client.publish([escalation()])
    reader = EscalationClient(target, token_file=files[Role.SUBSCRIBER])
    with reader, reader.subscribe("x", options) as deliveries:
        (delivery,) = take(deliveries, 1, keep=lambda d: d.incident)
    assert delivery.incident.current.incident_id == "incident-1"


def test_probes_need_no_token_and_reflection_does(guarded):
    target, _ = guarded
    with grpc.insecure_channel(target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=60).status == 1
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        with pytest.raises(grpc.RpcError) as refused:
            list(reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked, timeout=60))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_token_file_that_is_not_there_is_said_before_any_call(tmp_path):
    with pytest.raises(UsageError, match=r"^cannot read key file '.*/no': No such file or directory$"):
        EscalationClient("127.0.0.1:1", token_file=tmp_path / "no")


def test_a_server_without_a_usable_access_file_does_not_start(tmp_path):
    refused = pytest.raises(UsageError, match=r"^cannot read access file")
    with refused, serving(config(tmp_path, access=tmp_path / "no")):
        pass


def test_every_method_of_every_service_was_thought_about():
    services = [service for module in (pb, route_pb2, promotion_pb2) for service in services_of(module)]
    for_admins = {m.name for s in services for m in s.methods if needed_by(path_of(m)) is Role.ADMIN}
    assert len(services) == 3
    assert for_admins == {"Start", "Advance", "Abort"}


def services_of(module):
    return module.DESCRIPTOR.services_by_name.values()


def path_of(method):
    return f"/{method.containing_service.full_name}/{method.name}"


def test_a_certificate_is_a_name_too_and_a_wrong_token_beside_it_is_wrong(tmp_path):
    pki, path = self_signed(tmp_path), tmp_path / "access.jsonl"
    add_grant(path, "gateway", Role.SUBSCRIBER, subject="localhost")
    wrong = tmp_path / "wrong"
    wrong.write_text("not-a-token")
    with serving(config(tmp_path, access=path, tls=pki)) as bound:
        target = bound.replace("127.0.0.1", "localhost")
        with EscalationClient(target, tls=pki) as client:
            reads(client)
            with pytest.raises(RefusalError, match=r"^gateway is subscriber; this takes actor$"):
                writes(client)
        unknown = pytest.raises(RefusalError, match=r"^no token or certificate of a known name was shown$")
        with EscalationClient(target, tls=pki, token_file=wrong) as client, unknown:
            reads(client)


def test_tls_with_tokens_is_enough_for_other_machines(tmp_path):
    pki, path, file = self_signed(tmp_path), tmp_path / "access.jsonl", tmp_path / "token"
    file.write_text(add_grant(path, "ana", Role.ACTOR))
    one_sided = TlsFiles(pki.certificate, pki.key)
    with serving(config(tmp_path, listen="0.0.0.0:0", access=path, tls=one_sided)) as bound:
        client = EscalationClient(
            bound.replace("0.0.0.0", "localhost"), tls=TlsFiles(ca=pki.ca), token_file=file
        )
        with client:
            writes(client)
