"""What is known of a contract → its status: nothing unknown is said to be well."""

import asyncio
import math
from dataclasses import replace

import pytest
from escalation_examples import escalation, verdict

from paritas.agent.health import Health
from paritas.agent.health_page import health_page
from paritas.contracts.load import load_text
from paritas.controller.model import Incident
from paritas.controller.operator.counts import Counts, prometheus_text
from paritas.controller.operator.model import Item, Plan, Sighting, Why
from paritas.controller.operator.publishing import Published
from paritas.controller.operator.sightings import digest_in, sighting_in, sightings
from paritas.controller.operator.status import status_of
from paritas.controller.operator.summary import Summary, summary_of
from paritas.records import Severity, State

NOW_NS, LATER_NS = 1_700_000_000_000_000_000, 1_700_000_060_000_000_000
NOW, LATER = "2023-11-14T22:13:20Z", "2023-11-14T22:14:20Z"
TEXT = (
    "apiVersion: paritas.dev/v1\nkind: KernelContract\nmetadata: {name: a, version: 1.2.0}\n"
    "spec: {clauses: {numerical: [{id: token-tv, statistic: tv, at_most: LIMIT}]}}"
)
CONTRACT = load_text(TEXT.replace("LIMIT", "0.02"), "a")
FLOORED = load_text(TEXT.replace("LIMIT", "{floor: f, times: 1.5, ceiling: 0.02}"), "a")
GOOD = Item("serving", "a", "u", 4, NOW, "text", CONTRACT)
BAD = replace(
    GOOD, contract=None, problems=(("spec: wrong", "mend it"), ("b: c", "")), status={"acceptedGeneration": 3}
)
LATEST = Published("text", CONTRACT, is_latest=True)
KEPT = Published("text", CONTRACT)
SEEN = Sighting(CONTRACT.digest, Why.JUDGED)
NOBODY = Sighting(why=Why.NO_DETECTORS, detail="not told")
CALM = Summary({})


def incident(**changes):
    told = {name: changes.pop(name) for name in ("severity", "clause", "slice") if name in changes}
    event = escalation(
        verdict=verdict(**{**changes, **{k: v for k, v in told.items() if k != "severity"}}), **told
    )
    return Incident(event, True, event.severity, NOW_NS)


def conditions(item=GOOD, published=LATEST, sighting=SEEN, summary=CALM):
    told = status_of(item, published, sighting, summary, now_ns=NOW_NS)["conditions"]
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in told}


def test_all_is_well():
    digest = CONTRACT.digest
    assert status_of(GOOD, LATEST, SEEN, CALM, now_ns=NOW_NS) == {
        "observedGeneration": 4,
        "acceptedGeneration": 4,
        "digest": digest,
        "version": "1.2.0",
        "conditions": [
            {
                "type": "Accepted",
                "status": "True",
                "reason": "Valid",
                "message": f"a 1.2.0 ({digest[:8]}) is valid",
                "lastTransitionTime": NOW,
                "observedGeneration": 4,
            },
            {
                "type": "Enforced",
                "status": "True",
                "reason": "Judged",
                "message": f"a detector judges by {digest[:8]}",
                "lastTransitionTime": NOW,
                "observedGeneration": 4,
            },
            {
                "type": "Violated",
                "status": "False",
                "reason": "NoOpenIncident",
                "message": "no incident is open",
                "lastTransitionTime": NOW,
                "observedGeneration": 4,
            },
        ],
        "verdicts": {"openIncidents": 0, "violated": 0, "undecided": 0, "noData": 0, "conforming": 0},
    }


def test_a_bad_generation_names_every_problem_and_what_stays_in_force():
    found = conditions(BAD, KEPT)
    assert found["Accepted"] == ("False", "Invalid", "spec: wrong (mend it)\nb: c")
    assert found["Enforced"][2].endswith("; 1.2.0 of generation 3 stays in force")
    told = status_of(BAD, KEPT, SEEN, CALM, now_ns=NOW_NS)
    assert (told["observedGeneration"], told["acceptedGeneration"]) == (4, 3)
    assert [c["observedGeneration"] for c in told["conditions"]] == [4, 3, 3]


