"""Who tells the numbers of what is sampled now: so that a trainer and the engine in its process do not both do.

A trainer that knows the names of its rollouts and holds the engine's log-probabilities runs its sampling
inside `Telling.here`.  Collectors of an engine in the same process look at `teller` for each request: where
there is one they leave the request to it, and tell it which kernel and which weights they saw.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from paritas.records import KernelIdentity

__all__ = ["Telling", "teller"]


class Telling:
    """One sampling that a trainer tells of itself.

    Attributes
    ----------
    kernel : KernelIdentity or None
        Of the engine; None when none was heard of, or several that differ.
    weights_digest : str
        Of the weights it held; empty when not known.
    requests : int
        Requests that were left to the trainer.
    """

    def __init__(self) -> None:
        self.kernel: KernelIdentity | None = None
        self.weights_digest = ""
        self.requests = 0

    def hear(self, kernel: KernelIdentity, weights_digest: str) -> None:
        """Take in what an engine's collector saw when a request came.

        Examples
        --------
        >>> from paritas.records import Role
        >>> telling, kernel = Telling(), KernelIdentity(Role.INFERENCE, engine="vllm")
        >>> telling.hear(kernel, "w1:a"), telling.hear(kernel, "w1:b")
        (None, None)
        >>> telling.kernel.engine, telling.weights_digest, telling.requests
        ('vllm', '', 2)
        """
        is_first, self.requests = not self.requests, self.requests + 1
        if is_first:
            self.kernel, self.weights_digest = kernel, weights_digest
        self.kernel = kernel if self.kernel == kernel else None
        self.weights_digest = weights_digest if self.weights_digest == weights_digest else ""

    @contextmanager
    def here(self) -> Iterator["Telling"]:
        """Be the teller of everything that is asked for inside."""
        token = _TELLER.set(self)
        try:
            yield self
        finally:
            _TELLER.reset(token)


# A variable of the context and no global state: each thread and task has the one it was started with.
_TELLER: ContextVar[Telling | None] = ContextVar("paritas_teller", default=None)


def teller() -> Telling | None:
    """Return who tells of what is sampled now; None where nobody but the engine's collector does."""
    return _TELLER.get()
