"""What each rule does, one scene a rule."""

from dataclasses import replace

import pytest
from routing_scenes import DRAIN, LIMITS, START_NS, S, Story, fleet, over, reroute, seen

from paritas.controller.routing.audit import AuditKind
from paritas.controller.routing.desired import Round, due_ns
from paritas.controller.routing.model import FailMode, Hold, RouteKey, SafetyLimits, Why
from paritas.controller.routing.override import Override
from paritas.errors import UsageError
from paritas.records import Action, Phase

MATH = "task=math"


def order(**changes):
    values = {"override_id": "o1", "key": RouteKey("qwen3-8b"), "author": "ana", "reason": "swap"}
    times = {"starts_ns": START_NS, "ends_ns": START_NS + 100 * S}
    return Override(**{**values, **times, **changes})


def said(story):
    return [(e.kind.value, e.why.value, e.detail) for e in story.audit]


def test_nothing_asks_for_anything():
    story = Story()
    routes = story.at(0)
    assert {name: (r.weights, r.why) for name, r in routes.items()} == {
        "all": ({"inference": 1.0}, Why.CONFORMING),
        MATH: ({"inference": 1.0}, Why.CONFORMING),
    }
    assert said(story) == [("decided", "conforming", "inference 1")] * 2
    assert story.all(1).revision == 1
    assert story.audit == []


def test_a_firing_incident_moves_all_requests_and_every_slice():
    story = Story()
    routes = story.at(0, seen(actions=(reroute(0.4),)))
    assert {name: r.weights for name, r in routes.items()} == {
        "all": {"inference": 0.6, "reference": 0.4},
        MATH: {"inference": 0.6, "reference": 0.4},
    }
    assert routes["all"].why is Why.INCIDENT
    assert routes["all"].incidents == ("i1",)
    assert routes["all"].detail == "slice all asks for 0.4 on the reference kernel"


def test_a_slice_the_router_knows_moves_alone():
    routes = Story().at(0, seen(slice=MATH, actions=(reroute(),)))
    assert {name: r.weights for name, r in routes.items()} == {
        "all": {"inference": 1.0},
        MATH: {"reference": 1.0},
    }


def test_a_slice_the_router_does_not_know_moves_everything_and_says_so():
    route = Story().all(0, seen(slice="turn=2", actions=(reroute(0.5),)))
    assert route.weights == {"inference": 0.5, "reference": 0.5}
    assert route.detail == (
        "slice turn=2 asks for 0.5 on the reference kernel; the router cannot tell it apart, so all requests are moved"
    )


def test_a_replica_is_drained_and_comes_back_after_the_recovery_and_its_time_out():
    story, incident = Story(), seen(slice="replica=r2", actions=(DRAIN,))
    assert story.all(0, incident).drained == {"r2"}
    assert story.audit[0].detail == "inference 1, out: r2: r2 is out: an incident asks for it"
    recovering = over(incident, Phase.RECOVERING)
    assert story.all(1000, recovering).drained == {"r2"}
    assert story.all(1001, over(recovering)).drained == frozenset()


def test_time_alone_never_brings_back():
    story, incident = Story(), seen(actions=(reroute(),))
    story.at(0, incident)
    route = story.all(1_000_000, incident)
    assert (route.weights, route.why) == ({"reference": 1.0}, Why.LEASE_EXPIRED)
    assert story.all(1_000_001).weights == {"reference": 1.0}  # nor does silence of the detectors
    assert story.all(1_000_002, over(incident)).weights == {"inference": 1.0}


def test_what_lapses_falls_to_the_declared_fail_mode():
    story, incident = Story(fleet(fail_mode=FailMode.FALLBACK)), seen(actions=(reroute(0.2),))
    assert story.all(0, incident).weights == {"inference": 0.8, "reference": 0.2}
    assert story.all(601, incident).weights == {"reference": 1.0}


def test_an_incident_that_comes_too_late_moves_nothing():
    story = Story()
    route = story.all(601, seen(actions=(reroute(),)))
    assert (route.weights, route.why) == ({"inference": 1.0}, Why.LEASE_EXPIRED)
    assert route.detail == "incident of token-tv in all was told too late: nothing is done for it"


