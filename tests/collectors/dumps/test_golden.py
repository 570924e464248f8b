"""Each trap of each format gives exactly the items written beside it."""

import json
from pathlib import Path

import pytest
from dump_lines import GOLDEN, problems_in, raw_options, shown, traces_in

from paritas.collectors import Accounting
from paritas.collectors.dumps import read_dump

NAMES = sorted(path.name.removesuffix(".in.jsonl") for path in GOLDEN.glob("*.in.jsonl"))

PLACES = {
    "recorded": "dump.jsonl",
    "nemo": "train_data_step7.jsonl",
    "prime": "token_exports/step_3/rank_0.jsonl",
}


def placed(name: str, folder: Path) -> Path:
    """Put a golden file where its format has it; return what a user would name."""
    layout = name.partition("-")[0]
    path = folder / PLACES[layout]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((GOLDEN / f"{name}.in.jsonl").read_bytes())
    (path.parent / "STABLE").touch()
    return folder if layout == "prime" else path


def items_of(name: str, folder: Path):
    expected = json.loads((GOLDEN / f"{name}.expected.json").read_text())
    return list(read_dump(placed(name, folder), raw_options())), expected


@pytest.mark.parametrize("name", NAMES)
def test_items_are_as_written(name: str, tmp_path: Path) -> None:
    items, expected = items_of(name, tmp_path)
    assert len(items) == len(expected)
    for item, wanted in zip(items, expected, strict=True):
        got = shown(item)
        if "text" in got:
            got["text"] = got["text"].replace(f"{tmp_path}/", "")
        defaults = {key: type(value)() for key, value in wanted.items() if not value}
        assert {key: {**defaults, **got}[key] for key in wanted} == wanted
        assert ("problem" in got) == ("problem" in wanted)


@pytest.mark.parametrize("name", NAMES)
def test_every_token_and_line_is_accounted_for(name: str, tmp_path: Path) -> None:
    items, expected = items_of(name, tmp_path)
    accounting = Accounting()
    for item in items:
        accounting.add(item)
    assert accounting.balanced
    assert sum(account.tokens for account in accounting.roles.values()) == sum(map(len, traces_in(items)))
    assert sum(accounting.problems.values()) == len(problems_in(items))
    assert len(expected) == len(items)


def test_every_format_has_its_traps() -> None:
    assert {name.partition("-")[0] for name in NAMES} == set(PLACES)
    assert len(NAMES) >= 20
