"""The server as an operator sees it: addresses, health, reflection, TLS, closing."""

import asyncio
import shutil
import socket
import ssl
import stat
import threading
from contextlib import ExitStack

import grpc
import pytest
from certificates import self_signed
from escalation_examples import DEADLINE_S, RawStream, config, escalation, start, stub, take
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from paritas.controller import tokens
from paritas.controller.admission import admit
from paritas.controller.client import EscalationClient
from paritas.controller.compaction import Retention
from paritas.controller.config import Limits, TlsFiles
from paritas.controller.convert import escalation_to
from paritas.controller.refusals import RefusalError
from paritas.controller.server import SERVICE, EscalationServer, serving
from paritas.controller.store import Store
from paritas.controller.tokens import Token
from paritas.errors import TransientError, UsageError
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.proto.v1 import escalation_pb2_grpc as pb_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


# Addresses


def test_a_free_port_is_told(tmp_path):
    with serving(config(tmp_path)) as target:
        host, port = target.split(":")
        assert (host, int(port) > 0) == ("127.0.0.1", True)
        with EscalationClient(target) as client:
            assert client.publish([escalation(1)]).accepted == 1


def test_a_unix_socket_is_private_and_goes_away(tmp_path):
    path = tmp_path / "c.sock"
    with serving(config(tmp_path, listen=f"unix:{path}")) as target, EscalationClient(target) as client:
        assert target == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with client.subscribe("router") as stream:
            take(stream, 2)
            client.publish([escalation(1)])
            assert take(stream, 1)[0].event_id == "incident-1/1"
    assert not path.exists()


def test_a_socket_left_behind_is_taken_over(tmp_path):
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serving(config(tmp_path, listen=f"unix:{path}")) as target, EscalationClient(target) as client:
        assert client.publish([escalation(1)]).accepted == 1


def text_of(conf):
    with pytest.raises(UsageError) as caught, serving(conf):
        pass
    return caught.value.render()


def test_an_address_in_use(tmp_path):
    (tmp_path / "other").mkdir()
    for listen in ("127.0.0.1:0", f"unix:{tmp_path}/c.sock"):
        with serving(config(tmp_path, listen=listen)) as target:
            why = "" if listen.startswith("unix:") else ": Address already in use"
            assert text_of(config(tmp_path / "other", listen=target)) == (
                f"[usage] listen: cannot bind {target!r}{why}\n"
                "  hint: is another controller running there? choose another address"
            )
            with EscalationClient(target) as client:
                assert client.silences() == []


def test_a_log_in_use(tmp_path):
    with serving(config(tmp_path)):
        assert text_of(config(tmp_path)).endswith(
            "is in use by another process\n  hint: only one controller may own a log; stop the other one"
        )


def test_a_bad_log_is_told_before_anything_is_bound(tmp_path):
    (tmp_path / "escalations.db").write_text("not a database, at all\n" * 50)
    listen = f"unix:{tmp_path}/c.sock"
    assert text_of(config(tmp_path, listen=listen)) == (
        f"[usage] escalation log '{tmp_path}/escalations.db' is damaged or not a database: "
        "file is not a database\n  hint: restore a copy, or move the file away to start an empty log"
    )
    assert not (tmp_path / "c.sock").exists()


# TLS


@pytest.fixture
def pki(tmp_path):
    return self_signed(tmp_path)


def test_a_server_that_demands_certificates(tmp_path, pki):
    conf = config(tmp_path, listen="0.0.0.0:0", tls=pki)
    with serving(conf) as bound:
        target = bound.replace("0.0.0.0", "localhost")
        with EscalationClient(target, tls=pki) as client:
            assert client.publish([escalation(1)]).accepted == 1
        for other in (None, TlsFiles(ca=pki.ca)):
            with EscalationClient(target, tls=other) as client, pytest.raises(TransientError):
                client.silences()


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path, pki):
    """And one that cannot be used, or does not fit its key, leaves the one before in place."""
    (tmp_path / "renewed").mkdir()
    renewed = self_signed(tmp_path / "renewed")
    one_sided = TlsFiles(pki.certificate, pki.key)
    old, new = (files.certificate.read_text() for files in (pki, renewed))
    with serving(config(tmp_path, tls=one_sided)) as bound:
        address = ("localhost", int(bound.rpartition(":")[2]))
        assert ssl.get_server_certificate(address, timeout=DEADLINE_S) == old
        pki.certificate.unlink()
        assert ssl.get_server_certificate(address, timeout=DEADLINE_S) == old
        pki.certificate.write_text(new)
        assert ssl.get_server_certificate(address, timeout=DEADLINE_S) == old
        shutil.copy(renewed.key, pki.key)
        assert ssl.get_server_certificate(address, timeout=DEADLINE_S) == new


