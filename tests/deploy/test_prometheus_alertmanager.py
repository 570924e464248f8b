"""The example of an Alertmanager: sound, and what rules in a real Prometheus and the controller tell goes where it says."""

import http.server
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from deploy.parts import why_not
from deploy.tools_setup import WEB, tool
from free_ports import free_port
from http_servers import serving
from system import parts
from system.alertmanager_process import HURRY, Alertmanager, amtool, hook
from system.alertmanager_scene import plan_of, publish, telling
from system.otel_parts import running, wait_until

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
EXAMPLE = FOLDER / "alertmanager.yml"
REASON = parts.why_not("alertmanager") or why_not("tools")
pytestmark = pytest.mark.skipif(bool(REASON), reason=str(REASON))

VIOLATED = "".join(
    f'paritas_detect_verdicts{{contract="qwen3-8b-rollout",clause="{clause}",family="numerical",state="violated"}} 1\n'
    for clause in ("token-tv", "seq-tv")
)


class Violated(http.server.BaseHTTPRequestHandler):
    """The page of a detector that has found two clauses violated."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(VIOLATED.encode())

    def log_message(self, *_words):
        pass


@contextmanager
def prometheus(folder, *, page, manager):
    """Prometheus on the rules that are shipped: one page, a second instead of fifteen, and an Alertmanager."""
    told = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    told["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    told["rule_files"] = [str(FOLDER / "rules/*.yaml")]
    told["scrape_configs"] = [{"job_name": "paritas-detectors", "static_configs": [{"targets": [page]}]}]
    told["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [manager]}]}]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(told))
    command = [
        tool("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{free_port()}",
        f"--web.console.libraries={WEB}",
    ]
    with running(command, folder / "prometheus.log", environment={}, ports={}) as part:
        yield part


def quick(url):
    """The example, at once and told to `url`/team and `url`/pager."""
    told = yaml.safe_load(EXAMPLE.read_text())
    told["route"] |= HURRY
    for receiver in told["receivers"]:
        receiver["webhook_configs"] = [{"url": f"{url}/{receiver['name']}"}]
    return told


def test_the_example_is_sound_and_routes_by_severity():
    code, said = amtool("check-config", EXAMPLE)
    assert code == 0, said
    for severity, receiver in (("critical", "pager"), ("warning", "team")):
        found = amtool("config", "routes", "test", f"--config.file={EXAMPLE}", f"severity={severity}")
        assert found == (0, f"{receiver}\n")


def test_amtool_sees_a_mistake(tmp_path):
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(EXAMPLE.read_text().replace("receiver: pager", "receiver: nobody"))
    code, said = amtool("check-config", wrong)
    assert (code, 'undefined receiver "nobody" used in route' in said) == (1, True)


def test_rules_and_incidents_come_together(tmp_path):
    """A clause that the controller tells of does not wake anybody a second time through the rule; another does."""
    with hook() as told, serving(Violated) as page:
        manager = Alertmanager(tmp_path / "alertmanager", quick(told.url))
        with manager.serve(), telling(tmp_path, plan_of(manager, group={"repeat": "1h"})) as (client, _):
            publish(client)
            wait_until(lambda: told.alerts("/team", status="firing") == ["a"], "the team is told")
            addresses = {"page": page.partition("//")[2], "manager": manager.url.partition("//")[2]}
            with prometheus(tmp_path, **addresses) as part:
                wait_until(lambda: told.labels("/pager", status="firing"), "the pager is told", alive=part)
                wait_until(lambda: len(held(manager)) == 1, "the other is held", alive=part)
            assert held(manager) == [("ParitasClauseViolated", "token-tv")]
            assert told.labels("/pager", status="firing") == [
                {
                    "alertname": "ParitasClauseViolated",
                    "contract": "qwen3-8b-rollout",
                    "clause": "seq-tv",
                    "family": "numerical",
                    "severity": "critical",
                }
            ]
            assert told.alerts("/team", status="firing") == ["a"]


def held(manager):
    """Name and clause of the alerts that are inhibited."""
    found = [alert["labels"] for alert in manager.asked("/alerts") if alert["status"]["inhibitedBy"]]
    return [(labels["alertname"], labels["clause"]) for labels in found]
