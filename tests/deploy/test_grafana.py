"""Dashboards are what Grafana's own model reads, field by field; provisioning finds them and their source of data."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from deploy.grafana_setup import CHECKER
from deploy.parts import why_not

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
BOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
COMPOSE = yaml.safe_load((FOLDER.parent / "compose" / "compose.yaml").read_text())
with_checker = pytest.mark.skipif(bool(why_not("grafana")), reason=str(why_not("grafana")))


def check(*paths):
    return subprocess.run([CHECKER, *paths], capture_output=True, text=True, check=False, timeout=60)


@with_checker
def test_grafanas_model_takes_every_dashboard():
    done = check(*BOARDS)
    assert (done.returncode, done.stdout) == (0, "")


@with_checker
@pytest.mark.parametrize(
    ("text", "instead", "says"),
    [
        ('"lineWidth": 1', '"lineWidht": 1', "unexpected field 'lineWidht'"),
        ('"text": "yes"', '"text": true', "cannot unmarshal bool"),
    ],
)
def test_the_checker_sees_a_mistake(tmp_path, text, instead, says):
    wrong, right = tmp_path / "wrong.json", (FOLDER / "dashboards" / "controller.json").read_text()
    assert text in right
    wrong.write_text(right.replace(text, instead))
    done = check(wrong)
    assert done.returncode == 1
    assert says in done.stdout


def test_provisioning_finds_source_and_dashboards():
    (source,) = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    grafana = COMPOSE["services"]["grafana"]
    assert source["url"] == "$PROMETHEUS_URL"
    assert grafana["environment"]["PROMETHEUS_URL"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((FOLDER / "provisioning/dashboards/paritas.yaml").read_text())["providers"]
    mounts = dict(volume.split(":")[1::-1] for volume in grafana["volumes"])
    assert mounts[provider["options"]["path"]] == "../grafana/dashboards"
    assert mounts["/etc/grafana/provisioning"] == "../grafana/provisioning"
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert home.name in {path.name for path in BOARDS}


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_nothing_a_dashboard_refers_to_is_missing(path):
    text, board = path.read_text(), json.loads(path.read_text())
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__all", "__rate_interval"}
    assert used <= variables
    assert variables <= used | {"datasource"}
    sources = {
        json.dumps(t["datasource"])
        for p in board["panels"]
        for t in [p, *p.get("targets", ())]
        if p["type"] != "row"
    }
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}


def test_identities_differ():
    boards = [json.loads(path.read_text()) for path in BOARDS]
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == len(BOARDS)
    for board in boards:
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_no_panel_lies_over_another(path):
    taken = set()
    for panel in json.loads(path.read_text())["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