def test_new_weights_end_an_incident_and_the_time_out_grows():
    story = Story()
    for number, served_s in ((1, 20), (2, 40), (3, 60)):
        incident = seen(f"i{number}", at_ns=story.now_ns, slice="replica=r2", actions=(DRAIN,))
        at = (story.now_ns - START_NS) / S
        assert story.all(at, incident).drained == {"r2"}
        ended = over(incident, Phase.SUPERSEDED)
        route = story.all(at + served_s - 1, ended)
        assert (route.drained, route.why) == ({"r2"}, Why.EJECTED)
        assert story.all(at + served_s, ended).drained == frozenset()


def test_ejections_are_forgotten_while_the_replica_is_in():
    story, incident = Story(), seen(slice="replica=r2", actions=(DRAIN,))
    story.at(0, incident)
    story.at(20, over(incident))
    story.at(120)  # the longest time out, spent in rotation
    assert story.memory.rotations == {}


def test_moving_back_waits_for_the_dwell_time():
    story, incident = Story(), seen(actions=(reroute(),))
    story.at(0, incident)
    route = story.all(29, over(incident))
    assert (route.weights, route.why) == ({"reference": 1.0}, Why.DWELL)
    assert route.detail == "1 stays moved: the last move is less than 30 s ago"
    assert story.all(30, over(incident)).weights == {"inference": 1.0}


def test_the_last_replica_is_never_drained():
    story = Story(fleet(inference=1))
    route = story.all(0, seen(slice="replica=r1", actions=(DRAIN,)))
    assert (route.drained, route.why) == (frozenset(), Why.MINIMUM_HEALTHY)
    assert said(story)[-1] == ("withheld", "minimum_healthy", "r1 stays in: 1 must stay healthy")


def test_at_most_a_share_is_out_and_the_first_stays_out():
    story = Story()
    incidents = [seen(f"i{n}", slice=f"replica=r{n}", actions=(DRAIN,)) for n in (3, 1, 2)]
    assert story.all(0, incidents[0]).drained == {"r3"}
    route = story.all(1, *incidents)
    assert route.drained == {"r3", "r1"}
    assert "r2 stays in: a share of at most 0.5 may be out" in route.detail


def test_deciding_again_about_what_came_at_once_changes_nothing():
    story = Story()
    both = [seen("a", slice="replica=r2", actions=(DRAIN,)), seen("b", slice="replica=r1", actions=(DRAIN,))]
    same = [*both, seen("c", slice="replica=r2", actions=(reroute(),))]
    first = story.at(0, *same)
    assert first["all"].incidents == ("a", "b", "c")
    assert story.at(0, *same) == first
    assert story.audit == []


def test_rerouting_a_replica_takes_it_out_or_moves_all_if_it_must_stay():
    asked = seen(slice="replica=r1", actions=(reroute(0.5),))
    assert Story().all(0, asked).drained == {"r1"}
    route = Story(fleet(inference=1)).all(0, asked)
    assert (route.drained, route.weights) == (frozenset(), {"inference": 0.5, "reference": 0.5})
    assert "r1 must stay in, so all requests are moved" in route.detail


def test_the_share_is_capped():
    limits = replace(LIMITS, share_moved_at_most=0.3)
    route = Story(fleet(limits=limits)).all(0, seen(actions=(reroute(),)))
    assert route.weights == {"inference": 0.7, "reference": 0.3}
    assert "1 of the requests was asked for, 0.3 may be moved" in route.detail


@pytest.mark.parametrize(
    ("of", "others", "text"),
    [
        (fleet(reference=0), (), "the fleet has no reference kernel: nothing is moved, people are told"),
        (
            fleet(reference_policy="reference-kernel"),
            (seen("bad", policy="reference-kernel", actions=()),),
            "the reference kernel itself breaks its contract: nothing is moved, people are told",
        ),
        (
            fleet(),
            (seen("bad", slice="replica=f1", actions=(reroute(),)),),
            (
                "the reference kernel itself breaks its contract: nothing is moved, people are told; "
                "f1 stays in: 1 must stay healthy"
            ),
        ),
        (
            fleet(),
            (seen("bad", actions=(Action("reroute", {"to": "inference"}),)),),
            "the reference kernel itself breaks its contract: nothing is moved, people are told",
        ),
    ],
)
def test_without_a_sound_reference_nothing_is_moved(of, others, text):
    route = Story(of).all(0, seen(actions=(reroute(),)), *others)
    assert (route.weights, route.why, route.detail) == ({"inference": 1.0}, Why.NO_REFERENCE, text)


