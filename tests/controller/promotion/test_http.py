"""Verdicts and hooks over a real socket, and the example of Flagger against their answers; Argo Rollouts' is in tests/deploy."""

import http.client
import json
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
import yaml
from free_ports import free_port
from promotion_cases import (
    DOCUMENT,
    contract,
    controller,
    evidence_of,
    promoted,
    recorded_candidate,
    recorded_report,
)

from paritas.clock import ManualClock
from paritas.contracts.dump import canonical_json
from paritas.contracts.model import Stage
from paritas.controller.promotion.statement import Window, candidate_digest
from paritas.errors import UsageError

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TOKEN = "0123456789abcdef0123456789abcdef"
CANDIDATE = candidate_digest(recorded_candidate())


class Scene:
    """A controller with its HTTP port."""

    def __init__(self, client, port, clock):
        self.client = client
        self.port = port
        self.clock = clock

    def ask(self, method, path, body=None, headers=None):
        """One request; returns (status, JSON or text)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(content) if is_json else content.decode()

    def verdict(self, stage, name="rollout", candidate=CANDIDATE, **asked):
        query = urlencode({"contract": name, "candidate": candidate, "stage": stage} | asked)
        status, told = self.ask("GET", f"/v1/verdict?{query}")
        assert status == 200
        return told

    def hook(self, name, token=TOKEN, **changes):
        """What Flagger sends, and the status it gets."""
        body = {
            "name": "engine",
            "namespace": "prod",
            "phase": "Progressing",
            "checksum": "6c9f7b",
            "metadata": {"contract": "rollout", "candidate": CANDIDATE},
            **changes,
        }
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.ask("POST", f"/v1/hooks/flagger/{name}", json.dumps(body), headers)

    def submit(self, promotion, **changes):
        self.clock.advance(seconds=1801)
        report = recorded_report("healthy", promotion.gate.stage, promotion.attempt)
        return self.client.submit("p1", evidence_of(report, promotion, self.clock, **changes)).promotion


@pytest.fixture
def scene(tmp_path):
    clock, port, token = ManualClock(), free_port(), tmp_path / "token"
    token.write_text(TOKEN + "\n")
    with controller(tmp_path, clock, http=f"127.0.0.1:{port}", hook_token=token) as client:
        yield Scene(client, port, clock)


# Verdicts


def test_a_verdict_follows_the_promotion(scene):
    assert scene.verdict("offline_ci") == {
        "verdict": "INSUFFICIENT",
        "stage": "offline_ci",
        "reason": "missing_data",
        "text": "no such candidate is promoted under it",
    }
    promotion = scene.client.start(DOCUMENT, recorded_candidate(), promotion_id="p1")
    told = scene.verdict("offline_ci")
    assert (told["verdict"], told["reason"]) == ("INSUFFICIENT", "missing_data")
    assert told["text"] == "it is running at offline_ci: no evidence decides offline_ci yet"
    promotion = scene.submit(promotion)
    told = scene.verdict("offline_ci")
    assert (told["verdict"], told["reason"], told["gate"]) == ("PASS", "", "shadow")
    assert told["window"]["sequences"] == 48
    assert [c["state"] for c in told["clauses"]] == ["conforming"] * 3
    assert {scene.verdict(s)["verdict"] for s in ("shadow", "canary", "full")} == {"INSUFFICIENT"}
    promotion = scene.submit(scene.submit(promotion))
    assert scene.verdict("canary")["verdict"] == "INSUFFICIENT"  # one of two steps
    promotion = scene.submit(promotion)
    assert {scene.verdict(s)["verdict"] for s in Stage} == {"PASS"}
    assert scene.verdict("full", name=promotion.contract_digest)["verdict"] == "PASS"


def test_a_step_of_the_canary_is_asked_for_by_its_number(scene):
    promotion = promoted(scene.client, scene.clock, 2)
    told = scene.verdict("canary", step=1)
    assert (told["verdict"], told["step"], told["gate"]) == ("INSUFFICIENT", 1, "canary step 1")
    scene.submit(promotion, missing=("agent pod-7",))
    assert scene.verdict("canary", step=1)["text"] == "missing: agent pod-7"
    assert scene.verdict("canary", step=2)["text"] == "it is at canary step 1: missing: agent pod-7"
    promotion = scene.submit(promotion)
    asked = {step: scene.verdict("canary", step=step) for step in (1, 2, 3)}
    assert [told["verdict"] for told in asked.values()] == ["PASS", "INSUFFICIENT", "INSUFFICIENT"]
    assert asked[2]["text"] == "it is running at canary step 2: no evidence decides canary yet"
    assert asked[3]["text"] == "the contract does not gate canary step 3"
    for whole in ({}, {"step": ""}):  # an argument that a template leaves empty
        assert scene.verdict("canary", **whole)["verdict"] == "INSUFFICIENT"
    scene.submit(promotion)
    assert {scene.verdict("canary", step=step)["verdict"] for step in (1, 2)} == {"PASS"}
    scene.client.abort("p1", actor="ann")
    assert scene.verdict("canary", step=1)["verdict"] == "FAIL"


def test_what_is_no_step_is_no_pass(scene):
    promoted(scene.client, scene.clock, 4)
    for number in ("0", "-1", "1.0", "one", "\u0661", "1" * 50):
        told = scene.verdict("canary", step=number)
        assert (told["verdict"], told["reason"]) == ("INSUFFICIENT", "malformed")
    assert told["text"] == f"step: {'1' * 40!r} of canary: a step of the canary is a number from 1"
    assert scene.verdict("shadow", step=1)["reason"] == "malformed"
    assert scene.verdict("full", step=1)["reason"] == "malformed"


def test_a_verdict_expires(scene):
    promoted(scene.client, scene.clock, 4)
    scene.clock.advance(seconds=23 * 3600)
    assert scene.verdict("full")["verdict"] == "PASS"
    scene.clock.advance(seconds=3600)
    for stage in Stage:
        told = scene.verdict(stage)
        assert (told["verdict"], told["reason"]) == ("INSUFFICIENT", "expired")
        assert told["text"].startswith("the evidence expired at 2023-11-1")


def test_missing_agents_are_no_pass_at_full(scene):
    promotion = promoted(scene.client, scene.clock, 4)
    assert scene.submit(promotion, missing=("agent pod-7",)).standing == "full"
    told = scene.verdict("full")
    assert (told["verdict"], told["reason"], told["text"]) == (
        "INSUFFICIENT",
        "missing_data",
        "missing: agent pod-7",
    )
    scene.submit(promotion)
    assert scene.verdict("full")["verdict"] == "PASS"


def test_a_stale_window_is_no_pass(scene):
    promotion = promoted(scene.client, scene.clock, 4)
    scene.clock.advance(seconds=1000)
    ended = scene.clock.now_ns() - 901 * 10**9
    told = scene.submit(promotion, window=Window(promotion.gate_ns, ended, 48, 4089))
    assert told.standing == "full"
    told = scene.verdict("full")
    assert (told["verdict"], told["reason"]) == ("INSUFFICIENT", "stale_window")
    assert told["text"].endswith("2702 s before the verdict")
    scene.submit(promotion)
    assert scene.verdict("full")["verdict"] == "PASS"


def test_a_violation_is_a_fail_of_every_stage(scene):
    tight = canonical_json(contract(0.06))
    promotion = scene.client.start(tight, recorded_candidate(), promotion_id="p1")
    report = recorded_report("top_p", Stage.OFFLINE_CI, 1, tv=0.06)
    scene.client.submit("p1", evidence_of(report, promotion, scene.clock))
    for stage in Stage:
        told = scene.verdict(stage)
        assert (told["verdict"], told["reason"]) == ("FAIL", "rolled_back")
        assert told["text"] == "violated: token-tv in all: 0.08987 against 0.06"


def test_an_undecided_gate_says_what_it_lacks(scene):
    tight = canonical_json(contract(0.06))
    promotion = scene.client.start(tight, recorded_candidate(), promotion_id="p1")
    report = recorded_report("healthy", Stage.OFFLINE_CI, 1, tv=0.06)
    scene.client.submit("p1", evidence_of(report, promotion, scene.clock))
    told = scene.verdict("offline_ci")
    assert (told["verdict"], told["reason"]) == ("INSUFFICIENT", "undecided")
    assert told["text"] == "undecided: token-tv in all (needs_more_units)"


@pytest.mark.parametrize("query", ["", "stage=", "stage=beta", "contract=x", "stage=full&contract=%ff%00"])
def test_whatever_is_asked_is_answered_200_and_is_no_pass(scene, query):
    status, told = scene.ask("GET", f"/v1/verdict?{query}")
    assert (status, told["verdict"]) == (200, "INSUFFICIENT")


def test_verdicts_are_read_only(scene):
    assert scene.ask("POST", "/v1/verdict")[0] == 405
    assert scene.ask("GET", "/v1/hooks/flagger/rollback")[0] == 405
    assert scene.ask("GET", "/")[0] == 404


# Flagger


def flagger(status):
    """Whether Flagger takes a hook's answer for yes."""
    return status <= 202


