"""A component's thread: started on entering, ended on leaving, closed twice without harm."""

import threading

from paritas.commands.own_thread import OwnThread


class Worker(OwnThread):
    """Waits for its end."""

    def __init__(self):
        super().__init__(name="paritas-worker")
        self.began, self.ends = threading.Event(), 0

    def _run(self):
        self.began.set()
        self._stop.wait()
        self.ends += 1


def test_it_works_from_entering_to_leaving():
    with Worker() as worker:
        assert worker.began.wait(timeout=60)
        assert "paritas-worker" in [thread.name for thread in threading.enumerate()]
        assert worker.ends == 0
    assert worker.ends == 1
    worker.close()
    assert worker.ends == 1


def test_closing_what_never_started_is_fine():
    worker = Worker()
    worker.close()
    assert not worker.began.is_set()
