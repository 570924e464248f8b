"""The agent's configuration file → `AgentConfig`; every fault with its place, all in one go."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paritas.agent.config import (
    AgentConfig,
    EmbeddedTarget,
    HealthSettings,
    ReceiverSettings,
    ShippingSettings,
    SpoolSettings,
    Target,
)
from paritas.agent.eventlog import SyncMode
from paritas.agent.eventlog.kafka_settings import Compression, KafkaSettings, Sasl, SaslMechanism, Tls
from paritas.agent.retry import Backoff
from paritas.commands.agent_table import FILE, NAME
from paritas.contracts.compose import compose, decode
from paritas.contracts.found import Fields
from paritas.contracts.problems import Problems
from paritas.contracts.reading import read
from paritas.contracts.shapes import Record
from paritas.errors import ContractError, UsageError

__all__ = ["ConfigError", "kafka_of", "load_agent_config", "read_agent_config", "read_fields"]

# Hints of the contracts' reader that would send a reader of this file astray.
HINTS = {
    "paritas contract init writes one": "spool, receivers and destination are required",
    "one contract a file: split it at '---'": "one configuration a file",
    "is this a contract? recordings belong in their own files": "is this the configuration?",
}


class ConfigError(ContractError):
    """The configuration file is wrong; carries every problem, each with ``file:line:column``."""

    code = "config"


def load_agent_config(path: Path) -> AgentConfig:
    """Read a configuration file.

    Raises
    ------
    UsageError
        It cannot be read.
    ConfigError
        It is not a valid configuration.
    """
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{path}: cannot be read: {reason}", hint="name the agent's configuration file"
        ) from error
    return read_agent_config(content, str(path))


def read_agent_config(content: bytes, file: str) -> AgentConfig:
    """Read a configuration from bytes; `file` is the name that errors show."""
    return _placed(read_fields(FILE, content, file, hints=HINTS))


def read_fields(shape: Record, content: bytes, file: str, *, hints: Mapping[str, str]) -> Fields:
    """Read a document of one shape; `hints` replaces those of the contracts' reader that would send astray.

    Raises
    ------
    ConfigError
        Every fault, with its place.
    """
    try:
        problems = Problems()
        found = read(shape, compose(decode(content, file), file, problems), "", problems)
        problems.raise_if_any()
    except ContractError as error:
        raise _config_error(error, hints) from error
    assert found is not None, "a refused document is a problem"
    fields: Fields = found.value
    return fields


def _config_error(error: ContractError, hints: Mapping[str, str]) -> ConfigError:
    problems = tuple((text, hints.get(hint, hint)) for text, hint in error.problems)
    return ConfigError(str(error), hint=problems[0][1] if len(problems) == 1 else "", problems=problems)


def _placed(fields: Fields) -> AgentConfig:
    """Build the records; what they refuse of themselves is placed at the section it stands in."""
    try:
        return AgentConfig(
            name=fields.get("name") or _own_name(),
            spool=_at(fields, "spool", _spool),
            target=_target(fields),
            receivers=_at(fields, "receivers", _receivers),
            shipping=_at(fields, "shipping", _shipping),
            health=_at(fields, "health", _health),
            grace_s=fields.get("grace", 10.0),
        )
    except ConfigError:
        raise
    except UsageError as error:
        raise ConfigError(f"{fields.place}: {error}", hint=error.hint) from error


def _at(fields: Fields, name: str, build: Any) -> Any:
    section = fields.record(name)
    try:
        return build(section)
    except UsageError as error:
        raise ConfigError(f"{section.place}: {name}: {error}", hint=error.hint) from error


def _own_name() -> str:
    """What the surroundings call this agent: a pod's host name is not always the pod's name."""
    told = os.environ.get("PARITAS_AGENT_NAME")
    if told and not re.fullmatch(NAME.pattern, told):
        raise UsageError(
            f"PARITAS_AGENT_NAME is {told!r}, which is no name", hint=f"write {NAME.hint}, at most 128"
        )
    return told or socket.gethostname() or "agent"


def _told(fields: Fields, **names: str) -> dict[str, Any]:
    """Return the fields that are there, by the names that the record gives them."""
    return {ours: fields.get(theirs) for ours, theirs in names.items() if theirs in fields}


def _same(fields: Fields, *names: str) -> dict[str, Any]:
    return _told(fields, **{name: name for name in names})


def _spool(fields: Fields) -> SpoolSettings:
    settings = SpoolSettings(
        path=Path(fields.get("path")),
        refuse_when_full=fields.get("when_full") == "refuse",
        sync=SyncMode(fields.get("sync", "interval")),
        **_same(fields, "limit_bytes", "segment_bytes", "memory_bytes"),
        **_told(fields, max_age_s="max_age", sync_interval_s="sync_interval"),
    )
    _ = settings.limits  # checks itself
    return settings


def _receivers(fields: Fields) -> ReceiverSettings:
    unix = fields.record("unix")
    return ReceiverSettings(
        unix_path=Path(unix.get("path")) if "path" in unix else None,
        peer_uids=unix.values("uids"),
        any_user=unix.get("any_user", False),
        http_listen=fields.record("http").get("listen", ""),
        grpc_listen=fields.record("grpc").get("listen", ""),
        **_same(fields, "max_body_bytes", "max_pending_bytes"),
    )


def _shipping(fields: Fields) -> ShippingSettings:
    names = ("batch_records", "batch_bytes", "max_records_per_s", "max_bytes_per_s")
    backoff = Backoff(**_told(fields, first_s="retry_first", most_s="retry_most"))
    return ShippingSettings(
        backoff=backoff, **_same(fields, *names), **_told(fields, commit_s="commit", gather_s="gather")
    )


def _health(fields: Fields) -> HealthSettings:
    return HealthSettings(**_same(fields, "listen"), **_told(fields, stall_s="stall", report_s="report"))


def _target(fields: Fields) -> Target:
    at = fields.at("destination")
    kind, told = at.value
    try:
        return _embedded(told) if kind == "embedded" else kafka_of(told, fields.get("name") or _own_name())
    except UsageError as error:
        raise ConfigError(f"{at.place}: destination.{kind}: {error}", hint=error.hint) from error


def _embedded(fields: Fields) -> EmbeddedTarget:
    sizes = _same(fields, "partitions", "limit_bytes", "segment_bytes")
    return EmbeddedTarget(Path(fields.get("path")), **sizes)


def kafka_of(fields: Fields, name: str) -> KafkaSettings:
    """Return what a `kafka` section says; `name` is the client's unless it says one.  UsageError for what it refuses."""
    times = {f"{field}_s": field for field in ("connect_timeout", "request_timeout", "delivery_timeout")}
    return KafkaSettings(
        bootstrap=fields.values("bootstrap"),
        client_id=fields.get("client_id", name),
        tls=_tls(fields.record("tls")) if "tls" in fields else None,
        sasl=_sasl(fields.record("sasl")) if "sasl" in fields else None,
        compression=Compression(fields.get("compression", "zstd")),
        **_same(fields, "topic", "in_flight_bytes", "record_limit_bytes"),
        **_told(fields, **times),
    )


def _tls(fields: Fields) -> Tls:
    files = _same(fields, "ca_file", "certificate_file", "key_file")
    told: dict[str, Any] = {name: Path(path) for name, path in files.items()}
    return Tls(**told, **_same(fields, "check_hostname"))


def _sasl(fields: Fields) -> Sasl:
    token_file = fields.get("token_file")
    return Sasl(
        SaslMechanism(fields.get("mechanism")),
        username=fields.get("username", ""),
        password=_secret(fields.get("password_file")),
        token_file=Path(token_file) if token_file else None,
    )


def _secret(path: str | None) -> str:
    """Return what a file holds, without its last line end; a secret never stands in the configuration."""
    if path is None:
        return ""
    try:
        return Path(path).read_text("utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UsageError(f"{path}: cannot be read: {reason}", hint="name a file with the password") from error
