"""What vLLM calls in each of its processes: `register`, entry point group ``vllm.general_plugins``.

It puts itself behind three constructors and calls nothing.  An engine made afterwards is attached to;
in a worker's process a method is added that describes the weights it holds.

| variable | meaning |
|---|---|
| ``PARITAS_ENABLED``, ``PARITAS_RUN_ID``, ``PARITAS_AGENT`` … | as for every collector (`paritas.collectors.settings`) |
| ``PARITAS_SHARE`` | share of the sequences that ask for no log-probabilities (0.05) |
| ``PARITAS_TOP_K`` | most likely tokens asked for with them (0) |
| ``PARITAS_WEIGHTS_VERSION`` | version of the weights the engine starts with, until they change |
| ``PARITAS_WEIGHTS_DIGEST`` | 0: the workers are not asked for a sample of their weights |

What a trainer in this process samples and tells itself (`paritas.collectors.telling`) is left to it.
"""

import atexit
import functools
import importlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from paritas.clock import Clock, SystemClock
from paritas.collectors.emitter import Emitter, EmitterReading
from paritas.collectors.gpu_watch import GpuWatch, watch_for
from paritas.collectors.openai.naming import names_of, traceparent_of
from paritas.collectors.settings import CollectorSettings, hasher_of, settings_from
from paritas.collectors.vllm.account import Account, Fault, VllmReading
from paritas.collectors.vllm.asking import Declared
from paritas.collectors.vllm.kernel import engine_facts
from paritas.collectors.vllm.watch import NO_HEADERS, Headers, Outlet, Watch
from paritas.collectors.vllm.weighing import Weighing
from paritas.collectors.vllm.weights import METHOD, answer_of
from paritas.errors import ParitasError
from paritas.tokens import TokenHasher

__all__ = ["Plugin", "register"]

LOG = logging.getLogger("paritas.vllm")
ENGINES = (("vllm.v1.engine.llm_engine", "LLMEngine"), ("vllm.v1.engine.async_llm", "AsyncLLM"))
WORKERS = ("vllm.v1.worker.worker_base", "WorkerBase")
# Where the HTTP routes look at headers; the first that is there, newest first.
SERVINGS = (
    ("vllm.entrypoints.serve.engine.serving", "BaseServing"),
    ("vllm.entrypoints.openai.engine.serving", "OpenAIServing"),
    ("vllm.entrypoints.openai.serving_engine", "OpenAIServing"),
)
HEARING = "_get_trace_headers"
MARK = "_paritas"


def register() -> None:
    """Prepare this process if the environment asks for it; never raises, a second call does nothing."""
    try:
        settings = settings_from(os.environ)
        if settings.is_enabled:
            Plugin(settings, hasher_of(settings), clock=SystemClock()).install()
    except ParitasError as error:
        LOG.warning("this process is not observed: %s", error.render().replace("\n", " "))
    except Exception as error:  # noqa: BLE001 -- the edge to somebody else's engine
        LOG.warning("this process is not observed: %s: %s", type(error).__name__, error)


