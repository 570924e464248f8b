"""The AnalysisTemplate of examples/argo as Argo Rollouts itself fills it in and measures it, of a real controller."""

import copy
import http.server
from pathlib import Path

import pytest
import yaml
from deploy.argo_setup import measured
from deploy.parts import why_not
from free_ports import free_port
from http_servers import serving
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
from paritas.controller.promotion.statement import candidate_digest

pytestmark = pytest.mark.skipif(bool(why_not("argo")), reason=str(why_not("argo")))

EXAMPLES = Path(__file__).parents[2] / "examples" / "argo"
PASS, FAIL = ("Successful", '"PASS"', ""), ("Failed", '"FAIL"', "")
INSUFFICIENT = ("Inconclusive", '"INSUFFICIENT"', "")


class Scene:
    """A controller with its HTTP port, and the template that asks it."""

    def __init__(self, client, port, clock):
        self.client, self.clock = client, clock
        self._place = f"127.0.0.1:{port}"

    def asked(self, stage="offline_ci", **changes):
        """The arguments of a run."""
        told = {"contract": "rollout", "candidate": candidate_digest(recorded_candidate()), "stage": stage}
        return told | {"controller": self._place} | changes

    def measure(self, given=None, **web):
        """Measure one run, with changes to the provider of the example."""
        made = copy.deepcopy(template())
        made["spec"]["metrics"][0]["provider"]["web"] |= web
        return measured(made, {"run": given or self.asked()})["run"]


@pytest.fixture
def scene(tmp_path):
    clock, port, token = ManualClock(), free_port(), tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    with controller(tmp_path, clock, http=f"127.0.0.1:{port}", hook_token=token) as client:
        yield Scene(client, port, clock)


def template():
    return yaml.safe_load((EXAMPLES / "analysis-template.yaml").read_text())


def url():
    (metric,) = template()["spec"]["metrics"]
    return metric["provider"]["web"]["url"]


def test_a_stage_is_measured_as_it_stands(scene):
    assert scene.measure() == INSUFFICIENT  # nothing is promoted yet
    promoted(scene.client, scene.clock, 3)
    steps = {f"step {n}": scene.asked("canary", step=str(n)) for n in (1, 2, 3)}
    stages = {str(stage): scene.asked(str(stage)) for stage in Stage}
    assert measured(template(), steps | stages) == {
        "offline_ci": PASS,
        "shadow": PASS,
        "step 1": PASS,
        "step 2": INSUFFICIENT,
        "step 3": INSUFFICIENT,
        "canary": INSUFFICIENT,
        "full": INSUFFICIENT,
    }
    scene.clock.advance(seconds=25 * 3600)  # and the evidence is too old
    assert scene.measure() == INSUFFICIENT


def test_a_violation_is_a_failure_and_what_is_undecided_is_not(scene):
    promotion = scene.client.start(canonical_json(contract(0.06)), recorded_candidate(), promotion_id="p1")
    for recording, phase in (("healthy", INSUFFICIENT), ("top_p", FAIL)):
        report = recorded_report(recording, Stage.OFFLINE_CI, 1, tv=0.06)
        scene.client.submit("p1", evidence_of(report, promotion, scene.clock))
        assert scene.measure() == phase


def test_a_wrong_name_is_never_a_pass(scene):
    promoted(scene.client, scene.clock, 4)
    wrong = {
        "contract": "another",
        "candidate": "0" * 32,
        "stage": "beta",
        "step": "first",
    }
    runs = {name: scene.asked("canary") | {name: value} for name, value in wrong.items()}
    assert measured(template(), {"right": scene.asked("canary"), **runs}) == {
        "right": PASS,
        **dict.fromkeys(runs, INSUFFICIENT),
    }


def test_no_answer_is_an_error(scene):
    promoted(scene.client, scene.clock, 1)
    gone = scene.measure(scene.asked(controller=f"127.0.0.1:{free_port()}"))
    assert (gone[0], gone[2].endswith("connect: connection refused")) == ("Error", True)
    hook = scene.measure(method="POST", url=url().replace("verdict", "hooks/flagger/event"))
    assert hook == ("Error", "", "received non 2xx response code: 401")
    for is_insecure in (False, True):  # the port speaks no TLS, whatever is believed
        phase, _, message = scene.measure(insecure=is_insecure, url=url().replace("http:", "https:"))
        assert (phase, "server gave HTTP response to HTTPS client" in message) == ("Error", True)


def test_verdicts_are_open_and_a_header_changes_nothing(scene):
    promoted(scene.client, scene.clock, 1)
    assert scene.measure(headers=[{"key": "Authorization", "value": "Bearer wrong"}]) == PASS


def test_an_argument_that_is_not_given_is_said_by_argo(scene):
    given = scene.asked()
    del given["candidate"]
    phase, _, message = scene.measure(given)
    assert (phase, "candidate" in message) == ("Invalid", True)


class _SignInPage(http.server.BaseHTTPRequestHandler):
    """What a proxy answers that wants people to sign in."""

    def do_GET(self):
        body = b"<html>sign in</html>"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


def test_why_nothing_that_answers_for_us_belongs_between(scene):
    """Argo asks no condition of an answer that is no JSON: the page and the template say so, and this is why."""
    scene.client.start(DOCUMENT, recorded_candidate(), promotion_id="p1")
    with serving(_SignInPage) as page:
        told = scene.measure(scene.asked(controller=page.removeprefix("http://")))
    assert told == ("Successful", "<html>sign in</html>", "")


def test_the_rollout_asks_by_arguments_that_the_template_has(scene):
    """Each analysis of the example, filled in by Argo; its steps are the canary's in order."""
    promoted(scene.client, scene.clock, 4)
    steps = yaml.safe_load((EXAMPLES / "rollout.yaml").read_text())["spec"]["strategy"]["canary"]["steps"]
    analyses = [step["analysis"] for step in steps if "analysis" in step]
    assert {a["templateName"] for found in analyses for a in found["templates"]} == {"kernel-contract"}
    ours = {name: value for name, value in scene.asked().items() if name != "stage"}
    runs = {str(n): _given(found) | ours for n, found in enumerate(analyses)}
    assert measured(template(), runs) == {
        "0": PASS,
        "1": PASS,
        "2": PASS,
        "3": INSUFFICIENT,
    }  # two steps here
    assert [_given(found).get("step") for found in analyses] == [None, "1", "2", "3"]


def _given(analysis):
    return {argument["name"]: argument["value"] for argument in analysis["args"]}
