"""`paritas detect --engine flink`: submit the job, wait for it if it ends."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.errors import UsageError

if TYPE_CHECKING:
    from paritas.contracts.model import Contract

__all__ = ["run_on_flink", "settings_of"]


def run_on_flink(contract: "Contract", arguments: argparse.Namespace) -> int:
    """Run the job: on the cluster that `--flink` settings name, else on one inside this process."""
    if arguments.kafka is None:
        raise UsageError("--engine flink reads Kafka", hint="give --kafka HOST:PORT instead of --log")
    try:
        from paritas.detectors.flink.job import JobSettings, build
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pyflink"):
            raise
        message = "--engine flink needs Apache Flink's Python package"
        hint = "pip install 'paritas[flink]' in a virtual environment of its own"
        raise UsageError(message, hint=hint) from error
    from paritas.controller.topic import escalation_bytes

    settings = JobSettings(
        bootstrap=arguments.kafka,
        topic=arguments.topic,
        escalations=arguments.escalations,
        deployment=arguments.deployment,
        parallelism=arguments.parallelism,
        bounded=arguments.to_end,
        checkpoint_s=arguments.checkpoint_s,
        verdicts=_address(arguments.verdicts),
        jars=tuple(_file_address(jar) for jar in arguments.jar),
        kafka=settings_of(arguments.kafka_setting, "--kafka-setting"),
        flink=_python() | settings_of(arguments.flink, "--flink"),
    )
    build(contract, settings, encode=escalation_bytes).execute(f"paritas detect {contract.name}")
    return 0


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
