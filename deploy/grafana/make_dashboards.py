"""Writes the dashboards from boards.yaml and from what the code says of each metric.

    python deploy/grafana/make_dashboards.py            # write dashboards/*.json
    python deploy/grafana/make_dashboards.py --check    # say which are out of date, exit 1 if any

A panel is a question, its queries and a unit. What its metrics mean is not written twice: the description of a panel
is the help text of each metric in it, with unit and blind spot from numbers.yaml.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))

from exported_metrics import BASE, Told, metrics_in, registry

__all__ = ["HERE", "boards", "dashboards", "main"]

HERE = Path(__file__).parent
PAGES = "https://github.com/paritas-dev/paritas/blob/main/docs/"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
SIZES = {"stat": (4, 4), "timeseries": (8, 8), "table": (24, 9), "state-timeline": (24, 8)}
VARIABLES = {
    "agent": ("agent", "label_values(paritas_agent_ready, instance)"),
    "contract": ("contract", "label_values(paritas_detect_sequences_total, contract)"),
    "peer": ("framework", 'label_values(paritas_rosetta{contract=~"$contract"}, peer)'),
}
Json = dict[str, Any]


def boards() -> Json:
    """Read boards.yaml."""
    found: Json = yaml.safe_load((HERE / "boards.yaml").read_text("utf-8"))
    return found


def dashboards() -> Iterator[tuple[Path, str]]:
    """Yield file and content of each dashboard."""
    told = registry()
    for name, board in boards()["boards"].items():
        text = json.dumps(_dashboard(name, board, told), indent=1, ensure_ascii=False, sort_keys=True)
        yield HERE / "dashboards" / f"{name}.json", text + "\n"


def _dashboard(name: str, board: Json, told: Mapping[str, Told]) -> Json:
    return {
        "uid": f"paritas-{name}",
        "title": board["title"],
        "description": board["says"],
        "tags": ["paritas"],
        "editable": False,
        "graphTooltip": 1,
        "schemaVersion": 41,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "templating": {"list": [_source_variable(), *map(_variable, board.get("variables", ()))]},
        "links": list(_links(board["page"])),
        "panels": list(_panels(board, told)),
    }


def _source_variable() -> Json:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }


def _variable(name: str) -> Json:
    label, query = VARIABLES[name]
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": f"variable-{name}"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _links(page: str) -> Iterator[Json]:
    yield _link("What it means", PAGES + page)
    others = {"type": "dashboards", "icon": "dashboard", "asDropdown": True, "targetBlank": False}
    yield {**_link("Paritas", ""), **others, "tags": ["paritas"], "includeVars": True, "keepTime": True}


def _link(title: str, url: str) -> Json:
    """Return a link to a page, with every field that Grafana's model has."""
    shown = {"type": "link", "icon": "doc", "tooltip": "", "tags": [], "asDropdown": False}
    return {**shown, "title": title, "url": url, "targetBlank": True, "includeVars": False, "keepTime": False}


def _panels(board: Json, told: Mapping[str, Told]) -> Iterator[Json]:
    """Panels from left to right, a row under the other."""
    number = y = 0
    for row in board["rows"]:
        number += 1
        yield _row(number, y, row["row"])
        y += 1
        x = height = 0
        for panel in row["panels"]:
            width, tall = panel.get("size", SIZES[panel["kind"]])
            if x + width > COLUMNS:
                x, y, height = 0, y + height, 0
            number += 1
            yield _panel(number, {"x": x, "y": y, "w": width, "h": tall}, panel, told)
            x, height = x + width, max(height, tall)
        y += height


def _row(number: int, y: int, title: str) -> Json:
    at = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": at, "panels": []}


def _panel(number: int, at: Json, panel: Json, told: Mapping[str, Told]) -> Json:
    return {
        "id": number,
        "type": panel["kind"],
        "title": panel["title"],
        "description": described(panel, told),
        "datasource": SOURCE,
        "gridPos": at,
        "targets": list(_targets(panel)),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        **_transformed(panel),
        "links": [_link("What it means", PAGES + panel["page"])] if "page" in panel else [],
    }