def test_tls_files_that_are_wrong(tmp_path, pki):
    missing = TlsFiles(tmp_path / "no.pem", pki.key, pki.ca)
    assert text_of(config(tmp_path, tls=missing)) == (
        f"[usage] tls: cannot read '{tmp_path}/no.pem': No such file or directory\n"
        "  hint: name a PEM file that this user may read"
    )
    half = TlsFiles(certificate=pki.certificate)
    assert text_of(config(tmp_path, tls=half)) == "[usage] tls: a server needs both certificate and key"


# Health and reflection


def check(service, name):
    return service.Check(health_pb2.HealthCheckRequest(service=name), timeout=DEADLINE_S).status


def test_health_of_the_process_and_of_the_service(tmp_path):
    with serving(config(tmp_path)) as target, grpc.insecure_channel(target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        assert [check(health, name) for name in ("", SERVICE)] == [SERVING, SERVING]
        with pytest.raises(grpc.RpcError) as caught:
            check(health, "paritas.proto.v1.Other")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_watcher_sees_the_server_go(tmp_path):
    async def scenario():
        # The server waits for the watcher: it is given longer than this test can take.
        server = EscalationServer(config(tmp_path, farewell_s=DEADLINE_S))
        async with server, grpc.aio.insecure_channel(server.target) as channel:
            request = health_pb2.HealthCheckRequest(service=SERVICE)
            watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=DEADLINE_S)
            seen = [(await watch.read()).status]
            closing = asyncio.ensure_future(server.__aexit__(None, None, None))
            seen.append((await watch.read()).status)
            watch.cancel()
            await closing
        return seen

    assert asyncio.run(scenario()) == [SERVING, NOT_SERVING]


def test_a_full_disk_shows_in_answers_and_in_health(tmp_path):
    """On one loop, so that the test can reach the store and fill it."""

    async def scenario():
        async with (
            EscalationServer(config(tmp_path)) as server,
            grpc.aio.insecure_channel(server.target) as ch,
        ):
            health = health_pb2_grpc.HealthStub(ch)
            watch = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=DEADLINE_S)
            seen = [(await watch.read()).status]
            run = server._core.store.run
            await run(lambda store: store._db.execute("PRAGMA max_page_count = 1"))
            message = escalation_to(escalation(1, summary="x" * 100_000))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _publish(ch, message)
            seen.append((await watch.read()).status)
            await run(lambda store: store._db.execute("PRAGMA max_page_count = 10000"))
            await _publish(ch, message)
            seen.append((await watch.read()).status)
            watch.cancel()
            return caught.value, seen

    error, seen = asyncio.run(scenario())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert error.details() == (
        f"escalation log '{tmp_path}/escalations.db': database or disk is full "
        "(free disk space, or check the disk)"
    )
    assert seen == [SERVING, NOT_SERVING, SERVING]


async def _publish(channel, *messages):
    request = pb.PublishRequest(events=messages)
    return await pb_grpc.EscalationServiceStub(channel).Publish(request, timeout=DEADLINE_S)


