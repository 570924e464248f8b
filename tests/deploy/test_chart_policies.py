"""Which ports the chart's network policies open towards Kafka, the API server and DNS: neither one too few nor all."""

import pytest
from deploy.helm_setup import HelmError, render, render_text
from deploy.parts import why_not

pytestmark = pytest.mark.skipif(why_not("helm") is not None, reason=str(why_not("helm")))
KUBE = "1.37"
EVERYTHING = {
    "kafka": {"bootstrap": ["kafka:9092"]},
    "contractsFrom": {"configMap": "ours", "names": ["dense"]},
    "roster": {"enabled": True},
    "operator": {"enabled": True},
    "controller": {"routes": "routes: []", "labelDriver": {"enabled": True}},
}
READ_THE_LOG = {"detectors", "roster", "topics"}
ASK_THE_API_SERVER = {"controller", "roster", "operator"}


def test_what_is_not_said_is_where_most_clusters_listen():
    found = egress({})
    assert who(found, tcp(9092)) == READ_THE_LOG
    assert who(found, tcp(443, 6443)) == ASK_THE_API_SERVER
    assert who(found, dns(53)) == READ_THE_LOG | ASK_THE_API_SERVER


def test_brokers_an_api_server_and_a_dns_that_listen_elsewhere_are_reached():
    given = {"kafkaPorts": [9094, "30000-32767", 9092], "apiServerPorts": [16443], "dnsPorts": [53, 5353]}
    found = egress(given)
    brokers = tcp(9092, 9094)
    brokers.append({"port": 30000, "endPort": 32767, "protocol": "TCP"})
    assert who(found, brokers) == READ_THE_LOG
    assert who(found, tcp(16443)) == ASK_THE_API_SERVER
    assert who(found, dns(53, 5353)) == READ_THE_LOG | ASK_THE_API_SERVER


@pytest.mark.parametrize("given", [{}, {"kafkaPorts": None, "apiServerPorts": None, "dnsPorts": None}])
def test_no_rule_is_without_ports_since_that_is_every_port(given):
    assert all(rule["ports"] for rules in egress(given).values() for rule in rules)
    assert egress(given) == egress({})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafkaPorts": [0]}, "- at '/networkPolicy/kafkaPorts/0': minimum: got 0, want 1"),
        (
            {"kafkaPorts": ["9094:9099"]},
            (
                "- at '/networkPolicy/kafkaPorts/0': '9094:9099' does not match pattern "
                "'^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$'"
            ),
        ),
        ({"apiServerPorts": []}, "- at '/networkPolicy/apiServerPorts': minItems: got 0, want 1"),
        ({"dnsPorts": []}, "- at '/networkPolicy/dnsPorts': minItems: got 0, want 1"),
        (
            {"kafkaPorts": ["9099-9094"], "apiServerPorts": ["443-70000"]},
            (
                "- networkPolicy.kafkaPorts: 9099-9094 is no range of ports: write the lower one first, and none above "
                "65535\n"
                "  - networkPolicy.apiServerPorts: 443-70000 is no range of ports: write the lower one first, and none "
                "above 65535"
            ),
        ),
    ],
)
def test_what_is_no_port_is_refused(given, said):
    with pytest.raises(HelmError) as refused:
        render_text([EVERYTHING, {"networkPolicy": given}], KUBE)
    assert str(refused.value).strip().endswith(said)


def egress(given):
    """The rules of each component, by its name."""
    objects = render([EVERYTHING, {"networkPolicy": {"enabled": True, **given}}], KUBE)
    found = (o for o in objects if o["kind"] == "NetworkPolicy")
    return {o["metadata"]["name"].removeprefix("demo-paritas-"): o["spec"]["egress"] for o in found}


def who(found, ports):
    return {name for name, rules in found.items() if ports in [rule["ports"] for rule in rules]}


def tcp(*ports):
    return [{"port": port, "protocol": "TCP"} for port in ports]


def dns(*ports):
    return [{"port": port, "protocol": kind} for port in ports for kind in ("UDP", "TCP")]
