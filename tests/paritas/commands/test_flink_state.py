"""What a job goes on from, kept in one piece."""

import json
from dataclasses import replace

import pytest

from paritas.commands.flink_state import FlinkState, Judged, load_state, save_state
from paritas.errors import UsageError

STATE = FlinkState(
    Judged("digest", "a:1", "spans", "escalations", "", 6), "ab" * 16, "file:///c", began="file:///s"
)


def test_it_comes_back(tmp_path):
    path = tmp_path / "folder" / "flink.json"
    assert load_state(path) is None
    save_state(path, STATE)
    assert load_state(path) == STATE
    assert [p.name for p in path.parent.iterdir()] == ["flink.json"]


def test_one_of_before_the_format_was_written_is_of_another(tmp_path):
    path = tmp_path / "flink.json"
    save_state(path, STATE)
    path.write_text(path.read_text().replace('"state_format": 6', '"state_format": 5'))
    assert load_state(path).judged != STATE.judged
    told = json.loads(path.read_text())
    del told["judged"]["state_format"]
    path.write_text(json.dumps(told))
    assert load_state(path).judged == replace(STATE.judged, state_format=0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"judged": {}}', '{"judged": 1, "job": "x"}'])
def test_what_is_none_is_said(text, tmp_path):
    path = tmp_path / "flink.json"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_state(path)
    assert caught.value.render() == (
        f"[usage] {path}: no state of a Flink job\n  hint: move it away to judge the topic from its start"
    )


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        save_state(tmp_path / "file" / "x.json", STATE)
    assert caught.value.hint == "choose another --state"
