"""What grows: looked at until the stop and once more, and one file of a folder at a time."""

import threading

from paritas.clock import ManualClock
from paritas.collectors.dumps.growing import GrowingLines, NewestFile, until_stopped


class Counted:
    """A source that counts its looks and stops after some."""

    def __init__(self, stop, looks):
        self.stop, self.looks, self.seen = stop, looks, 0

    def poll(self):
        self.seen += 1
        if self.seen == self.looks:
            self.stop.set()
        yield f"look {self.seen}"

    def finish(self):
        yield "end"


def test_the_last_look_comes_after_the_stop():
    stop = threading.Event()
    found = list(until_stopped(Counted(stop, 3), clock=ManualClock(), stop=stop, poll_s=1.0))
    assert found == ["look 1", "look 2", "look 3", "look 4", "end"]


def rows(row, index):
    return (f"{index}:{row['n']}",)


def test_a_file_is_read_as_its_lines_end(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\n{"n": 2')
    with GrowingLines(path, rows, limit_bytes=100) as lines:
        assert list(lines.poll()) == ["0:1"]
        with path.open("a") as file:
            file.write("}\n")
        assert list(lines.poll()) == ["1:2"]
        assert list(lines.finish()) == []
    lines.close()


def test_the_rest_of_an_older_file_comes_before_the_newer_one(tmp_path):
    older, newer = tmp_path / "1", tmp_path / "2"
    older.write_text('{"n": 1}\n')
    newer.write_text('{"n": 9}\n')
    with NewestFile() as folder:
        assert list(folder.end_file()) == list(folder.poll_file()) == list(folder.finish()) == []
        assert list(folder.turn_to(GrowingLines(older, rows, limit_bytes=100))) == ["0:1"]
        with older.open("a") as file:
            file.write('{"n": 2}\n{"n": 3}')
        assert list(folder.end_file()) == ["1:2", "2:3"]
        assert list(folder.turn_to(GrowingLines(newer, rows, limit_bytes=100))) == ["0:9"]
    folder.close()
    assert list(folder.poll_file()) == []
