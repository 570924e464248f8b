"""Who is in rotation where a router knows no weights."""

from fleets import GOLD, fleet_of, route

from paritas.controller.drivers.members import change_of, members_of

TARGETS = {"r0": "http://a", "r1": "http://b", "ref": "http://c"}
FLEET = fleet_of(targets=TARGETS)


def names(replicas):
    return [replica.name for replica in replicas]


def test_those_of_a_kernel_without_requests_and_those_drained_are_out():
    assert names(members_of(FLEET, [route(drained=("r1",))]).wanted) == ["r0"]
    assert names(members_of(FLEET, [route(inference=0.0)]).wanted) == ["ref"]


def test_a_change_touches_only_what_differs_and_never_a_stranger():
    change = change_of(FLEET, members_of(FLEET, [route(inference=0.0)]).wanted, ["http://a", "http://x"])
    assert (names(change.add), names(change.remove)) == (["ref"], ["r0"])


def test_what_in_and_out_cannot_express_is_said_with_its_reason():
    routes = [route(GOLD), route(inference=0.5), route(shadow={"reference": 0.1})]
    said = [members_of(FLEET, [asked]).unsupported[asked.key] for asked in routes]
    assert said == [
        "this router cannot tell slice 'tier=gold' from the others",
        "this router knows only in and out, not shares",
        "this router cannot copy requests",
    ]
