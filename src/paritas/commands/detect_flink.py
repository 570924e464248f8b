"""`paritas detect --engine flink`: submit the job, stay with it, stop it so that it can go on."""

import argparse
import logging
import os
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.flink_state import FlinkState, Judged, load_state, save_state
from paritas.commands.kafka_java import java_properties, read_pem
from paritas.commands.kafka_place import kafka_place
from paritas.commands.places import DataFolder, default_folder
from paritas.errors import TransientError, UsageError

if TYPE_CHECKING:
    from paritas.agent.eventlog.kafka_settings import KafkaSettings
    from paritas.clock import Clock
    from paritas.contracts.model import Contract
    from paritas.detectors.flink.job import JobSettings
    from paritas.detectors.flink.session import Job

__all__ = ["run_on_flink", "settings_of"]

log = logging.getLogger(__name__)
CHECKPOINTS = "execution.checkpointing.dir"
SAVEPOINTS = "execution.checkpointing.savepoint-dir"
GO_ON = "execution.state-recovery.path"
RETAIN = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
STOP_TRIES, STOP_WAIT_S = 12, 5.0  # while a lost task manager is being replaced no savepoint can be made
INTERRUPTED = 130  # as a shell reports SIGINT


def run_on_flink(contract: "Contract", arguments: argparse.Namespace) -> int:
    """Run the job: on the cluster that `--flink` settings name, else on one inside this process."""
    from paritas.clock import SystemClock
    from paritas.commands.signals import stop_signals

    if arguments.kafka is None:
        raise UsageError("--engine flink reads Kafka", hint="give --kafka HOST:PORT instead of --log")
    kafka = kafka_place(arguments.kafka, topic=arguments.topic, client_id="paritas-detect")
    _require_flink()
    _require_topics(kafka, arguments.escalations)
    run = _to_end if arguments.to_end else _live
    with stop_signals() as stop:
        return run(contract, _job_settings(arguments, kafka), arguments, stop, SystemClock())


def _require_flink() -> None:
    try:
        import pyflink  # noqa: F401 -- whether it is there
    except ModuleNotFoundError as error:
        message = "--engine flink needs Apache Flink's Python package"
        hint = "pip install 'paritas[flink]' in a virtual environment of its own"
        raise UsageError(message, hint=hint) from error


def _require_topics(kafka: "KafkaSettings", escalations: str) -> None:
    """Look for both topics from here: without them the job would restart for ever and say so in its logs only.

    Raises
    ------
    UsageError
        One is not there, or the settings cannot work.
    """
    from importlib.util import find_spec

    if find_spec("kafka") is None:
        return
    from paritas.agent.eventlog.kafka_topic import describe_topic

    try:
        for topic in (kafka.topic, escalations):
            describe_topic(replace(kafka, topic=topic))
    except TransientError as error:  # the cluster may reach what this machine does not
        log.warning("The topics cannot be looked at from here.", extra={"detail": str(error)})


def _job_settings(arguments: argparse.Namespace, kafka: "KafkaSettings") -> "JobSettings":
    from paritas.detectors.flink.job import JobSettings

    secure = java_properties(kafka, read_pem(kafka.tls))
    return JobSettings(
        bootstrap=",".join(kafka.bootstrap),
        topic=kafka.topic,
        escalations=arguments.escalations,
        deployment=arguments.deployment,
        parallelism=arguments.parallelism,
        bounded=arguments.to_end,
        checkpoint_s=arguments.checkpoint_s,
        verdicts=_address(arguments.verdicts),
        jars=tuple(_file_address(jar) for jar in arguments.jar),
        kafka=secure | settings_of(arguments.kafka_setting, "--kafka-setting"),
        flink=_python() | settings_of(arguments.flink, "--flink"),
    )


def _submit(contract: "Contract", settings: "JobSettings") -> "Job":
    from paritas.controller.topic import escalation_bytes
    from paritas.detectors.flink.job import build
    from paritas.detectors.flink.session import Job, building

    with building():
        environment = build(contract, settings, encode=escalation_bytes)
    return Job.submit(environment, f"paritas detect {contract.name}")


def _to_end(
    contract: "Contract",
    settings: "JobSettings",
    arguments: argparse.Namespace,  # noqa: ARG001 -- as `_live`
    stop: threading.Event,
    clock: "Clock",
) -> int:
    """Judge what the topic holds; 1 if verdicts were asked for and none came, 130 if it was stopped before."""
    from paritas.detectors.flink.session import parts_in

    before = parts_in(settings.verdicts) if settings.verdicts else frozenset()
    job = _submit(contract, settings)
    _say(_place(contract, settings), *_where(job, settings))
    if not job.wait(stop, clock=clock):
        job.cancel()
        _say("stopped before the end; nothing is kept, the next run begins at the start of the topic")
        return INTERRUPTED
    if settings.verdicts and not parts_in(settings.verdicts) - before:
        raise TransientError(
            f"job {job.job_id} ended without verdicts", hint="is the topic empty? else run it again"
        )
    _say("judged to the end")
    return 0