def described(panel: Json, told: Mapping[str, Told]) -> str:
    """What the panel says of itself, then what each of its metrics is and cannot see."""
    found = [name for query in panel["queries"] for name in metrics_in(query["expr"])]
    lines = [f"`{name}`: {told[name].text}" for name in dict.fromkeys(found) if name not in BASE]
    return "\n\n".join([*([panel["says"]] if "says" in panel else []), *lines])


def _targets(panel: Json) -> Iterator[Json]:
    for place, query in enumerate(panel["queries"]):
        instant = panel["kind"] == "table"
        yield {
            "refId": chr(ord("A") + place),
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": query["expr"],
            "legendFormat": query.get("legend", "__auto"),
            "range": not instant,
            "instant": instant,
            **({"format": "table"} if instant else {}),
        }


def _defaults(panel: Json) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    steps += [{"color": color, "value": at} for color, at in panel.get("steps", {}).items()]
    defaults: Json = {
        "unit": panel["unit"],
        "color": {"mode": "palette-classic" if panel["kind"] == "timeseries" else "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "noValue": panel.get("none", "no data"),
        "mappings": [_mapping(panel["words"])] if "words" in panel else [],
    }
    if panel["kind"] == "timeseries":
        stack = {"mode": "normal" if panel.get("stacked") else "none", "group": "A"}
        defaults["custom"] = {"fillOpacity": 10, "showPoints": "never", "lineWidth": 1, "stacking": stack}
        defaults["min"] = panel.get("min", 0)
        if defaults["min"] is None:
            del defaults["min"]
    return defaults


def _mapping(words: Mapping[int, Sequence[str]]) -> Json:
    options = {
        str(n): {"text": text, "color": color, "index": i}
        for i, (n, (text, color)) in enumerate(words.items())
    }
    return {"type": "value", "options": options}


def _options(panel: Json) -> Json:
    """Return the options of a panel's kind, each of them: Grafana's model knows no defaults for these."""
    legend = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
    tooltip = {"mode": "multi", "sort": "desc"}
    kinds: Json = {
        "stat": {
            "colorMode": "background",
            "graphMode": "none",
            "textMode": "auto",
            "justifyMode": "auto",
            "wideLayout": True,
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
        "timeseries": {"legend": legend, "tooltip": tooltip},
        "state-timeline": {
            "legend": legend,
            "tooltip": tooltip,
            "showValue": "never",
            "rowHeight": 0.8,
            "mergeValues": True,
        },
        "table": {"showHeader": True, "cellHeight": "sm", "frameIndex": 0, "sortBy": _order(panel)},
    }
    found: Json = kinds[panel["kind"]]
    return found


def _order(panel: Json) -> list[Json]:
    shown = "Value" not in panel.get("hide", ())
    return [{"displayName": panel.get("value", "Value"), "desc": True}] if shown else []


def _transformed(panel: Json) -> Json:
    """Tables lose the columns nobody reads."""
    if panel["kind"] != "table":
        return {}
    hidden = dict.fromkeys(("Time", "__name__", *panel.get("hide", ())), True)
    names = {"Value": panel["value"]} if "value" in panel else {}
    options = {"excludeByName": hidden, "renameByName": names, "indexByName": {}}
    return {"transformations": [{"id": "organize", "options": options}]}


def main(arguments: Sequence[str]) -> int:
    """Write or check every dashboard."""
    parser = argparse.ArgumentParser(description="Write the dashboards.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if one is out of date")
    told = parser.parse_args(arguments)
    stale = [
        (path, text) for path, text in dashboards() if not path.exists() or path.read_text("utf-8") != text
    ]
    for path, text in stale:
        if not told.check:
            path.write_text(text, "utf-8")
        sys.stdout.write(
            f"{path.name}: {'out of date: python deploy/grafana/make_dashboards.py' if told.check else 'written'}\n"
        )
    return int(told.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
