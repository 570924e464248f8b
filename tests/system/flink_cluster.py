"""A real Apache Flink cluster for tests: one job manager and task managers as processes, on free ports, that can be killed."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from typing import Self

from free_ports import free_ports
from system.flink_setup import VENV

from paritas.clock import SystemClock

CLOCK = SystemClock()
SLOTS = 1  # of each task manager: at parallelism 2 a job is on both


def until(condition, *, timeout_s, what):
    """The first true value of `condition`; fails with `what` after `timeout_s`."""
    deadline_ns, never = CLOCK.monotonic_ns() + round(timeout_s * 1e9), threading.Event()
    while CLOCK.monotonic_ns() < deadline_ns:
        if value := condition():
            return value
        CLOCK.wait(never, timeout_s=0.1)
    raise AssertionError(f"not within {timeout_s} s: {what()}")


class FlinkCluster:
    """A standalone cluster; a context manager.

    Parameters
    ----------
    directory : Path
        Settings, logs, checkpoints.
    """

    def __init__(self, directory):
        self.directory = directory
        self.rest_port, self._rpc_port = free_ports(2)
        self._home = next((VENV / "lib").glob("python3.*/site-packages/pyflink"))
        self._processes = []
        self._started = 0
        self._lock = threading.Lock()  # of the processes
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="flink-keeper", daemon=True)

    @property
    def settings(self):
        """What the client must be told to submit here."""
        return {
            "execution.target": "remote",
            "rest.address": "127.0.0.1",
            "rest.port": str(self.rest_port),
            "execution.checkpointing.dir": (self.directory / "checkpoints").as_uri(),
        }

    def __enter__(self) -> Self:
        self._configure()
        try:
            self._start("jobmanager.sh")
            for _ in range(2):
                self.add_task_manager()
            self.wait_for_slots(2 * SLOTS)
            self._keeper.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """End every process; twice is fine."""
        self._stop.set()
        if self._keeper.is_alive():
            self._keeper.join()
        while self._processes:
            _kill(self._processes.pop())

    def _keep(self):
        """Replace a task manager that ended by itself, as every resource manager does.

        PyFlink 2.2.0 now and then ends a healthy one while its tasks are cancelled ("Reference count must
        not be negative"); without a replacement the job would wait for slots for ever.
        """
        while not CLOCK.wait(self._stop, timeout_s=0.5):
            with self._lock:
                ended = [process for process in self._processes[1:] if process.poll() is not None]
                for process in ended:
                    self._processes.remove(process)
                    _kill(process)  # its Python workers
                    self._start("taskmanager.sh")

    def add_task_manager(self):
        """Start one more task manager; returns its number."""
        with self._lock:
            return self._start("taskmanager.sh")

    def kill_task_manager(self):
        """Kill the task manager that was started last, with its Python workers, as a lost machine does."""
        with self._lock:
            _kill(self._processes.pop())

    def wait_for_slots(self, slots):
        """Return when so many slots are there."""
        until(lambda: self.get("/overview").get("slots-total") == slots, timeout_s=240, what=self.logs)

    def get(self, path):
        """What the REST interface answers; empty while it does not."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.rest_port}{path}", timeout=5) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError):
            return {}

    def cancel(self, job):
        """Cancel a job, as an operator does on the cluster's page."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.rest_port}/jobs/{job}", method="PATCH")
        with urllib.request.urlopen(request, timeout=10):
            pass

    def logs(self):
        """The ends of all logs, for a failure's text."""
        return "\n".join(f"{p.name}:\n{p.read_text()[-1500:]}" for p in sorted(self.directory.glob("*.out")))

    def _configure(self):
        conf = self.directory / "conf"
        shutil.copytree(self._home / "conf", conf)
        shipped = (conf / "config.yaml").read_text()
        keep = shipped[shipped.index("env:") : shipped.index("jobmanager:")].rsplit("\n#", 1)[0]
        lines = {
            "jobmanager.rpc.address": "127.0.0.1",
            "jobmanager.rpc.port": self._rpc_port,
            "jobmanager.bind-host": "127.0.0.1",
            "jobmanager.memory.process.size": "1024m",
            "taskmanager.bind-host": "127.0.0.1",
            "taskmanager.host": "127.0.0.1",
            "taskmanager.numberOfTaskSlots": SLOTS,
            "taskmanager.memory.process.size": "1600m",
            "taskmanager.memory.managed.size": "128m",
            "rest.address": "127.0.0.1",
            "rest.port": self.rest_port,
            "rest.bind-address": "127.0.0.1",
            "heartbeat.timeout": "30000",  # a slow task manager is none that is lost
            "heartbeat.interval": "1000",  # and a killed one is noticed by the second that cannot be told
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "10",
            "restart-strategy.fixed-delay.delay": "1 s",
            "resourcemanager.standalone.start-up-time": "3600000",  # jobs wait for a task manager that starts slowly
            "io.tmp.dirs": self.directory / "tmp",
            "python.executable": VENV / "bin/python",
        }
        (self.directory / "tmp").mkdir()
        text = keep.rstrip() + "\n" + "".join(f"{name}: {value}\n" for name, value in lines.items())
        (conf / "config.yaml").write_text(text)

    def _start(self, script):
        self._started += 1
        environment = os.environ | {
            "FLINK_CONF_DIR": str(self.directory / "conf"),
            "FLINK_LOG_DIR": str(self.directory / "log"),
            "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}",
        }
        (self.directory / "log").mkdir(exist_ok=True)
        with (self.directory / f"{self._started}-{script}.out").open("wb") as log:
            process = subprocess.Popen(
                [str(self._home / "bin" / script), "start-foreground"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # its Python workers end with its group
            )
        self._processes.append(process)
        return self._started


def _kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
