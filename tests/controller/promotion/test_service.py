"""The service and both clients: starting, listing, watching; what is refused says why."""

import asyncio
import threading
from itertools import islice

import pytest
from promotion_cases import (
    CONTRACT,
    DOCUMENT,
    TEXT,
    contract,
    controller,
    evidence_of,
    promoted,
    recorded_report,
)

from paritas.clock import ManualClock
from paritas.contracts.dump import canonical_json
from paritas.contracts.model import Stage
from paritas.controller.access.grants import add_grant
from paritas.controller.access.roles import Role as AccessRole
from paritas.controller.config import ServerConfig
from paritas.controller.promotion.model import Block, Candidate, Standing
from paritas.controller.promotion_client import AsyncPromotionClient, PromotionClient
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.server import serving
from paritas.errors import TransientError

ONE, TWO = Candidate("11" * 16), Candidate("22" * 16)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def client(tmp_path, clock):
    with controller(tmp_path, clock) as made:
        yield made


def refused(call, *arguments, **named):
    with pytest.raises(RefusalError) as caught:
        call(*arguments, **named)
    return str(caught.value)


def test_a_start_that_is_repeated_is_the_same_one(client):
    first = client.start(DOCUMENT, ONE, promotion_id="p1", actor="ann")
    assert client.start(DOCUMENT, ONE, promotion_id="p1", actor="bob") == first
    assert first.seed == ""  # never told
    assert len(client.get("p1").kept) == 1


def test_a_promotion_without_a_name_gets_one(client):
    assert client.start(DOCUMENT, ONE).promotion_id.startswith("rollout-")


def test_what_cannot_be_started(client):
    client.start(DOCUMENT, ONE, promotion_id="p1")
    assert refused(client.start, DOCUMENT, TWO, promotion_id="p1") == (
        "promotion 'p1' is of another contract or candidate (choose another id)"
    )
    twin = refused(client.start, DOCUMENT, ONE, promotion_id="p2")
    assert twin.endswith("is being promoted already: p1 (abort that one first)")
    assert refused(client.start, DOCUMENT, Candidate("")) == (
        "candidate.inference: must not be empty: it is what is promoted"
    )
    assert refused(client.start, DOCUMENT, Candidate("a b")) == (
        "inference: at most 200 letters, digits and -._:/@+, got 'a b'"
    )
    ungated = TEXT[: TEXT.index("  promotion:")]
    assert refused(client.start, canonical_json(contract(text=ungated)), ONE) == (
        "contract rollout declares no gate before full: nothing would be proven "
        "(declare spec.promotion.offline_ci, shadow or canary)"
    )
    assert refused(client.start, DOCUMENT, ONE, actor="é" * 2049) == "actor: at most 4096 bytes, got 4098"
    assert refused(client.abort, "p1", text="x" * 4097) == "text: at most 4096 bytes, got 4097"
    assert refused(client.start, "kind: [", ONE).startswith("contract:1:")
    assert refused(client.start, "x" * ((1 << 20) + 1), ONE) == "contract: at most 1048576 bytes, got 1048577"


def test_pages_latest_change_first(client):
    for number in range(5):
        client.start(DOCUMENT, Candidate(f"{number:032x}"), promotion_id=f"p{number}")
    client.abort("p1", actor="ann")
    assert [p.promotion_id for p in client.page().promotions] == ["p4", "p3", "p2", "p0"]
    assert [p.promotion_id for p in client.page(include_over=True).promotions] == [
        "p1",
        "p4",
        "p3",
        "p2",
        "p0",
    ]
    assert client.page("other").promotions == ()
    assert client.page(before=2**64 - 1).promotions == client.page().promotions


def test_a_watch_begins_with_what_is_there_and_follows(client, clock):
    client.start(DOCUMENT, ONE, promotion_id="p1")
    seen = client.watch()
    first = next(seen)
    assert first.promotion.promotion_id == "p1"
    client.start(DOCUMENT, TWO, promotion_id="p2")
    second = next(seen)
    assert second.promotion.promotion_id == "p2"
    client.abort("p1", actor="ann")
    assert next(seen).promotion.standing is Standing.ABORTED
    again = list(islice(client.watch(after=first.revision), 2))
    assert [w.promotion.promotion_id for w in again] == ["p2", "p1"]