def test_the_hooks_of_the_example_are_those_we_serve(scene):
    canary = yaml.safe_load((EXAMPLES / "flagger/canary.yaml").read_text())
    promoted(scene.client, scene.clock, 2)
    answers = {}
    for webhook in canary["spec"]["analysis"]["webhooks"]:
        path = urlsplit(webhook["url"]).path
        name = path.removeprefix("/v1/hooks/flagger/")
        assert name == webhook["type"]
        assert set(webhook["metadata"]) == {"contract", "candidate", "token"}
        answers[name] = scene.hook(name)[0]
    assert {name for name, status in answers.items() if flagger(status)} == {
        "confirm-rollout",
        "rollout",
        "confirm-traffic-increase",
        "event",
    }


def test_a_whole_rollout_under_flagger(scene):
    def ask(name):
        return flagger(scene.hook(name)[0])

    promotion = scene.client.start(DOCUMENT, recorded_candidate(), promotion_id="p1")
    assert not ask("confirm-rollout")
    promotion = scene.submit(scene.submit(promotion))
    assert ask("confirm-rollout")
    assert ask("confirm-traffic-increase")  # onto the first step
    assert scene.hook("confirm-traffic-increase") == (
        409,
        {"text": "INSUFFICIENT: canary step 1 of p1 is not passed yet"},
    )
    promotion = scene.submit(promotion)
    assert ask("confirm-traffic-increase")  # onto the second
    assert not ask("confirm-traffic-increase")
    assert flagger(scene.hook("confirm-traffic-increase", checksum="another rollout")[0])
    assert not ask("confirm-promotion")
    scene.submit(promotion)
    assert ask("confirm-traffic-increase")
    assert ask("confirm-promotion")
    assert not ask("rollback")
    assert ask("post-rollout")