def test_nothing_accepted_yet_is_not_enforced_and_has_no_digest():
    told = status_of(replace(BAD, status={}), Published(), SEEN, CALM, now_ns=NOW_NS)
    assert "digest" not in told
    found = conditions(replace(BAD, status={}), Published())
    assert found["Enforced"] == ("False", "NothingAccepted", "detectors are given no valid text")
    assert found["Violated"][:2] == ("Unknown", "NotEnforced")


@pytest.mark.parametrize(
    "why", [Why.NO_DETECTORS, Why.DETECTOR_AWAY, Why.DETECTOR_NOT_READY, Why.DIGEST_NOT_TOLD]
)
def test_without_a_detectors_word_enforcement_and_peace_are_unknown(why):
    found = conditions(sighting=Sighting(why=why, detail="because"))
    assert found["Enforced"] == ("Unknown", str(why), "because")
    message = "no incident is open, and no detector is known to judge"
    assert found["Violated"] == ("Unknown", "NotEnforced", message)


def test_another_digest_is_no_enforcement():
    found = conditions(sighting=Sighting("0" * 32, Why.JUDGED))
    message = f"the detector judges by 00000000, it is given {CONTRACT.digest[:8]}"
    assert found["Enforced"] == ("False", "OtherDigest", message)


def test_another_digest_of_a_contract_with_floors_is_unknown():
    published = Published("text", FLOORED, is_latest=True)
    found = conditions(published=published, sighting=Sighting("0" * 32, Why.JUDGED))
    assert found["Enforced"][:2] == ("Unknown", "Floors")
    assert found["Enforced"][2].endswith(", whose limits it makes absolute by its floors")


@pytest.mark.parametrize("why", [Why.CONFIG_MAP_FULL, Why.KEY_TAKEN, Why.CONFIG_MAP_REFUSED])
def test_a_text_that_is_withheld_is_not_enforced(why):
    found = conditions(published=Published(held=why, detail="because"))
    assert (found["Accepted"][0], found["Enforced"]) == ("True", ("False", str(why), "because"))


@pytest.mark.parametrize("why", [Why.CONTROLLER_AWAY, Why.NO_CONTROLLER])
def test_without_the_controller_nothing_old_is_told(why):
    told = status_of(GOOD, LATEST, SEEN, why, now_ns=NOW_NS)
    assert "verdicts" not in told
    assert conditions(summary=why)["Violated"][:2] == ("Unknown", str(why))


def test_incidents_without_a_violation_are_undecided():
    summary = summary_of([incident(state=State.UNDECIDED)])
    assert conditions(summary=summary, sighting=NOBODY)["Violated"][:2] == ("Unknown", "Undecided")


def test_a_violation_is_told_even_where_nobody_is_known_to_judge():
    summary = summary_of([incident(), incident(state=State.NO_DATA, estimate=math.nan)])
    found = conditions(summary=summary, sighting=NOBODY)["Violated"]
    assert found == ("True", "OpenIncident", escalation().summary)
    assert summary.as_dict()["noData"] == 1


def test_times_change_only_with_the_status_and_an_equal_status_is_equal():
    first = status_of(GOOD, LATEST, NOBODY, CALM, now_ns=NOW_NS)
    item = replace(GOOD, status=first)
    assert status_of(item, LATEST, NOBODY, CALM, now_ns=LATER_NS) == first
    told = status_of(item, LATEST, SEEN, CALM, now_ns=LATER_NS)["conditions"]
    assert [c["lastTransitionTime"] for c in told] == [NOW, LATER, LATER]