def test_a_bad_replica_of_the_reference_moves_nothing_to_it():
    bad = seen("bad", slice="replica=f1", actions=(reroute(),))
    assert Story().all(0, bad).weights == {"inference": 1.0}
    route = Story(fleet(reference=2)).all(0, bad, seen(actions=(reroute(),)))
    assert (route.drained, route.weights) == ({"f1"}, {"reference": 1.0})


def test_a_reference_that_turns_bad_takes_no_more_and_gives_nothing_back():
    story, first = Story(), seen(actions=(reroute(0.5),))
    story.at(0, first)
    bad = seen("bad", actions=(Action("reroute", {"to": "inference"}),))
    more = seen("i2", actions=(reroute(),))
    assert story.all(60, first, more, bad).weights == {"inference": 0.5, "reference": 0.5}


def test_a_silenced_incident_moves_nothing_and_is_shown():
    story = Story()
    route = story.all(0, seen(silenced=True, actions=(reroute(), DRAIN)))
    assert (route.weights, route.why) == ({"inference": 1.0}, Why.SILENCED)
    assert route.detail == "token-tv in all is silenced by ana: nothing is done for it"
    assert said(story)[-1][:2] == ("withheld", "silenced")


def test_a_silence_that_comes_later_keeps_what_was_moved():
    story, incident = Story(), seen(actions=(reroute(0.5),))
    story.at(0, incident)
    louder = seen(number=2, silenced=True, actions=(reroute(1.0),))
    assert story.all(500, louder).weights == {"inference": 0.5, "reference": 0.5}
    assert story.all(5000, louder).weights == {"inference": 0.5, "reference": 0.5}
    assert story.all(5001, over(louder)).weights == {"inference": 1.0}


def test_a_silence_that_ends_lets_it_act_at_once():
    story, incident = Story(), seen(actions=(reroute(),))
    story.at(0, replace(incident, suppression=seen(silenced=True).suppression))
    assert story.all(1, incident).weights == {"reference": 1.0}


def test_holds_are_asked_of_the_trainer_with_the_smallest_cap():
    actions = (Action("hold_refit"), Action("flush_prefix_cache"), Action("block_promotion"))
    caps = [seen(f"c{n}", actions=(Action("set_cap", {"cap": n}), *actions)) for n in (2.0, 1.5)]
    routes = Story().at(0, *caps)
    assert routes["all"].holds == {
        Hold.REFIT: "",
        Hold.PREFIX_CACHE: "",
        Hold.CAP: "1.5",
        Hold.PROMOTION: "",
    }
    assert routes[MATH].holds == {}


def test_a_drain_that_names_no_replica_is_told():
    route = Story().all(0, seen(slice=MATH, actions=(DRAIN,)))
    assert (route.drained, route.why) == (frozenset(), Why.NO_REPLICA)


def test_an_incident_of_another_policy_is_not_ours():
    assert Story().all(0, seen(policy="llama", actions=(reroute(), DRAIN))).why is Why.CONFORMING


def test_a_contract_that_names_no_policy_binds_this_one_too():
    assert Story().all(0, seen(policy="", actions=(reroute(),))).weights == {"reference": 1.0}


def test_an_older_transition_does_not_undo_a_newer_one():
    story = Story()
    story.at(0, seen(number=5, actions=(reroute(),)))
    assert story.all(1, seen(number=4, actions=())).weights == {"reference": 1.0}


def test_a_person_wins_for_a_while():
    story, incident = Story(), seen(slice="replica=r2", actions=(DRAIN,))
    story.at(0, incident)
    one = order(weights={"inference": 0.25, "reference": 0.75}, admit=frozenset({"r2"}))
    routes = story.at(1, incident, overrides=(one,))
    assert {name: (r.weights, r.drained, r.why) for name, r in routes.items()} == dict.fromkeys(
        ("all", MATH), ({"inference": 0.25, "reference": 0.75}, frozenset(), Why.OVERRIDE)
    )
    assert routes["all"].detail == "ana: swap; r2 stays in: a person wants it in"
    assert story.all(101, incident, overrides=(one,)).drained == {"r2"}


def test_a_person_drains_within_the_limits_and_without_time_out():
    story = Story(fleet(inference=2))
    one = order(drain=frozenset({"r1", "r2"}))
    assert story.all(0, overrides=(one,)).drained == {"r1"}
    assert story.all(100, overrides=(one,)).drained == frozenset()