def test_only_a_fail_rolls_back(scene):
    assert scene.hook("rollback")[0] == 404
    promotion = promoted(scene.client, scene.clock, 1)
    assert scene.hook("rollback") == (409, {"text": "no FAIL: p1 is running at shadow"})
    scene.submit(promotion, missing=("agent pod-7",))
    assert scene.hook("rollback")[0] == 409
    scene.clock.advance(seconds=7 * 3600)
    assert scene.hook("rollback") == (409, {"text": "no FAIL: p1 is paused at shadow"})
    scene.client.abort("p1", actor="ann")
    assert scene.hook("rollback") == (200, {"text": "FAIL: p1 is aborted at shadow"})
    assert scene.hook("rollout") == (409, {"text": "FAIL: p1 is aborted at shadow"})
    assert scene.hook("rollback", metadata={"promotion": "p1"})[0] == 200


def test_hooks_want_their_token(scene):
    promoted(scene.client, scene.clock, 0)
    scene.client.abort("p1", actor="ann")
    for token in ("", "wrong", TOKEN[:-1], TOKEN + "0", "\xe9" * 32):
        assert scene.hook("rollback", token=token)[0] == 401
    body = json.dumps({"metadata": {"promotion": "p1"}})
    assert (
        scene.ask("POST", "/v1/hooks/flagger/rollback", body, {"Authorization": f"Basic {TOKEN}"})[0] == 401
    )
    assert scene.hook("rollback")[0] == 200


def test_without_a_token_every_hook_is_refused(tmp_path):
    clock, port = ManualClock(), free_port()
    with controller(tmp_path, clock, http=f"127.0.0.1:{port}") as client:
        scene = Scene(client, port, clock)
        assert scene.hook("event", token="")[0] == 401
        assert scene.hook("event", token=TOKEN)[0] == 401
        assert scene.verdict("full")["verdict"] == "INSUFFICIENT"


def test_bodies_are_bounded_and_must_be_what_flagger_sends(scene):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for body in ("", "[]", "{", "[" * 10_000, '{"metadata": {"promotion": "\\ud800"}}'):
        for name in ("rollback", "confirm-rollout"):
            assert scene.ask("POST", f"/v1/hooks/flagger/{name}", body, headers)[0] == 400
    large = json.dumps({"metadata": {}, "name": "x" * 70_000})
    assert scene.ask("POST", "/v1/hooks/flagger/rollback", large, headers)[0] == 413
    assert scene.hook("unheard-of")[0] == 404
    for metadata in (None, [], {"contract": 3}, {"promotion": ["x"]}):
        assert scene.hook("confirm-rollout", metadata=metadata)[0] == 404
        assert scene.hook("rollback", metadata=metadata)[0] == 404
        assert scene.hook("event", metadata=metadata)[0] == 200


def text_of(tmp_path, **changes):
    with pytest.raises(UsageError) as caught, controller(tmp_path, ManualClock(), **changes):
        pass
    return caught.value.render()


def test_what_cannot_be_served_is_said_before_anything_runs(tmp_path, scene):
    folder = tmp_path / "other"
    folder.mkdir()
    assert text_of(folder, http="here") == (
        "[usage] promotion http: 'here' is not an address\n  hint: write host:port"
    )
    taken = f"127.0.0.1:{scene.port}"
    assert text_of(folder, http=taken) == (
        f"[usage] promotion http: cannot bind {taken!r}\n  hint: choose another address"
    )
    assert text_of(folder, http="a..b:0") == (
        "[usage] promotion http: cannot bind 'a..b:0'\n  hint: choose another address"
    )
    short = folder / "token"
    assert text_of(folder, http="127.0.0.1:0", hook_token=short) == (
        f"[usage] {short}: cannot be read: No such file or directory"
    )
    short.write_text("secret")
    assert text_of(folder, http="127.0.0.1:0", hook_token=short) == (
        f"[usage] {short}: a token of fewer than 16 bytes can be guessed\n  hint: openssl rand -hex 32 > {short}"
    )
