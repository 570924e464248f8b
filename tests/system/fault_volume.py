"""A file system of its own and of few bytes, so that a disk can be full."""

import errno
import subprocess
from contextlib import contextmanager


@contextmanager
def volume(path, *, size):
    """Mount a tmpfs at a path; yields why it cannot be mounted, or nothing."""
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], capture_output=True, check=False
    )
    try:
        yield made.stderr.decode().strip() if made.returncode else ""
    finally:
        if not made.returncode:
            subprocess.run(["umount", "-l", str(path)], check=True)


@contextmanager
def full(path):
    """Leave not a byte on a volume during the block."""
    ballast = path / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            fill(file)
        yield
    finally:
        ballast.unlink()


def fill(file):
    """Write until the volume takes no more."""
    try:
        while True:
            file.write(bytes(4096))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