def test_a_plan_yields_to_incidents():
    story, plan = (
        Story(),
        order(weights={"inference": 0.9, "reference": 0.1}, shadow={"reference": 0.2}, yields=True),
    )
    route = story.all(0, overrides=(plan,))
    assert (route.weights, route.shadow) == ({"inference": 0.9, "reference": 0.1}, {"reference": 0.2})
    moved = story.all(1, seen(actions=(reroute(),)), overrides=(plan,))
    assert (moved.weights, moved.why) == ({"reference": 1.0}, Why.INCIDENT)


def test_a_person_lifts_a_hold():
    story, incident = Story(), seen(actions=(Action("hold_refit"),))
    one = order(release=frozenset({Hold.REFIT}))
    route = story.all(0, incident, overrides=(one,))
    assert (route.holds, route.why) == ({}, Why.OVERRIDE)
    assert "hold_refit is lifted by ana: swap" in route.detail
    assert story.all(100, incident, overrides=(one,)).holds == {Hold.REFIT: ""}


def test_the_next_change_by_itself_is_known():
    story, incident = Story(), seen(slice="replica=r2", actions=(DRAIN,))
    story.at(0, incident)
    given = Round(story.fleet, story.now_ns, (incident,))
    assert due_ns(story.memory, given) == START_NS + 20 * S
    story.at(0, over(incident))
    assert due_ns(story.memory, given) == START_NS + 20 * S
    story.at(20, over(incident))
    assert due_ns(story.memory, replace(given, incidents=())) is None


def test_every_change_is_in_the_audit_with_its_number():
    story, incident = Story(), seen(actions=(reroute(),))
    story.at(0)
    story.at(1, incident)
    assert [(e.kind, e.revision, e.incidents) for e in story.audit] == [(AuditKind.DECIDED, 2, ("i1",))] * 2
    assert story.audit[0].detail == (
        "inference 1 -> reference 1: slice all asks for 1 on the reference kernel"
    )


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"minimum_healthy": 0}, "minimum_healthy: must be at least 1, got 0"),
        ({"drained_at_most": 1.5}, "drained_at_most: must be between 0 and 1, got 1.5"),
        ({"dwell_s": 0.0}, "dwell_s: must be positive, got 0.0"),
    ],
)
def test_limits_that_limit_nothing(limits, text):
    with pytest.raises(UsageError, match=text):
        SafetyLimits(**limits)


def test_a_clock_that_is_set_back_hides_neither_incidents_nor_people_and_lengthens_no_lease():
    """An hour too fast at the start, then put right: what is stamped rightly counts at once."""
    story, right = Story(), START_NS - 3600 * S
    story.at(0)
    firing = seen(at_ns=right, actions=(reroute(0.5),))
    route = story.all(-3600 + 1, firing)
    assert (route.weights, route.why) == ({"inference": 0.5, "reference": 0.5}, Why.INCIDENT)
    assert route.valid_until_ns == right + (1 + 60) * S
    person = order(starts_ns=right, ends_ns=right + 600 * S, weights={"inference": 1.0})
    assert story.all(-3600 + 2, firing, overrides=(person,)).why is Why.OVERRIDE
    given = Round(story.fleet, story.now_ns, (firing,), (person,))
    assert due_ns(story.memory, given) == right + 600 * S


def test_what_moved_stays_its_dwell_time_by_a_clock_that_only_grows():
    story = Story()
    firing = seen(actions=(reroute(),), valid_s=10_000.0)
    story.at(0, firing)
    assert story.all(-20, over(firing)).why is Why.DWELL
    assert story.all(29.9, over(firing)).why is Why.DWELL
    assert story.all(30, over(firing)).weights == {"inference": 1.0}


def test_nothing_stays_moved_to_a_reference_kernel_that_the_file_no_longer_has():
    """The fleet is declared anew while an incident is open: no request may be sent to nobody."""
    story, firing = Story(), seen(actions=(reroute(),), valid_s=10_000.0)
    assert story.all(0, firing).weights == {"reference": 1.0}
    story.fleet = fleet(reference=0)
    route = story.all(1, firing)
    assert (route.weights, route.why) == ({"inference": 1.0}, Why.NO_REFERENCE)


@pytest.mark.parametrize("yields", [False, True])
def test_a_person_s_share_of_a_kernel_that_the_file_no_longer_has_is_the_inference_kernel_s(yields):
    person = order(weights={"inference": 0.25, "reference": 0.5, "candidate": 0.25}, yields=yields)
    assert Story().all(1, overrides=(person,)).weights == {"inference": 0.5, "reference": 0.5}
    assert Story(fleet(reference=0)).all(1, overrides=(person,)).weights == {"inference": 1.0}
