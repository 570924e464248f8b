"""When a configuration file has changed, and what of it may change while the agent runs."""

from pathlib import Path

from paritas.agent.config import AgentConfig, fixed
from paritas.errors import UsageError

__all__ = ["FileWatch", "expect_changeable"]

Mark = tuple[int, int, int] | None


class FileWatch:
    """Tells whether a file is another than before: by time, size and inode, also through links.

    Kubernetes replaces a mounted file by moving a link, so the file itself is looked at each time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._mark()

    def has_changed(self) -> bool:
        """Whether it changed since the last call; a file that is gone has not."""
        mark = self._mark()
        if mark is None or mark == self._seen:
            return False
        self._seen = mark
        return True

    def _mark(self) -> Mark:
        try:
            told = self._path.stat()
        except OSError:
            return None
        return told.st_mtime_ns, told.st_size, told.st_ino


def expect_changeable(old: AgentConfig, new: AgentConfig) -> None:
    """Check that the new configuration can replace the old one in a running agent.

    Raises
    ------
    UsageError
        It changes what only a restart can.
    """
    changed = [name for (name, was), (_, is_now) in zip(fixed(old), fixed(new), strict=True) if was != is_now]
    if changed:
        raise UsageError(
            f"{', '.join(changed)} cannot change while the agent runs",
            hint="restart the agent, or put the old value back; until then the old configuration holds",
        )
