"""`paritas routes` as a person runs it, and the option ``--routes`` of the commands that run a controller."""

import json
import os
import re

import pytest
from escalation_examples import escalation
from routing_scenes import DRAIN, fleet, reroute

from paritas.cli import main
from paritas.clock import NS_PER_S, SystemClock
from paritas.commands.places import DataFolder, Running
from paritas.commands.routes_option import declared_routes
from paritas.commands.up import running
from paritas.contracts.load import load_preset
from paritas.controller.client import EscalationClient
from paritas.controller.config import ServerConfig
from paritas.controller.route_admin import RouteAdmin
from paritas.controller.routing.declared import Declared
from paritas.controller.routing.model import FailMode
from paritas.controller.server import serving
from paritas.errors import UsageError
from paritas.records import Action

ROUTES = """\
routes:
  - policy: qwen3-8b
    replicas: [{name: r1, kernel: inference}, {name: r2, kernel: inference}, {name: f1, kernel: reference}]
"""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
ID = re.compile(r"\b[0-9a-f]{16}\b")


@pytest.fixture
def target(tmp_path, monkeypatch):
    folder = DataFolder(tmp_path / "state")
    folder.make()
    monkeypatch.setenv("PARITAS_DATA", str(folder.root))
    declared = (Declared(fleet()),)
    with serving(ServerConfig(folder.database, listen="127.0.0.1:0", routes=declared)) as target:
        folder.announce(Running(os.getpid(), target, ""))
        yield target


@pytest.fixture
def paritas(capsys):
    def run(*arguments):
        code = main(["routes", *arguments])
        told = capsys.readouterr()
        return code, ID.sub("ID", TIME.sub("TIME", re.sub(r"for \d+ s", "for N s", told.out))), told.err

    return run


def publish(target, revision, *events):
    now_ns = SystemClock().now_ns()
    times = {"issued_ns": now_ns, "valid_until_ns": now_ns + 600 * NS_PER_S}
    with EscalationClient(target) as client, RouteAdmin(target) as admin:
        client.publish([escalation(**{**times, **event}) for event in events])
        while admin.states()[0].table.revision < revision:
            pass


def test_it_shows_what_is_wanted_and_why(target, paritas):
    publish(
        target,
        2,
        {"slice": "task=math", "actions": (reroute(0.25), Action("set_cap", {"cap": 1.5}))},
        {"slice": "replica=r2", "incident_id": "i2", "actions": (DRAIN,)},
    )
    assert paritas("--audit", "1") == (
        0,
        (
            "qwen3-8b  revision 2, driven by those who resolve; valid for N s, then hold\n"
            "  all: inference 1  (incident)\n"
            "    asks the trainer: set_cap 1.5\n"
            "    r2 is out: an incident asks for it; set_cap: an incident asks for it\n"
            "  task=math: inference 0.75, reference 0.25  (incident)\n"
            "    slice task=math asks for 0.25 on the reference kernel; r2 is out: an incident asks for it; "
            "set_cap: an incident asks for it\n"
            "  out: r2\n"
            "TIME qwen3-8b task=math decided (incident): inference 1 -> inference 0.75, reference 0.25, out: r2: "
            "slice task=math asks for 0.25 on the reference kernel; r2 is out: an incident asks for it; "
            "set_cap: an incident asks for it\n"
        ),
        "",
    )


def test_json_holds_everything(target, paritas):
    publish(target, 2, {"actions": (reroute(),)})
    _, out, _ = paritas("--json", "--policy", "qwen3-8b")
    told = json.loads(out)
    assert told["states"][0]["table"]["routes"][0]["weights"] == {"reference": 1.0}
    assert told["states"][0]["table"]["dry_run"] is False
    assert told["overrides"] == []
    assert [(e["kind"], e["why"], e["key"]["slice"]) for e in told["audit"]] == [
        ("decided", "conforming", "all"),
        ("decided", "conforming", "task=math"),
        ("decided", "incident", "all"),
        ("decided", "incident", "task=math"),
    ]


def test_an_override_begins_and_ends(target, paritas):
    told = ("--policy", "qwen3-8b", "--for", "30m", "--author", "ana", "--reason", "swap of r1")
    shares = ("--weights", "inference=0.5,reference=0.5", "--drain", "r1", "--release", "hold_refit")
    line = (
        "override ID of qwen3-8b all: inference 0.5, reference 0.5; drain r1; release hold_refit "
        "until TIME by ana: swap of r1"
    )
    assert paritas("override", *told, *shares) == (0, line + "\n", "")
    with RouteAdmin(target) as admin:
        (made,) = admin.overrides()
    assert line in paritas()[1]
    ended = paritas("expire", made.override_id, "--author", "bea")
    assert ended == (0, line + ", ended by bea\n", "")
    assert (
        json.loads(paritas("--json", "expire", made.override_id, "--author", "eve")[1])["expired_by"] == "bea"
    )


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"--for": "soon"},
            "[usage] --for: 'soon' is no duration\n  hint: write a number and a unit: 90s, 30m, 2h\n",
        ),
        (
            {"--weights": "half"},
            "[usage] --weights: 'half' is no share of a kernel\n  hint: write inference=0.5,reference=0.5\n",
        ),
        (
            {"--release": "refit"},
            (
                "[usage] --release: 'refit' names no hold\n"
                "  hint: one of hold_refit, flush_prefix_cache, set_cap, block_promotion\n"
            ),
        ),
        ({"--drain": "r9"}, "[permanent] drain: 'r9' is not of the fleet (one of f1, r1, r2, r3, r4)\n"),
    ],
)
def test_mistakes(target, paritas, changed, text):
    options = {
        "--policy": "qwen3-8b",
        "--for": "30m",
        "--author": "ana",
        "--reason": "x",
        "--drain": "r1",
        **changed,
    }
    code, out, err = paritas("override", *(word for pair in options.items() for word in pair))
    assert (code, out, err) == (64 if text.startswith("[usage]") else 1, "", text)


def test_nothing_is_routed(tmp_path, paritas):
    with serving(ServerConfig(tmp_path / "log.db", listen="127.0.0.1:0")) as target:
        assert paritas("--target", target) == (0, "no policy is routed here\n", "")


class Told:
    routes = None


def test_no_file_is_no_route():
    assert declared_routes(Told()) == ()


def test_up_routes_by_the_file_and_the_contracts_fail_mode(tmp_path):
    told = Told()
    told.routes = tmp_path / "routes.yaml"
    told.routes.write_text(ROUTES)
    routes = declared_routes(told, on_loss="fallback")
    assert routes[0].fleet.fail_mode is FailMode.FALLBACK
    folder = DataFolder(tmp_path / "state")
    with running(load_preset("dense-bf16"), folder, listen="127.0.0.1:0", routes=routes) as up:
        with RouteAdmin(up.target) as admin:
            (state,) = admin.states()
        assert (state.table.policy, state.table.dry_run) == ("qwen3-8b", True)


def test_a_contract_of_another_policy_would_move_nothing(tmp_path):
    told = Told()
    told.routes = tmp_path / "routes.yaml"
    told.routes.write_text(ROUTES)
    with pytest.raises(UsageError) as caught:
        declared_routes(told, policy="llama")
    assert caught.value.render().replace(str(tmp_path), "DIR") == (
        "[usage] DIR/routes.yaml: no fleet is of policy 'llama', which the contract binds\n"
        "  hint: write policy: llama"
    )