def test_reflection_lists_the_services(tmp_path):
    with serving(config(tmp_path)) as target, grpc.insecure_channel(target) as channel:
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest
        requests = [ask(list_services=""), ask(file_containing_symbol=SERVICE)]
        listed, found = reflection.ServerReflectionInfo(iter(requests), timeout=DEADLINE_S)
    assert {s.name for s in listed.list_services_response.service} == {
        "paritas.proto.v1.EscalationService",
        "paritas.proto.v1.RouteService",
        "paritas.proto.v1.PromotionService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert pb.DESCRIPTOR.serialized_pb in found.file_descriptor_response.file_descriptor_proto


# Order


def test_a_snapshot_ahead_of_what_was_told_is_not_told_again(tmp_path):
    """An event is in the log a moment before subscribers are told; a snapshot may fall in between."""

    async def scenario():
        async with (
            EscalationServer(config(tmp_path, heartbeat_s=3600.0)) as server,
            grpc.aio.insecure_channel(server.target) as ch,
        ):
            core = server._core
            drafts = admit([escalation_to(escalation(1))], limits=Limits())
            appended = await core.store.run(Store.append, drafts, now_ns=1)
            stream = pb_grpc.EscalationServiceStub(ch).Subscribe(timeout=DEADLINE_S)
            await stream.write(start(snapshot_then_follow=pb.ClientMsg.SnapshotThenFollow()))
            first = [(await stream.read()).WhichOneof("body") for _ in range(3)]
            core.hub.publish(appended.events)
            await _publish(ch, escalation_to(escalation(2)))
            message = await stream.read()
            stream.cancel()
            return first, message.event.event_id

    assert asyncio.run(scenario()) == (["created", "snapshot_item", "snapshot_end"], "incident-1/2")


# Closing


def test_an_ack_that_comes_while_another_is_written_is_kept_at_the_end(tmp_path):
    async def scenario():
        async with (
            # The status comes after the last message: a heartbeat that nobody reads would hold it back.
            EscalationServer(config(tmp_path, heartbeat_s=3600.0)) as server,
            grpc.aio.insecure_channel(server.target) as ch,
        ):
            await _publish(ch, *(escalation_to(escalation(n)) for n in (1, 2)))
            stream = pb_grpc.EscalationServiceStub(ch).Subscribe(timeout=DEADLINE_S)
            await stream.write(start("router", snapshot_then_follow=pb.ClientMsg.SnapshotThenFollow()))
            while (message := await stream.read()).WhichOneof("body") != "snapshot_end":
                pass
            last = tokens.decode(message.snapshot_end.token, field="token")
            busy = threading.Event()
            blocked = asyncio.ensure_future(server._core.store.run(lambda _store: busy.wait(DEADLINE_S)))
            for seq in (1, 2):
                token = tokens.encode(Token(last.epoch, seq))
                await stream.write(pb.ClientMsg(ack=pb.ClientMsg.Ack(token=token)))
            await stream.write(pb.ClientMsg(stop=pb.ClientMsg.Stop()))
            while not server.counts["stopped"]:  # noqa: ASYNC110  # the server is on this very loop
                await asyncio.sleep(0)
            busy.set()
            await blocked
            assert await stream.code() is grpc.StatusCode.OK

    asyncio.run(scenario())
    with Store(tmp_path / "escalations.db", retention=Retention()) as store:
        assert store.acked("router") == 2


def test_streams_are_told_that_the_server_closes(tmp_path):
    leave = threading.Event()
    ready = threading.Event()
    targets = []

    def serve():
        with serving(config(tmp_path)) as target:
            targets.append(target)
            ready.set()
            leave.wait(DEADLINE_S)

    server = threading.Thread(target=serve)
    server.start()
    ready.wait(DEADLINE_S)
    with stub(targets[0]) as service, RawStream(service, start()) as stream:
        stream.next("created")
        leave.set()
        canceled = stream.next("canceled")
        assert (canceled.reason, canceled.detail) == (pb.ServerMsg.REASON_DRAINING, "the server is closing")
        _, error = stream.end()
        assert error.code() is grpc.StatusCode.UNAVAILABLE
    server.join()


def test_a_client_that_does_not_read_does_not_keep_the_server_open(tmp_path, caplog):
    conf = config(tmp_path, farewell_s=0.1)
    with ExitStack() as stack, serving(conf) as target, EscalationClient(target) as client:
        service = stack.enter_context(stub(target))
        deaf = stack.enter_context(RawStream(service, start("deaf")))
        deaf.next("created")
        client.publish([escalation(n, summary="x" * 200_000) for n in range(1, 51)])
    assert [record.message for record in caplog.records] == []


def test_acks_that_came_before_closing_are_kept(tmp_path):
    with (
        serving(config(tmp_path)) as target,
        stub(target) as service,
        EscalationClient(target) as client,
        RawStream(service, start("router")) as stream,
    ):
        stream.next("created")
        client.publish([escalation(1)])
        stream.send(ack=pb.ClientMsg.Ack(token=stream.next("event").token))
        stream.send(ping=pb.ClientMsg.Ping())
        stream.next("heartbeat")
    with Store(tmp_path / "escalations.db", retention=Retention()) as store:
        assert store.acked("router") == 1


def test_a_subscriber_too_many(tmp_path):
    conf = config(tmp_path, limits=Limits(subscribers=1))
    with serving(conf) as target, stub(target) as service, RawStream(service, start("a")) as first:
        first.next("created")
        with RawStream(service, start("b")) as second:
            _, error = second.end()
        assert (error.code(), error.details()) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "start: 1 subscribers are connected, no more are taken",
        )


def test_housekeeping_compacts_by_age(tmp_path):
    """Nothing is published, yet the log loses what is old."""
    drafts = admit([escalation_to(escalation(1))], limits=Limits())
    with Store(tmp_path / "escalations.db", retention=Retention()) as store:
        store.append(drafts, now_ns=1)
    conf = config(tmp_path, housekeeping_s=0.01)
    with serving(conf) as target, stub(target) as service:
        for attempt in range(10_000):
            with RawStream(service, start(f"s{attempt}")) as stream:
                created = stream.next("created")
            if created.oldest == created.head:
                break
        assert created.oldest == created.head


def test_counts(tmp_path):
    async def scenario():
        server = EscalationServer(config(tmp_path))
        assert server.counts == {}
        async with server, grpc.aio.insecure_channel(server.target) as channel:
            for _ in range(2):
                await _publish(channel, escalation_to(escalation(1)))
            return server.counts

    assert asyncio.run(scenario()) == {"appended": 1, "duplicates": 1}


def test_a_remote_address_is_refused_before_anything_happens(tmp_path):
    with pytest.raises(UsageError, match="can be reached from other machines and has no TLS"):
        config(tmp_path, listen="0.0.0.0:4320")
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_names_its_hint(tmp_path):
    with (
        serving(config(tmp_path)) as target,
        EscalationClient(target) as client,
        pytest.raises(RefusalError, match=r"^incident 'x' is not known \(it may be over and forgotten\)$"),
    ):
        client.history("x")
