"""``routes.yaml``: what it says, and the exact text of every fault with its place."""

import pytest

from paritas.clock import ManualClock
from paritas.commands.agent_config import ConfigError
from paritas.commands.routes_file import load_routes, read_routes
from paritas.controller.routing.model import FailMode, Replica, SafetyLimits
from paritas.errors import UsageError

SHORT = """\
routes:
  - policy: qwen3-8b
    replicas:
      - {name: r1, kernel: inference, target: "http://10.0.0.1:8000"}
      - {name: f1, kernel: reference}
"""
WHOLE = (
    SHORT
    + """\
    slices:
      task=math: {x-task: math}
    limits:
      minimum_healthy: 2
      share_moved_at_most: 0.5
      drained_at_most: 0.25
      ejection: 10s
      ejection_at_most: 10m
      dwell: 1m
      lease: 30s
    fail_mode: fallback
    dry_run: false
    reference_policy: qwen3-8b-reference
    driver:
      file: {path: /tmp/routes.json}
"""
)


def read(text, **told):
    return read_routes(text.encode(), "routes.yaml", clock=ManualClock(), **told)


def faults(text):
    with pytest.raises(ConfigError) as caught:
        read(text)
    return caught.value.render()


def test_what_is_left_out_is_safe():
    (declared,) = read(SHORT)
    fleet = declared.fleet
    assert (fleet.dry_run, fleet.fail_mode, fleet.limits) == (True, FailMode.HOLD, SafetyLimits())
    assert fleet.replicas == (Replica("r1", "inference", "http://10.0.0.1:8000"), Replica("f1", "reference"))
    assert (declared.driver, declared.settings) == ("", {})


def test_a_contract_may_say_the_fail_mode():
    assert read(SHORT, fail_mode=FailMode.FALLBACK)[0].fleet.fail_mode is FailMode.FALLBACK


