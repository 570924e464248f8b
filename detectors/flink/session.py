"""A job from submitting to its end: where it runs, how it stops so that it can go on, and from where it does."""

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Self

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-not-found]  # only in Flink's environment
from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from paritas.clock import Clock
from paritas.errors import PermanentError, TransientError, UsageError

__all__ = ["FIXED_ID", "Job", "building", "new_job_id", "newest_checkpoint", "parts_in"]

POLL_S = 0.2
FIXED_ID = "$internal.pipeline.job-id"  # so that a client that dies while submitting knows what it started


def new_job_id() -> str:
    """Return an id nobody has, 32 hex characters."""
    return secrets.token_hex(16)


@contextmanager
def building() -> Iterator[None]:
    """Turn what Flink refuses of a job before it runs into a UsageError."""
    try:
        yield
    except Py4JJavaError as error:
        hint = "the connector is a jar: --jar flink-sql-connector-kafka-5.0.0-2.2.jar; settings are --flink KEY=VALUE"
        raise UsageError(f"Flink cannot build the job: {reason(error)}", hint=hint) from error


class Job:
    """A job on a cluster.

    Parameters
    ----------
    client : object
        Flink's own client of the job.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._result = client.getJobExecutionResult()

    @classmethod
    def submit(cls, environment: StreamExecutionEnvironment, name: str) -> Self:
        """Submit what the environment holds.

        Raises
        ------
        TransientError
            The cluster does not take it.
        """
        try:
            return cls(environment.execute_async(name)._j_job_client)  # noqa: SLF001 -- the Python one adds nothing
        except Py4JJavaError as error:
            hint = "is the cluster up, and are rest.address and rest.port right?"
            raise TransientError(f"Flink does not take the job: {reason(error)}", hint=hint) from error

    @classmethod
    def attach(cls, job_id: str, flink: Mapping[str, str]) -> Self | None:
        """Return a job that a cluster outside this process still runs; None if it does not.

        Raises
        ------
        TransientError
            The cluster does not answer.
        """
        if "execution.target" not in flink:
            return None
        try:
            return cls._attached(job_id, _configuration(flink))
        except Py4JJavaError as error:
            hint = "is the cluster up, and are rest.address and rest.port right?"
            raise TransientError(f"Flink does not answer: {reason(error)}", hint=hint) from error

    @classmethod
    def _attached(cls, job_id: str, configuration: Any) -> Self | None:
        jvm = get_gateway().jvm
        client = jvm.org.apache.flink.client
        factory = client.deployment.DefaultClusterClientServiceLoader().getClusterClientFactory(configuration)
        descriptor = factory.createClusterDescriptor(configuration)
        cluster = descriptor.retrieve(factory.getClusterId(configuration))
        if job_id not in _alive(cluster.getClusterClient()):
            return None
        named = jvm.org.apache.flink.api.common.JobID.fromHexString(job_id)
        loader = jvm.Thread.currentThread().getContextClassLoader()
        return cls(client.deployment.ClusterClientJobClientAdapter(cluster, named, loader))

    @property
    def job_id(self) -> str:
        """Its id, 32 hex characters."""
        return str(self._client.getJobID().toHexString())

    def wait(self, stop: threading.Event, *, clock: Clock) -> bool:
        """Return True when it has ended of itself, False when `stop` was set before.

        Raises
        ------
        PermanentError
            It failed: Flink has given up restarting it.
        """
        while not self._result.isDone():
            if clock.wait(stop, timeout_s=POLL_S):
                return False
        self.result()
        return True

    def result(self) -> None:
        """Return when it has ended; PermanentError if it failed or was cancelled."""
        try:
            self._result.get()
        except Py4JJavaError as error:
            hint = "the logs of the job manager and the task managers tell more"
            raise PermanentError(f"job {self.job_id} ended: {reason(error)}", hint=hint) from error

    def cancel(self) -> None:
        """End it; it cannot go on."""
        with suppress(Py4JJavaError):  # it has ended meanwhile
            self._client.cancel().get()

    def stop(self, directory: str) -> str:
        """Stop it with a savepoint; returns where that is.

        Parameters
        ----------
        directory : str
            Of savepoints; empty for what the cluster's own settings say.

        Raises
        ------
        TransientError
            It goes on: no savepoint could be made.
        """
        canonical = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
        try:
            stopped = self._client.stopWithSavepoint(False, directory or None, canonical)
            return str(stopped.get())
        except Py4JJavaError as error:
            message = f"job {self.job_id} could not be stopped with a savepoint: {reason(error)}"
            raise TransientError(
                message, hint="it goes on where it has a cluster of its own; try again, or cancel it there"
            ) from error


def _alive(client: Any) -> set[str]:
    """Ids of the jobs that have not ended."""
    told = client.listJobs().get()
    client.close()
    return {
        str(job.getJobId().toHexString()) for job in told if not job.getJobState().isGloballyTerminalState()
    }


def _configuration(flink: Mapping[str, str]) -> Any:
    configuration = Configuration()
    for name, value in flink.items():
        configuration.set_string(name, value)
    return configuration._j_configuration  # noqa: SLF001 -- no public name


def newest_checkpoint(directory: str, job_id: str) -> str:
    """Return where the last complete checkpoint of a job is, on any file system of Flink; empty for none.

    Raises
    ------
    UsageError
        One cannot look there from this machine.
    """
    try:
        found = [
            (int(name.removeprefix("chk-")), f"{directory.rstrip('/')}/{job_id}/{name}")
            for name in _names(f"{directory.rstrip('/')}/{job_id}")
            if name.startswith("chk-") and "_metadata" in _names(f"{directory.rstrip('/')}/{job_id}/{name}")
        ]
    except Py4JJavaError as error:
        hint = "say where to go on from with --flink execution.state-recovery.path=PATH"
        raise UsageError(
            f"{directory}: checkpoints cannot be looked up: {reason(error)}", hint=hint
        ) from error
    return max(found, default=(0, ""))[1]


def parts_in(folder: str) -> frozenset[str]:
    """Return the finished part files under a folder that hold something, on any file system of Flink."""
    found: set[str] = set()
    for name in _names(folder):
        place = f"{folder.rstrip('/')}/{name}"
        if name.startswith("part-"):
            path = get_gateway().jvm.org.apache.flink.core.fs.Path(place)
            found |= {place} if path.getFileSystem().getFileStatus(path).getLen() else set()
        elif not name.startswith((".", "_")):
            found |= parts_in(place)
    return frozenset(found)


def _names(folder: str) -> list[str]:
    path = get_gateway().jvm.org.apache.flink.core.fs.Path(folder)
    files = path.getFileSystem()
    if not files.exists(path) or not files.getFileStatus(path).isDir():
        return []
    return [str(status.getPath().getName()) for status in files.listStatus(path)]


def reason(error: Py4JError) -> str:
    """Return the innermost cause of an error of Java, in one line."""
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    if cause is None:
        return str(error).splitlines()[0]
    text = str(cause.getMessage() or cause.getClass().getSimpleName()).strip()
    return text.splitlines()[0][:300]