class Plugin:
    """All that is ours in one process of vLLM.

    Parameters
    ----------
    settings : CollectorSettings
    hasher : TokenHasher
    clock : Clock
    """

    def __init__(self, settings: CollectorSettings, hasher: TokenHasher, *, clock: Clock) -> None:
        self._settings, self._hasher, self._clock = settings, hasher, clock
        self._declared = Declared(
            settings.run_id, settings.share, settings.top_k, settings.weights_version, settings.attributes
        )
        self.account = Account()
        self._emitter: Emitter | None = None
        self._gpus: GpuWatch | None = None
        self._lock = threading.Lock()
        self._asking: ContextVar[Headers] = ContextVar("paritas_headers", default=NO_HEADERS)

    def install(self) -> None:
        """Wrap the constructors of engines; give workers their method."""
        for module, name in ENGINES:
            engine = _found(module, name)
            if engine is not None and not hasattr(engine.__init__, MARK):
                engine.__init__ = _after(engine.__init__, self.attach)
        worker = _found(*WORKERS)
        if worker is not None and not hasattr(worker, METHOD):
            setattr(worker, METHOD, answer_of)

    def attach(self, engine: Any) -> None:
        """Watch an engine that was just made; one that we do not understand is left alone."""
        try:
            watch = self._watch(engine)
            weighs = self._settings.weights_digest
            Weighing(engine, watch, self.account, os.environ, weighs=weighs).attach()
            watch.attach()
        except Exception as error:  # noqa: BLE001 -- the engine is made, and works
            self.account.fault(Fault.KERNEL, error)

    def _watch(self, engine: Any) -> Watch:
        self._hear_headers(engine)
        outlet = Outlet(
            self._declared,
            self._emitting(),
            self._hasher,
            self.account,
            self._clock,
            instance=f"{socket.gethostname()}:{os.getpid()}:{self._clock.now_ns():x}",
            headers=self._asking.get,
        )
        return Watch(engine.output_processor, engine_facts(engine.vllm_config, os.environ), outlet)

    def _emitting(self) -> Emitter:
        """The emitter of this process, made when the first engine is."""
        with self._lock:
            if self._emitter is None:
                atexit.register(self._farewell)  # before the emitter's own, hence called after it
                resource = {"service.name": "paritas-vllm"}
                self._emitter = Emitter(
                    self._settings.agent, clock=self._clock, limits=self._settings.limits, resource=resource
                )
                self._gpus = watch_for(self._emitter, self._settings, os.environ, clock=self._clock)
                if self._gpus is not None:
                    self._gpus.start()
            return self._emitter

    def read(self) -> tuple[VllmReading, EmitterReading | None]:
        """What became of every request, and of every trace."""
        return self.account.read(), None if self._emitter is None else self._emitter.read()

    def close(self, *, timeout_s: float) -> None:
        """Hand over what waits for at most so long; what ends later is dropped and counted."""
        if self._gpus is not None:
            self._gpus.close()
        if self._emitter is not None:
            self._emitter.close(timeout_s=timeout_s)

    def _farewell(self) -> None:
        told, sent = self.read()
        if told.begun and sent is not None:
            is_fine = not sent.dropped and not told.faults
            LOG.log(logging.INFO if is_fine else logging.WARNING, "%s", farewell_of(told, sent))

    def _hear_headers(self, engine: Any) -> None:
        """Read the headers of HTTP requests, where a server is being made around this engine."""
        if not hasattr(engine, "output_handler") or not _is_server(sys.modules):
            return
        for module, name in SERVINGS:
            serving = _found(module, name)
            original = getattr(serving, HEARING, None)
            if original is None:
                continue
            if not hasattr(original, MARK):
                setattr(serving, HEARING, self._hearing(original))
            return

    def _hearing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        async def wrapped(serving: Any, headers: Mapping[str, str], *args: Any, **kwargs: Any) -> Any:
            try:
                self._asking.set(_said(headers))
            except Exception as error:  # noqa: BLE001 -- a request goes on whatever its headers are
                self.account.fault(Fault.NAMES, error)
            return await original(serving, headers, *args, **kwargs)

        setattr(wrapped, MARK, True)
        return wrapped


def _said(headers: Mapping[str, str]) -> Headers:
    names = names_of({str(name).lower(): str(value) for name, value in headers.items()})
    link = traceparent_of(headers.get("traceparent") or "")
    return names, "" if link is None else str(link)


def farewell_of(told: VllmReading, sent: EmitterReading) -> str:
    """The account in one line.

    Examples
    --------
    >>> from paritas.collectors.emitter import EmitterReading
    >>> told = VllmReading(2, 1, 2, {}, {}, {}, is_stopped=False)
    >>> farewell_of(told, EmitterReading(2, 2, {}, 0, 0, 0, 0))
    '2 sequences observed (1 asked for by us), 2 ended: 2 records delivered, 0 dropped (none); faults: none'
    """
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(sent.dropped.items()))
    faults = ", ".join(f"{count} {where}" for where, count in sorted(told.faults.items()))
    return (
        f"{told.begun} sequences observed ({told.injected} asked for by us), {told.ended} ended: "
        f"{sent.delivered} records delivered, {sum(sent.dropped.values())} dropped ({dropped or 'none'}); "
        f"faults: {faults or 'none'}"
    )


def _after(original: Callable[..., None], follow: Callable[[Any], None]) -> Callable[..., None]:
    """A constructor that shows what it has made."""

    @functools.wraps(original)
    def wrapped(made: Any, *args: Any, **kwargs: Any) -> None:
        original(made, *args, **kwargs)
        follow(made)

    setattr(wrapped, MARK, True)
    return wrapped


def _found(module: str, name: str) -> Any:
    """A class of this version of vLLM, or None."""
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def _is_server(modules: Mapping[str, Any]) -> bool:
    return any(name.startswith(("vllm.entrypoints.openai.", "vllm.entrypoints.cli")) for name in modules)