def test_everything_is_read():
    (declared,) = read(WHOLE)
    fleet = declared.fleet
    assert fleet.limits == SafetyLimits(2, 0.5, 0.25, 10.0, 600.0, 60.0, 30.0)
    assert (fleet.slices, fleet.fail_mode) == ({"task=math": {"x-task": "math"}}, FailMode.FALLBACK)
    assert (fleet.dry_run, fleet.reference_policy) == (False, "qwen3-8b-reference")
    assert (declared.driver, declared.settings) == ("file", {"path": "/tmp/routes.json"})


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            "policy: qwen3-8b\n",
            "polcy: qwen3-8b\n",
            (
                "[config] routes.yaml:2:5: routes[0]: unknown field 'polcy'\n"
                "  hint: did you mean 'policy'?\n"
                "[config] routes.yaml:2:5: routes[0]: missing field 'policy'\n"
                "  hint: policy: whose requests, as its contract says"
            ),
        ),
        (
            "name: f1",
            "name: r1",
            "[config] routes.yaml:5:16: routes[0].replicas[1].name: 'r1' is declared twice\n  hint: remove one",
        ),
        (
            "kernel: reference}",
            'kernel: reference, target: "http://10.0.0.1:8000"}',
            (
                "[config] routes.yaml:5:47: routes[0].replicas[1].target: 'http://10.0.0.1:8000' is declared twice\n"
                "  hint: remove one"
            ),
        ),
        (
            "kernel: inference",
            "kernel: fp8",
            (
                "[config] routes.yaml:4:7: routes[0].replicas: no replica serves the inference kernel\n"
                "  hint: write kernel: inference"
            ),
        ),
        (
            "task=math: {x-task: math}",
            "all: {x-task: math}",
            "[config] routes.yaml:7:12: routes[0].slices.all: all requests need no headers\n  hint: remove it",
        ),
        (
            "{x-task: math}",
            "{}",
            "[config] routes.yaml:7:18: routes[0].slices.task=math: names no header\n  hint: write {x-task: math}",
        ),
        (
            "{x-task: math}",
            "{X-Task: math}",
            (
                "[config] routes.yaml:7:27: routes[0].slices.task=math: 'X-Task' is no header name\n"
                "  hint: write it in lower case, such as x-task"
            ),
        ),
        (
            "task=math: {x-task: math}",
            "task=math: {x-task: math}\n      math: {x-task: math}",
            (
                "[config] routes.yaml:8:13: routes[0].slices.math: has the headers of slice 'task=math'\n"
                "  hint: a router could not tell them apart"
            ),
        ),
        (
            "ejection_at_most: 10m",
            "ejection_at_most: 5s",
            (
                "[config] routes.yaml:13:25: routes[0].limits.ejection_at_most: shorter than ejection\n"
                "  hint: write at least 10s"
            ),
        ),
        (
            "dwell: 1m",
            "dwell: 0s",
            "[config] routes.yaml:9:7: routes[0].limits: dwell_s: must be positive, got 0.0",
        ),
        (
            "share_moved_at_most: 0.5",
            "share_moved_at_most: 50%",
            (
                "[config] routes.yaml:10:28: routes[0].limits.share_moved_at_most: expected a number, got text '50%'\n"
                "  hint: a share: write 0.5 for 50 %"
            ),
        ),
        (
            "dry_run: false",
            "dry_run: no",
            (
                "[config] routes.yaml:17:14: routes[0].dry_run: expected true or false, got text 'no'\n"
                "  hint: YAML 1.2 knows true and false only"
            ),
        ),
        (
            "fail_mode: fallback",
            "fail_mode: fall_back",
            (
                "[config] routes.yaml:16:16: routes[0].fail_mode: unknown name 'fall_back'\n"
                "  hint: did you mean 'fallback'?"
            ),
        ),
        (
            "file: {path: /tmp/routes.json}",
            "fiel: {path: /tmp/routes.json}",
            (
                "[config] routes.yaml:20:7: routes[0].driver: driver: there is none called 'fiel'\n"
                "  hint: one of envoy, file, kubernetes-label, sglang-router, vllm-router, webhook"
            ),
        ),
        (
            "file: {path: /tmp/routes.json}",
            "file: {path: 3}",
            "[config] routes.yaml:20:7: routes[0].driver: driver 'file': 'path' must be text, got 3.0",
        ),
        (
            "file: {path: /tmp/routes.json}",
            "file: {path: /a}\n      webhook: {url: http://x}",
            "[config] routes.yaml:20:7: routes[0].driver: expected one driver\n  hint: one router a fleet",
        ),
    ],
)
def test_faults(old, new, text):
    assert old in WHOLE
    assert faults(WHOLE.replace(old, new, 1)) == text


def test_every_fault_in_one_go():
    text = WHOLE.replace("name: f1", "name: r1").replace("{x-task: math}", "{}")
    assert faults(text) == (
        "[config] routes.yaml:5:16: routes[0].replicas[1].name: 'r1' is declared twice\n  hint: remove one\n"
        "[config] routes.yaml:7:18: routes[0].slices.task=math: names no header\n  hint: write {x-task: math}"
    )


def test_a_policy_is_routed_once():
    assert faults(SHORT + SHORT.removeprefix("routes:\n")) == (
        "[config] routes.yaml:6:13: routes[1].policy: 'qwen3-8b' is declared twice\n  hint: remove one"
    )


def test_an_empty_file():
    assert faults("") == "[config] routes.yaml:1:1: the file is empty\n  hint: routes are required"


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError) as caught:
        load_routes(tmp_path / "no.yaml", clock=ManualClock())
    assert caught.value.render().replace(str(tmp_path), "DIR") == (
        "[usage] DIR/no.yaml: cannot be read: No such file or directory\n  hint: name the file of routes"
    )


def test_a_file_is_read(tmp_path):
    path = tmp_path / "routes.yaml"
    path.write_text(SHORT)
    assert load_routes(path, clock=ManualClock()) == read(SHORT)
