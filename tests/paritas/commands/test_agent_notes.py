"""What agents say of themselves: remembered, logged when it changes, and bounded."""

from paritas.commands.agent_notes import MOST, AgentNotes
from paritas.wire import AgentHealth


def test_only_changes_are_logged(caplog):
    notes = AgentNotes()
    for note in ("ready", "ready", "not ready: memory_only", "not ready: memory_only", "ready"):
        notes.note([AgentHealth("pod-7", note)])
    assert [(r.getMessage(), r.agent) for r in caplog.records] == [
        ("An agent is not ready: memory_only.", "pod-7"),
        ("An agent is ready.", "pod-7"),
    ]


def test_nothing_heard_is_nothing_said():
    assert not AgentNotes()


def test_the_text_names_a_few():
    notes = AgentNotes()
    notes.note(AgentHealth(f"pod-{i}", "not ready: draining" if i < 5 else "ready") for i in range(7))
    assert notes.text() == "7 agents heard, 5 not ready (pod-0, pod-1, pod-2, …)"


def test_the_one_unheard_for_longest_is_forgotten_first():
    notes = AgentNotes()
    notes.note(AgentHealth(f"pod-{i}", "ready") for i in range(MOST))
    notes.note([AgentHealth("pod-0", "ready"), AgentHealth("another", "not ready: draining")])
    assert notes.text() == f"{MOST} agents heard, 1 not ready (another)"