def test_a_watch_ends_with_the_controller_and_says_so(tmp_path, clock):
    with controller(tmp_path, clock) as client:
        client.start(DOCUMENT, ONE, promotion_id="p1")
        watch = client.watch()
        next(watch)
        ended = []

        def follow():
            with pytest.raises(TransientError) as caught:
                next(watch)
            ended.append(str(caught.value))

        thread = threading.Thread(target=follow)
        thread.start()
    thread.join(timeout=30)
    assert len(ended) == 1
    assert "UNAVAILABLE" in ended[0] or "CANCELLED" in ended[0]


def test_no_controller_is_worth_another_try(tmp_path):
    with (
        PromotionClient(f"unix:{tmp_path}/none.sock", timeout_s=5.0) as client,
        pytest.raises(TransientError, match="UNAVAILABLE"),
    ):
        client.get("p1")


def test_a_time_that_passes_is_told_to_who_watches(tmp_path, clock):
    """The controller's own clock pauses it, without anybody asking."""
    with controller(tmp_path, clock, tick_s=0.01) as client:
        client.start(DOCUMENT, ONE, promotion_id="p1")
        watch = client.watch()
        next(watch)
        clock.advance(seconds=3600)
        assert next(watch).promotion.standing is Standing.PAUSED


def test_the_asynchronous_client_does_the_same(tmp_path, clock):
    async def use(target):
        async with AsyncPromotionClient(target) as client:
            promotion = await client.start(DOCUMENT, ONE, promotion_id="p1", actor="ann")
            assert (await client.get("p1")).promotion == promotion
            assert [p.promotion_id for p in (await client.page()).promotions] == ["p1"]
            watched = client.watch()
            assert (await anext(watched)).promotion == promotion
            assert (await client.submit("p1", b"{}")).blocked.text.startswith("the envelope is not a signed")
            assert (await client.advance("p1", actor="ann")).blocked.text.startswith("at offline_ci")
            assert (await client.abort("p1", actor="ann", text="no")).transitions[0].text == "no"
            assert (await anext(watched)).promotion.standing is Standing.ABORTED
            await watched.aclose()
            with pytest.raises(RefusalError, match=r"^promotion 'p9' is not known$"):
                await client.get("p9")

    with controller(tmp_path, clock) as client:
        asyncio.run(use(client._target))


def test_many_submit_the_same_evidence_at_once_and_one_moves_it(tmp_path, clock):
    with controller(tmp_path, clock) as client:
        promotion = promoted(client, clock, 0)
        envelope = evidence_of(recorded_report("healthy", Stage.OFFLINE_CI, 1), promotion, clock)
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(client.submit("p1", envelope))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(len(a.transitions) for a in answers) == [0] * 7 + [1]
        assert client.get("p1").promotion.transitions == 2
    assert CONTRACT.name == "rollout"


def test_where_access_is_declared_a_promotion_is_started_by_an_admin_and_read_by_a_subscriber(tmp_path):
    path, files = tmp_path / "access.jsonl", {}
    for role in AccessRole:
        files[role] = tmp_path / role
        files[role].write_text(add_grant(path, role.value, role) + "\n")
        files[role].chmod(0o600)
    config = ServerConfig(tmp_path / "log.sqlite", listen="127.0.0.1:0", access=path)
    with serving(config) as target:

        def client(role):
            return PromotionClient(target, token_file=files[role] if role else None)

        for role in (None, AccessRole.SUBSCRIBER, AccessRole.ACTOR):
            with client(role) as caller, pytest.raises(RefusalError) as caught:
                caller.start(DOCUMENT, ONE, promotion_id="p1")
            assert caught.value.reason is Refused.FORBIDDEN
        with client(AccessRole.ADMIN) as admin:
            admin.start(DOCUMENT, ONE, promotion_id="p1")
        with client(AccessRole.SUBSCRIBER) as reader:
            assert [p.promotion_id for p in reader.page().promotions] == ["p1"]
            assert next(reader.watch()).promotion.promotion_id == "p1"
            with pytest.raises(RefusalError):
                reader.submit("p1", b"{}")
        with client(AccessRole.ACTOR) as actor:
            assert actor.submit("p1", b"{}").blocked.block is Block.FORGED

        async def read():
            async with AsyncPromotionClient(target, token_file=files[AccessRole.SUBSCRIBER]) as reader:
                return (await reader.get("p1")).promotion.promotion_id

        assert asyncio.run(read()) == "p1"
