"""The `PARITAS_*` variables that a collector obeys: a pure reading of an environment.

| variable | meaning | when unset |
|---|---|---|
| ``PARITAS_ENABLED`` | 1 or 0: whether collectors do anything | on if ``PARITAS_RUN_ID`` or ``PARITAS_AGENT`` is set |
| ``PARITAS_AGENT`` | ``unix:/path`` or ``http://host:port`` of the agent | ``otlp.sock`` in ``PARITAS_DATA``, else ``unix:/run/paritas/otlp.sock`` |
| ``PARITAS_RUN_ID`` | run both kernels belong to | ``default`` |
| ``PARITAS_SHARE`` | share of sequences observed that asked for no log-probabilities | 0.05 |
| ``PARITAS_TOP_K`` | most likely tokens that these are asked for | 0 |
| ``PARITAS_ATTRIBUTES`` | ``slice=math,replica=a``: attributes of every trace | none |
| ``PARITAS_WEIGHTS_VERSION`` | version of the weights, where the program tells none | not reported |
| ``PARITAS_WEIGHTS_DIGEST`` | 1 or 0: whether a sample of the weights is digested for each version | 1 |
| ``PARITAS_GPU_PERIOD_S`` | seconds from one reading of this machine's GPUs to the next; 0 reads none | 10 |
| ``PARITAS_TOKEN_KEY_FILE`` | 16 to 64 secret bytes that name tokens | ``token.key`` in ``PARITAS_DATA``, if that is set |
| ``PARITAS_TOKEN_SECRET`` | the same as a text | not used |
| ``PARITAS_QUEUE_TRACES``, ``PARITAS_QUEUE_BYTES`` | most that waits in memory | 4096, 64 MiB |
| ``PARITAS_TIMEOUT_S``, ``PARITAS_LINGER_S``, ``PARITAS_RETRY_FOR_S`` | see `EmitterLimits` | 5, 0.2, 30 |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from paritas.errors import UsageError
from paritas.otlp_http import Target, target_of
from paritas.tokens import TokenHasher

__all__ = ["CollectorSettings", "EmitterLimits", "hasher_of", "settings_from"]

T = TypeVar("T")
DEFAULT_AGENT = "unix:/run/paritas/otlp.sock"
WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True, slots=True)
class EmitterLimits:
    """What an emitter may hold and how long it may try.

    Attributes
    ----------
    queue_traces, queue_bytes : int
        Most traces, and bytes of their columns, that wait; newer ones are dropped and counted.
    batch_bytes : int
        Size from which a request is sent without waiting for more; about the largest request.
    linger_s : float, seconds
        Longest wait for more traces before a smaller request is sent.
    timeout_s : float, seconds
        For sending one request, and again for its answer.
    retry_first_s, retry_most_s : float, seconds
        Waits between tries double from the first to the most, with full jitter.
    retry_for_s : float, seconds
        After so long without success a batch is dropped and counted.
    exit_s : float, seconds
        Longest wait at the end of the process.
    """

    queue_traces: int = 4096
    queue_bytes: int = 64 << 20
    batch_bytes: int = 1 << 20
    linger_s: float = 0.2
    timeout_s: float = 5.0
    retry_first_s: float = 0.1
    retry_most_s: float = 5.0
    retry_for_s: float = 30.0
    exit_s: float = 2.0


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """What the environment asks of a collector; the table above says which variable is which."""

    is_enabled: bool
    agent: Target
    run_id: str
    share: float
    attributes: Mapping[str, str]
    weights_version: str
    token_key_file: Path | None
    token_secret: str = field(repr=False)
    limits: EmitterLimits
    top_k: int = 0
    weights_digest: bool = True
    gpu_period_s: float = 10.0


def settings_from(environ: Mapping[str, str]) -> CollectorSettings:
    """Read the settings; an empty variable counts as unset.

    Raises
    ------
    UsageError
        A variable cannot be read; the message names it.

    Examples
    --------
    >>> told = settings_from({"PARITAS_RUN_ID": "grpo-7", "PARITAS_DATA": "/tmp/p"})
    >>> told.is_enabled, str(told.agent), told.run_id, told.token_key_file.name
    (True, 'unix:/tmp/p/otlp.sock', 'grpo-7', 'token.key')
    """
    asked = bool(environ.get("PARITAS_RUN_ID") or environ.get("PARITAS_AGENT"))
    return CollectorSettings(
        is_enabled=_read(environ, "PARITAS_ENABLED", _flag, asked),
        agent=target_of(environ.get("PARITAS_AGENT") or _default_agent(environ), name="PARITAS_AGENT"),
        run_id=environ.get("PARITAS_RUN_ID") or "default",
        share=_read(environ, "PARITAS_SHARE", _share, 0.05),
        attributes=_read(environ, "PARITAS_ATTRIBUTES", _pairs, {}),
        weights_version=environ.get("PARITAS_WEIGHTS_VERSION", ""),
        token_key_file=_key_file(environ),
        token_secret=environ.get("PARITAS_TOKEN_SECRET", ""),
        limits=_limits(environ),
        top_k=_read(environ, "PARITAS_TOP_K", _few, 0),
        weights_digest=_read(environ, "PARITAS_WEIGHTS_DIGEST", _flag, True),
        gpu_period_s=_read(environ, "PARITAS_GPU_PERIOD_S", _period, 10.0),
    )


def hasher_of(settings: CollectorSettings) -> TokenHasher:
    """Make the token hasher the settings ask for, reading the key file.

    Raises
    ------
    UsageError
        There is no key, or it cannot be read.
    """
    if settings.token_secret:
        return TokenHasher.from_secret(settings.token_secret)
    path = settings.token_key_file
    if path is None:
        raise UsageError(
            "no token key is set",
            hint="set PARITAS_TOKEN_KEY_FILE to the same 16 to 64 random bytes for both kernels",
        )
    try:
        return TokenHasher(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {error.strerror}", hint="name the token key with PARITAS_TOKEN_KEY_FILE"
        ) from error


def _default_agent(environ: Mapping[str, str]) -> str:
    folder = environ.get("PARITAS_DATA")
    return f"unix:{Path(folder).absolute()}/otlp.sock" if folder else DEFAULT_AGENT


def _key_file(environ: Mapping[str, str]) -> Path | None:
    if path := environ.get("PARITAS_TOKEN_KEY_FILE"):
        return Path(path)
    folder = environ.get("PARITAS_DATA")
    return Path(folder) / "token.key" if folder else None


def _limits(environ: Mapping[str, str]) -> EmitterLimits:
    usual = EmitterLimits()
    return EmitterLimits(
        queue_traces=_read(environ, "PARITAS_QUEUE_TRACES", _whole, usual.queue_traces),
        queue_bytes=_read(environ, "PARITAS_QUEUE_BYTES", _whole, usual.queue_bytes),
        timeout_s=_read(environ, "PARITAS_TIMEOUT_S", _seconds, usual.timeout_s),
        linger_s=_read(environ, "PARITAS_LINGER_S", _seconds, usual.linger_s),
        retry_for_s=_read(environ, "PARITAS_RETRY_FOR_S", _seconds, usual.retry_for_s),
    )


def _read(environ: Mapping[str, str], name: str, read: Callable[[str], T], unset: T) -> T:
    """Return what a variable holds; a ValueError of `read` says what it must be."""
    text = environ.get(name, "").strip()
    if not text:
        return unset
    try:
        return read(text)
    except ValueError as error:
        raise UsageError(f"{name} is {text!r}", hint=str(error)) from error


def _flag(text: str) -> bool:
    if text.lower() not in WORDS:
        raise ValueError("write 1 or 0")
    return WORDS[text.lower()]


def _share(text: str) -> float:
    share = _number(text)
    if not 0.0 <= share <= 1.0:
        raise ValueError("write a number from 0 to 1")
    return share


def _seconds(text: str) -> float:
    seconds = _number(text)
    if not 0.0 < seconds <= 3600.0:
        raise ValueError("write seconds above 0, at most 3600")
    return seconds


def _period(text: str) -> float:
    seconds = _number(text)
    if not 0.0 <= seconds <= 3600.0:
        raise ValueError("write seconds from 0 to 3600")
    return seconds


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError("write a number") from error


def _whole(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 15 or int(text) < 1:
        raise ValueError("write a whole number above 0")
    return int(text)


def _few(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 4 or int(text) > 1024:
        raise ValueError("write a whole number from 0 to 1024")
    return int(text)


def _pairs(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and equals for name, equals, _ in pairs):
        raise ValueError("write NAME=VALUE,NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}
