"""Where a running Paritas keeps its things: one private folder."""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from paritas.durable import replace_file
from paritas.errors import UsageError
from paritas.tokens import TokenHasher

__all__ = ["DataFolder", "Running", "default_folder"]

KEY_BYTES = 32


def default_folder(env: Mapping[str, str]) -> Path:
    """``PARITAS_DATA``, else the user's state folder.

    Examples
    --------
    >>> str(default_folder({"PARITAS_DATA": "/tmp/p"})), str(default_folder({"HOME": "/home/u"}))
    ('/tmp/p', '/home/u/.local/state/paritas')
    """
    if env.get("PARITAS_DATA"):
        return Path(env["PARITAS_DATA"])
    state = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".local/state")
    return Path(state) / "paritas"


@dataclass(frozen=True, slots=True)
class Running:
    """What a running `paritas up` tells the other commands."""

    pid: int
    target: str
    contract: str
    metrics: str = ""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Names inside the folder."""

    root: Path

    @property
    def log(self) -> Path:
        """The embedded event log."""
        return self.root / "log"

    @property
    def database(self) -> Path:
        """The controller's escalation log."""
        return self.root / "escalations.sqlite"

    @property
    def cursor(self) -> Path:
        """Positions and state of the detectors."""
        return self.root / "detector.state"

    @property
    def token(self) -> Path:
        """The token of this folder's owner, while a controller with an access file runs in it."""
        return self.root / "controller.token"

    @property
    def own_socket(self) -> Path:
        """Where the owner reaches a controller that serves others with TLS."""
        return self.root / "controller.sock"

    @property
    def notifications(self) -> Path:
        """What people were told."""
        return self.root / "notify.json"

    @property
    def socket(self) -> Path:
        """Where collectors send."""
        return self.root / "otlp.sock"

    def make(self) -> None:
        """Make the folder, readable by its owner only.

        Raises
        ------
        UsageError
            If that cannot be done.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{self.root}: cannot be made: {error.strerror}", hint="choose another --data"
            ) from error

    def hasher(self) -> TokenHasher:
        """The token hasher of this folder; its key is made once and stays here."""
        path = self.root / "token.key"
        if not path.exists():
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
        return TokenHasher(path.read_bytes())

    def announce(self, running: Running) -> None:
        """Say where a running instance can be reached; OSError, and what was said before stays, on a full disk."""
        replace_file(self.root / "running.json", [json.dumps(asdict(running)).encode(), b"\n"])

    def retract(self) -> None:
        """The instance is gone."""
        (self.root / "running.json").unlink(missing_ok=True)

    def running(self) -> Running:
        """Read what a running instance announced.

        Raises
        ------
        UsageError
            If none did.
        """
        try:
            found = Running(**json.loads((self.root / "running.json").read_text()))
            os.kill(found.pid, 0)  # a killed instance could not take its announcement back
        except (OSError, ValueError, TypeError) as error:
            message = f"nothing runs on {self.root}"
            raise UsageError(message, hint="start `paritas up` with the same --data first") from error
        return found
