"""Keys and secret URLs: read from files, never from settings, never logged."""

from pathlib import Path

from paritas.errors import UsageError

__all__ = ["bearer", "read_secret"]

_MAX_BYTES = 64 * 1024


def read_secret(file: Path) -> bytes:
    """Return what `file` holds, without the newline an editor adds.

    Raises
    ------
    UsageError
        It cannot be read, is empty, or is too large to be a key.
    """
    try:
        with file.open("rb") as opened:
            secret = opened.read(_MAX_BYTES + 1).strip()
    except OSError as error:
        raise UsageError(f"cannot read key file {str(file)!r}: {error.strerror}") from error
    if not secret or len(secret) > _MAX_BYTES:
        raise UsageError(f"key file {str(file)!r} is {'too large' if secret else 'empty'}")
    return secret


def bearer(file: Path | None) -> dict[str, str]:
    """Return the request headers of the key in `file`; none without a file."""
    if file is None:
        return {}
    try:
        key = read_secret(file).decode("ascii")
    except UnicodeDecodeError as error:
        raise UsageError(f"key file {str(file)!r} is not ASCII text") from error
    if not key.isprintable():  # who refuses such a header says the whole of it, the key too
        raise UsageError(f"key file {str(file)!r} holds more than one line of text")
    return {"Authorization": f"Bearer {key}"}