def test_the_worst_is_by_severity_then_state_then_distance():
    found = [
        incident(clause="mild", severity=Severity.INFO, estimate=9.0),
        incident(clause="near", severity=Severity.CRITICAL, estimate=0.021),
        incident(clause="far", severity=Severity.CRITICAL, estimate=0.09),
        incident(clause="open", severity=Severity.CRITICAL, state=State.UNDECIDED, estimate=5.0),
    ]
    assert summary_of(found).as_dict() == {
        "openIncidents": 4,
        "violated": 3,
        "undecided": 1,
        "noData": 0,
        "conforming": 0,
        "since": NOW,
        "worst": {
            "clause": "far",
            "slice": "all",
            "state": "violated",
            "severity": "critical",
            "statistic": "tv",
            "estimate": 0.09,
            "limit": 0.02,
        },
    }


def test_numbers_that_no_json_holds_are_left_out():
    worst = summary_of([incident(estimate=math.nan, limit=0.0)]).as_dict()["worst"]
    assert ("estimate" in worst, worst["limit"]) == (False, 0.0)


def test_a_page_without_the_digest_tells_none():
    page = 'paritas_detect_contract_info{contract="a"} 1\nparitas_detect_tokens_total{digest="x"} 1\n'
    assert digest_in(page) == ""
    line = f'paritas_detect_contract_info{{contract="a\\"b",version="1.0.0",digest="{"f" * 32}"}} 1\n'
    assert digest_in(page + line) == "f" * 32


INFO = f'paritas_detect_contract_info{{contract="a",version="1.0.0",digest="{"f" * 32}"}} 1\n'
READY = 'paritas_detect_ready{contract="a"} 1\nparitas_detect_not_ready{contract="a",reason="draining"} 0\n'
BLIND = """paritas_detect_ready{contract="a"} 0
paritas_detect_not_ready{contract="a",reason="starting"} 0
paritas_detect_not_ready{contract="a",reason="waiting_for_log"} 1
paritas_detect_not_ready{contract="a",reason="controller_unreachable"} 1
"""


@pytest.mark.parametrize(
    ("page", "why", "detail"),
    [
        (INFO + READY, Why.JUDGED, ""),
        (
            INFO + BLIND,
            Why.DETECTOR_NOT_READY,
            "u: the detector is not ready: waiting_for_log, controller_unreachable",
        ),
        (INFO, Why.DETECTOR_NOT_READY, "u: the detector is not ready: it does not say why"),
        (READY, Why.DIGEST_NOT_TOLD, "u tells no digest"),
    ],
)
def test_a_detector_that_sees_nothing_is_not_taken_for_one_that_judges(page, why, detail):
    found = sighting_in(page, "u")
    assert (found.why, found.detail) == (why, detail)


def test_a_page_is_read_to_its_end():
    filler = "".join(f"# {i:060d}\n" for i in range(20_000))  # beyond what one read of a socket gives
    with health_page(
        "127.0.0.1:0", health=lambda: Health(True, ()), page=lambda: INFO + filler + READY
    ) as served:
        plan = Plan("", "m", f"http://{served.address}")
        assert asyncio.run(sightings(plan, [GOOD])) == {"u": Sighting("f" * 32, Why.JUDGED)}
    found = asyncio.run(sightings(plan, [GOOD]))["u"]
    assert (found.why, found.digest) == (Why.DETECTOR_AWAY, "")


def test_the_page_counts():
    counts = Counts(violated=1, passes=3, last_pass_ns=NOW_NS)
    counts.contracts["true"] = 2
    counts.failures["controller"] = 4
    text = prometheus_text(counts)
    assert [line for line in text.splitlines() if line[0] != "#"] == [
        'paritas_operator_contracts{accepted="false"} 0',
        'paritas_operator_contracts{accepted="true"} 2',
        "paritas_operator_contracts_violated 1",
        "paritas_operator_passes_total 3",
        'paritas_operator_failures_total{part="cluster"} 0',
        'paritas_operator_failures_total{part="controller"} 4',
        'paritas_operator_failures_total{part="detector"} 0',
        'paritas_operator_writes_total{kind="config_map"} 0',
        'paritas_operator_writes_total{kind="status"} 0',
        "paritas_operator_last_pass_timestamp_seconds 1700000000",
    ]
