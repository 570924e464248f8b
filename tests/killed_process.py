"""A program that serves until its input ends, in a process of its own that can be killed."""

import signal
import subprocess
import sys

DEADLINE_S = 90


class KilledProcess:
    """A running program; it told its address before anything else.

    Parameters
    ----------
    program : str
        Python that prints the address it listens on, and ends with its input.
    """

    def __init__(self, program, *arguments, listen):
        self.listen = listen
        command = [sys.executable, "-c", program, *map(str, arguments)]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.popen.stdout.readline() == f"{listen}\n"

    def kill(self):
        self.popen.send_signal(signal.SIGKILL)
        assert self.popen.wait(DEADLINE_S) == -signal.SIGKILL
        self._close()

    def stop(self):
        self.popen.stdin.close()
        assert self.popen.wait(DEADLINE_S) == 0
        self._close()

    def _close(self):
        self.popen.stdin.close()
        self.popen.stdout.close()
