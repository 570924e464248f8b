"""Every alert fires when it should and is quiet otherwise: promtool plays its metrics, minute by minute."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from deploy.parts import why_not
from deploy.tools_setup import tool

pytestmark = pytest.mark.skipif(bool(why_not("tools")), reason=str(why_not("tools")))

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
FILES = sorted((FOLDER / "rules").glob("*.yaml"))
ALERTS = {
    rule["alert"]: rule
    for path in FILES
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
}

AGENT = 'instance="a",job="paritas-agent"'
DETECT = 'contract="c",instance="d",job="paritas-detectors"'
BALANCED = {
    f"paritas_agent_records_accepted_total{{{AGENT}}}": "0+100x60",
    f"paritas_agent_records_delivered_total{{{AGENT}}}": "0+99x60",
    f'paritas_agent_records_dropped_total{{{AGENT},reason="overflow"}}': "0x60",
    f"paritas_agent_records_queued{{{AGENT}}}": "0+1x60",
}


def agent(name, values, *, labels=""):
    return {f"paritas_agent_{name}{{{AGENT}{labels}}}": values}


def detect(name, values, *, labels=""):
    return {f"paritas_detect_{name}{{{DETECT}{labels}}}": values}


def control(name, values, *, labels=""):
    return {f'paritas_control_{name}{{instance="k",job="paritas-controller"{labels}}}': values}


def roster(name, values):
    return {f'paritas_roster_{name}{{instance="r",job="paritas-roster",namespace="n"}}': values}


# Alert → series that make it fire 40 minutes on, and the nearest ones that must not.
SCENES = {
    "ParitasAgentDropsRecords": (
        agent("records_dropped_total", "0x30 1x30", labels=',reason="overflow"'),
        agent("records_dropped_total", "7x60", labels=',reason="overflow"'),
    ),
    "ParitasAgentGapUntold": (
        agent("gap_records_lost_total", "0x35 1x30"),
        agent("gap_records_lost_total", "1x60"),
    ),
    "ParitasAgentMemoryOnly": (agent("memory_only", "0x30 1x30"), agent("memory_only", "0x39 1x30")),
    "ParitasAgentUnaccounted": (
        BALANCED | {f"paritas_agent_records_queued{{{AGENT}}}": "0+0x60"},
        BALANCED,
    ),
    "ParitasAgentNotReady": (agent("ready", "1x30 0x30"), agent("ready", "1x36 0x2 1x30")),
    "ParitasAgentFarBehind": (
        agent("oldest_unacked_age_seconds", "0+60x60"),
        agent("oldest_unacked_age_seconds", "299x60"),
    ),
    "ParitasAgentRefusesSenders": (
        agent("requests_total", "0+1x60", labels=',answer="full"'),
        agent("requests_total", "0+1x60", labels=',answer="taken"'),
    ),
    "ParitasAgentDeadLetters": (
        agent("dead_letters_total", "0x35 1x30"),
        agent("dead_letters_total", "4x60"),
    ),
    "ParitasAgentDisk": (agent("fsync_failures_total", "0x35 1x30"), agent("fsync_failures_total", "3x60")),
    "ParitasAgentCrashes": (agent("crashes_total", "0x35 1x30"), agent("crashes_total", "1x60")),
    "ParitasAgentConfigurationRefused": (
        agent("config_reloads_total", "0x35 1x30", labels=',outcome="refused"'),
        agent("config_reloads_total", "0x35 1x30", labels=',outcome="applied"'),
    ),
    "ParitasClauseViolated": (
        detect("verdicts", "0x39 2x30", labels=',clause="law",family="statistical",state="violated"'),
        detect("verdicts", "2x60", labels=',clause="law",family="statistical",state="conforming"'),
    ),
    "ParitasNoData": (
        detect("verdicts", "0x20 1x40", labels=',clause="law",family="statistical",state="no_data"'),
        detect("verdicts", "1x20 0x40", labels=',clause="law",family="statistical",state="no_data"'),
    ),
    "ParitasNothingJudged": (
        detect("sequences_total", "5x60", labels=',outcome="paired"'),
        detect("sequences_total", "0+1x60", labels=',outcome="paired"'),
    ),
    "ParitasDetectorNotReady": (detect("ready", "1x30 0x30"), detect("ready", "1x37 0x30")),
    "ParitasControllerAway": (
        detect("not_ready", "0x30 1x30", labels=',reason="controller_unreachable"'),
        detect("not_ready", "1x60", labels=',reason="draining"'),
    ),
    "ParitasDetectorLags": (detect("lag_records", "5000x60"), detect("lag_records", "0x30 5000x3 0x30")),
    "ParitasContractStale": (detect("contract_stale", "0x30 1x30"), detect("contract_stale", "0x60")),
    "ParitasRecordsLost": (
        detect("records_lost_total", "_x35 3x30", labels=',reason="overflow"'),
        detect("records_lost_total", "3x60", labels=',reason="overflow"'),
    ),
    "ParitasRecordsUnreadable": (
        detect("records_refused_total", "3x30 3+1x30", labels=',reason="not_otlp"'),
        detect("records_refused_total", "3x60", labels=',reason="not_otlp"'),
    ),
    "ParitasStateNotSaved": (
        detect("saved_timestamp_seconds", "100x60"),
        detect("saved_timestamp_seconds", "0+60x60"),
    ),
    "ParitasControllerNotReady": (control("ready", "1x30 0x30"), control("ready", "1x39 0x30")),
    "ParitasControllerDegraded": (
        control("degraded", "0x30 1x30", labels=',reason="topic_waits"'),
        control("degraded", "1x30 0x30", labels=',reason="topic_waits"'),
    ),
    "ParitasControllerDiskFull": (
        control("disk_free_bytes", "1000000x60"),
        control("disk_free_bytes", "1000000000x60"),
    ),
    "ParitasIncidentUnseen": (
        control("incidents", "2x60", labels=',contract="c",clause="law",severity="critical",state="open"'),
        control(
            "incidents", "2x60", labels=',contract="c",clause="law",severity="critical",state="acknowledged"'
        ),
    ),
    "ParitasSubscriberTooSlow": (
        control("streams_ended_total", "0x35 1x30", labels=',reason="overflow"'),
        control("streams_ended_total", "0x35 1x30", labels=',reason="draining"'),
    ),
    "ParitasCallersTurnedAway": (
        control("turned_away_total", "0+1x60", labels=',reason="unknown"'),
        control("turned_away_total", "5x60", labels=',reason="unknown"'),
    ),
    "ParitasEscalationsRefused": (
        control("topic_refused_total", "0x35 1x30"),
        control("refused_total", "1x60"),
    ),
    "ParitasRouterDrifts": (
        control("router_drifts_total", "0x35 1x30", labels=',policy="p",driver="envoy"'),
        control("router_drifts_total", "1x60", labels=',policy="p",driver="envoy"'),
    ),
    "ParitasDown": (
        {'up{instance="k",job="shop/mine-paritas-controller"}': "1x30 0x30"},
        {'up{instance="k",job="other"}': "0x60"},
    ),
    "ParitasPodsWithoutSidecar": (roster("without_sidecar", "0x30 2x30"), roster("without_sidecar", "0x60")),
    "ParitasRosterBlind": (roster("synced", "1x30 0x30"), roster("synced", "1x60")),
    "ParitasRosterSilent": (
        roster("last_write_timestamp_seconds", "100x60"),
        roster("last_write_timestamp_seconds", "0+60x60"),
    ),
    "ParitasOperatorFails": (
        {'paritas_operator_failures_total{instance="o",job="paritas-operator",part="cluster"}': "0+1x60"},
        {'paritas_operator_failures_total{instance="o",job="paritas-operator",part="cluster"}': "9x60"},
    ),
    "ParitasOperatorSilent": (
        {'paritas_operator_last_pass_timestamp_seconds{instance="o",job="paritas-operator"}': "100x60"},
        {'paritas_operator_last_pass_timestamp_seconds{instance="o",job="paritas-operator"}': "0+60x60"},
    ),
}
# Further ways into an alert whose rule has an `or`.
ALSO = (
    ("ParitasNothingJudged", detect("ready", "1x60")),
    ("ParitasRecordsLost", detect("records_lost_total", "1x30 1+1x30", labels=',reason="overflow"')),
    ("ParitasRecordsUnreadable", detect("records_refused_total", "_x35 1x30", labels=',reason="not_otlp"')),
    ("ParitasAgentDisk", agent("commit_failures_total", "0x35 1x30")),
    ("ParitasAgentDisk", agent("position_resets_total", "0x35 1x30")),
    ("ParitasAgentDisk", agent("quarantined_bytes", "0x35 1x30")),
    ("ParitasEscalationsRefused", control("refused_total", "0x35 1x30")),
)


# Detectors that came back with what they had counted, at another address, after a minute and after half an hour.
QUIET = tuple(
    (
        name,
        {
            f'paritas_detect_{metric}{{contract="c",instance="{place}",job="detectors",reason="{reason}"}}': values
            for place, values in (("old", f"3x{end}"), ("new", f"_x{start} 3x30"))
        },
    )
    for name, metric, reason in (
        ("ParitasRecordsLost", "records_lost_total", "overflow"),
        ("ParitasRecordsUnreadable", "records_refused_total", "not_otlp"),
    )
    for end, start in ((30, 31), (2, 36))
)


def scene(alert, series, *, fires):
    """One promtool test: is there a firing alert of that name after 40 minutes?"""
    count = [{"labels": "{}", "value": 1}] if fires else []
    asked = f'count(count by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}}))'
    return {
        "name": f"{alert} {'fires' if fires else 'is quiet'}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": asked, "eval_time": "40m", "exp_samples": count}],
    }


def promtool(*arguments):
    return subprocess.run(
        [tool("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )


def test_every_alert_fires_and_is_quiet(tmp_path):
    assert set(SCENES) == set(ALERTS)
    scenes = [
        scene(alert, series, fires=fires)
        for alert, pair in SCENES.items()
        for fires, series in zip((True, False), pair, strict=True)
    ]
    scenes += [scene(alert, series, fires=True) for alert, series in ALSO]
    scenes += [scene(alert, series, fires=False) for alert, series in QUIET]
    path = tmp_path / "scenes.json"
    path.write_text(
        json.dumps({"rule_files": [str(file) for file in FILES], "tests": scenes})
    )  # JSON is YAML
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_sees_an_alert_that_does_not_fire(tmp_path):
    fires = SCENES["ParitasDown"][0]
    told = {"rule_files": [str(file) for file in FILES], "tests": [scene("ParitasDown", fires, fires=False)]}
    path = tmp_path / "scenes.json"
    path.write_text(json.dumps(told))
    assert promtool("test", "rules", path).returncode != 0


def test_rules_and_configuration_are_sound():
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", *FILES)
    assert done.returncode == 0, done.stdout + done.stderr
    done = promtool("check", "config", "--lint=all", FOLDER / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_every_alert_says_what_to_do(name):
    rule, page = ALERTS[name], (FOLDER / "README.md").read_text()
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    url, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert url == "https://github.com/paritas-dev/paritas/blob/main/deploy/prometheus/README.md"
    assert anchor in {heading.lower() for heading in re.findall(r"^### (\w+)$", page, re.MULTILINE)}
