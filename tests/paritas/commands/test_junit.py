"""JUnit XML: what is green, what is red, and what is red for want of an answer."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from command_runs import recording

from paritas.commands.junit import junit_xml
from paritas.commands.offline import judge_recording
from paritas.contracts.load import load_named
from paritas.records import Reason, State


@pytest.fixture(scope="module")
def judged():
    """A stale replica, judged by a preset."""
    files = (Path(recording(f"{name}")) for name in ("healthy.serve", "stale.train"))
    return judge_recording(load_named("dense-bf16"), *files)


def cases(judgement):
    suite = ET.fromstring(junit_xml(judgement)).find("testsuite")
    return suite, {case.get("name"): case for case in suite.iter("testcase")}


def test_one_case_a_clause_and_slice(judged):
    suite, found = cases(judged)
    assert list(found) == [f"{v.clause} [{v.slice}]" for v in judged.verdicts]
    for verdict in judged.verdicts:
        inside = [child.tag for child in found[f"{verdict.clause} [{verdict.slice}]"]]
        expected = {State.CONFORMING: [], State.VIOLATED: ["failure"]}.get(verdict.state, ["error"])
        assert inside == expected
    counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    states = [v.state for v in judged.verdicts]
    assert counts["tests"] == len(states)
    assert counts["failures"] == states.count(State.VIOLATED) > 0
    assert counts["errors"] == states.count(State.UNDECIDED) + states.count(State.NO_DATA) > 0
    assert counts["skipped"] == 0


# What the schema of Jenkins' xUnit plugin (junit-10.xsd) takes and asks for.
TAKEN = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname", "id"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "time", "classname", "group"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
}
ASKED = {
    "testsuite": {"name", "tests", "failures", "errors"},
    "testcase": {"name"},
    "property": {"name", "value"},
}


def test_only_what_continuous_integration_servers_know(judged):
    root = ET.fromstring(junit_xml(judged))
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) <= TAKEN[element.tag]
        assert set(element.attrib) >= ASKED.get(element.tag, set())


def test_a_failure_says_what_and_why(judged):
    _, found = cases(judged)
    failure = found["mean-ratio [replica=r2]"].find("failure")
    assert failure.get("type") == "violated.refuted"
    assert failure.get("message").startswith("mean_ratio violated: refuted; estimate ")
    assert "stale_weights" in failure.text
    assert found["token-tv [all]"].find("error").get("type") == "undecided.needs_more_units"


def test_names_from_the_data_never_break_the_document(judged):
    odd = replace(
        judged.verdicts[0], slice='a"<&>\x00\x1b\ud800\uffff日', state=State.NO_DATA, reason=Reason.GAP
    )
    _, found = cases(replace(judged, verdicts=(odd,)))
    assert list(found) == [f'{odd.clause} [a"<&>\ufffd\ufffd\ufffd\ufffd日]']


def test_green_is_exit_code_zero_and_nothing_else(judged):
    passed = tuple(v for v in judged.verdicts if v.state is State.CONFORMING)
    green = replace(judged, verdicts=passed)
    suite, found = cases(green)
    assert (green.exit_code, suite.get("failures"), suite.get("errors")) == (0, "0", "0")
    assert all(len(case) == 0 for case in found.values())