def _live(
    contract: "Contract",
    settings: "JobSettings",
    arguments: argparse.Namespace,
    stop: threading.Event,
    clock: "Clock",
) -> int:
    """Judge until SIGINT or SIGTERM; then stop the job with a savepoint, from which the next start goes on."""
    path, settings = _state_path(arguments), _keeping(arguments, settings)
    job, state, news = _resumed(contract, settings, path)
    again = f"to stop:     Ctrl-C; it makes a savepoint, and the same command goes on from there ({path})"
    _say(_place(contract, settings), *_where(job, settings), f"goes on:     {news}", again)
    if job.wait(stop, clock=clock):
        _say(f"job {job.job_id} was stopped elsewhere")
        return 0
    _say("stopping")
    savepoint = _stop(job, settings.flink.get(SAVEPOINTS, ""), clock)
    save_state(path, replace(state, savepoint=savepoint))
    _say(f"stopped with a savepoint: {savepoint}")
    return 0


def _resumed(contract: "Contract", settings: "JobSettings", path: Path) -> "tuple[Job, FlinkState, str]":
    """Attach to the job that runs already, or submit one that goes on where the last stood."""
    from paritas.detectors.flink.session import FIXED_ID, Job, new_job_id

    judged = _judged(contract, settings)
    last = load_state(path)
    running = Job.attach(last.job, settings.flink) if last else None
    if last and last.judged != judged:
        if running is not None:
            hint = f"stop it (flink stop {last.job}), or give another --state"
            raise UsageError(
                f"{path}: job {last.job} still runs, with another contract, topic or version", hint=hint
            )
        log.warning("State is of another contract, topic or version, the topic is judged again.")
        last = None
    if last and running is not None:
        return running, last, "it was running already"
    begins = settings.flink.get(GO_ON) or (_stood(last) if last else "")
    state = FlinkState(judged, new_job_id(), settings.flink.get(CHECKPOINTS, ""), began=begins)
    save_state(path, state)  # before it runs: whoever is killed in between finds it
    further = {FIXED_ID: state.job} | ({GO_ON: begins} if begins else {})
    job = _submit(contract, replace(settings, flink={**settings.flink, **further}))
    return job, state, f"from {begins}" if begins else "from the start of the topic"


def _judged(contract: "Contract", settings: "JobSettings") -> Judged:
    from paritas.detectors.snapshot import FORMAT

    told = (settings.bootstrap, settings.topic, settings.escalations, settings.deployment)
    return Judged(contract.digest, *told, FORMAT)


def _stood(last: FlinkState) -> str:
    """Where the last job stood: its savepoint, else its newest checkpoint, else where it had begun."""
    from paritas.detectors.flink.session import newest_checkpoint

    if last.savepoint:
        return last.savepoint
    return (last.checkpoints and newest_checkpoint(last.checkpoints, last.job)) or last.began


def _stop(job: "Job", directory: str, clock: "Clock") -> str:
    """Stop it with a savepoint, tried again while a lost task manager is replaced."""
    for _ in range(STOP_TRIES - 1):
        try:
            return job.stop(directory)
        except TransientError as error:
            log.warning("The job is not stopped yet.", extra={"detail": str(error)})
            clock.wait(threading.Event(), timeout_s=STOP_WAIT_S)
    return job.stop(directory)


def _state_path(arguments: argparse.Namespace) -> Path:
    if arguments.state is not None:
        return Path(arguments.state)
    folder = DataFolder(default_folder(os.environ))
    folder.make()
    return folder.root / "flink.json"


def _keeping(arguments: argparse.Namespace, settings: "JobSettings") -> "JobSettings":
    """Keep checkpoints when the job ends; beside the state if the cluster is inside this process."""
    flink = RETAIN | dict(settings.flink)
    if CHECKPOINTS not in flink and "execution.target" not in flink:
        flink[CHECKPOINTS] = (_state_path(arguments).absolute().parent / "flink").as_uri()
    if SAVEPOINTS not in flink and CHECKPOINTS in flink:
        flink[SAVEPOINTS] = f"{flink[CHECKPOINTS].rstrip('/')}/savepoints"
    return replace(settings, flink=flink)


def _place(contract: "Contract", settings: "JobSettings") -> str:
    where = f"{settings.topic} on {settings.bootstrap}"
    return f"judging {where} by {contract.name} {contract.version}, on Flink"


def _where(job: "Job", settings: "JobSettings") -> Iterable[str]:
    """How to find the job."""
    flink = settings.flink
    inside = "execution.target" not in flink
    page = (
        f"http://{flink['rest.address']}:{flink.get('rest.port', '8081')}" if "rest.address" in flink else ""
    )
    place = (
        "inside this process"
        if inside
        else f"{page}/#/job/{job.job_id}"
        if page
        else flink["execution.target"]
    )
    yield f"job:         {job.job_id} ({place})"
    yield f"escalations: topic {settings.escalations!r}"


def _say(first: str, *more: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in (first, *(f"  {line}" for line in more))))
    sys.stdout.flush()


def _python() -> dict[str, str]:
    """Flink starts `python`; without a name it finds none, or another, and restarts the job for ever."""
    return {"python.executable": sys.executable, "python.client.executable": sys.executable}


def settings_of(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return KEY=VALUE texts as a mapping.

    Examples
    --------
    >>> settings_of(["a.b=1", "c=d=e"], "--flink")
    {'a.b': '1', 'c': 'd=e'}
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"{option} {text!r} is not KEY=VALUE")
        found[key] = value
    return found


def _address(path: str | None) -> str:
    """A folder of this machine as Flink names it; addresses with a scheme stay."""
    return "" if not path else path if "://" in path else Path(path).absolute().as_uri()


def _file_address(path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"--jar {path}: no such file")
    return path.absolute().as_uri()
