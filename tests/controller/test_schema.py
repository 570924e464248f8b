"""The log as a database: new, opened again, damaged."""

import sqlite3
from contextlib import closing

import pytest

from paritas.controller.schema import APPLICATION_ID, VERSION, open_log
from paritas.errors import UsageError


def text_of(path, **kwargs):
    with pytest.raises(UsageError) as caught:
        open_log(path, **kwargs)
    return caught.value.render().replace(str(path), "LOG")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "escalations.db"


@pytest.fixture
def made(path):
    """A log of some pages."""
    with closing(open_log(path)) as db:
        rows = ((f"id-{i}" * 50, i) for i in range(500))
        db.execute("BEGIN")
        db.executemany("INSERT INTO event_ids VALUES (?, ?)", rows)
        db.execute("COMMIT")
    return path


def test_a_new_log_is_ours_private_and_durable(path):
    with closing(open_log(path)) as db:
        one = {
            name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        }
        assert one == {"application_id": APPLICATION_ID, "user_version": VERSION}
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_two_new_logs_have_different_epochs(tmp_path):
    epochs = set()
    for name in "ab":
        with closing(open_log(tmp_path / name)) as db:
            epochs.add(db.execute("SELECT epoch FROM log").fetchone()[0])
    assert len(epochs) == 2


def test_it_opens_again_as_it_was(made):
    with closing(open_log(made)) as db:
        assert db.execute("SELECT count(*) FROM event_ids").fetchone()[0] == 500


def test_a_file_that_is_no_database(path):
    path.write_text("event_id,incident_id\n" * 100)
    assert text_of(path) == (
        "[usage] escalation log 'LOG' is damaged or not a database: file is not a database\n"
        "  hint: restore a copy, or move the file away to start an empty log"
    )
    assert path.read_text().startswith("event_id")


def test_a_damaged_page(made):
    raw = bytearray(made.read_bytes())
    raw[4096 * 3 : 4096 * 20] = b"\xff" * 4096 * 17
    made.write_bytes(raw)
    first, hint = text_of(made).split("\n", 1)
    assert first.startswith("[usage] escalation log 'LOG' is damaged or not a database: ")
    assert hint == "  hint: restore a copy, or move the file away to start an empty log"


def test_a_truncated_file(made):
    made.write_bytes(made.read_bytes()[:8192])
    assert text_of(made).startswith("[usage] escalation log 'LOG' is damaged or not a database: ")


def test_a_newer_schema(made):
    with closing(sqlite3.connect(made)) as db:
        db.execute("PRAGMA user_version = 7")
    assert text_of(made) == (
        "[usage] escalation log 'LOG' has schema 7, this version reads up to 2\n"
        "  hint: upgrade paritas, or choose another file"
    )


def test_an_older_schema_is_brought_up_and_keeps_what_it_holds(made):
    with closing(sqlite3.connect(made)) as db:
        for table in ("routing", "overrides", "route_audit"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version = 1")
    with closing(open_log(made)) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == 2
        assert db.execute("SELECT count(*) FROM event_ids").fetchone()[0] == 500
        assert db.execute("SELECT count(*) FROM route_audit").fetchone()[0] == 0


def test_the_database_of_another_program(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE bookmarks (url)")
    before = path.read_bytes()
    assert text_of(path) == (
        "[usage] escalation log 'LOG' is the database of another program\n  hint: choose another file"
    )
    assert path.read_bytes() == before


def test_a_log_in_use(made):
    with closing(open_log(made)):
        assert text_of(made) == (
            "[usage] escalation log 'LOG' is in use by another process\n"
            "  hint: only one controller may own a log; stop the other one"
        )
    open_log(made).close()


def test_a_folder_that_is_not_there(tmp_path):
    assert text_of(tmp_path / "no" / "log") == (
        "[usage] cannot open escalation log 'LOG': No such file or directory\n"
        "  hint: the folder must exist and be writable"
    )


def test_a_folder_in_place_of_the_file(tmp_path):
    assert text_of(tmp_path) == (
        "[usage] cannot open escalation log 'LOG': Is a directory\n"
        "  hint: the folder must exist and be writable"
    )
