"""When the workers are asked what they hold: before the first request, and after each change that is seen.

An offline engine waits for the answer while it has nothing to do; a serving one gets it when it comes.
What was sampled in between has no digest.
"""

import asyncio
import functools
import inspect
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from paritas.collectors.vllm.account import Account, Fault
from paritas.collectors.vllm.kernel import engine_facts
from paritas.collectors.vllm.watch import Watch
from paritas.collectors.vllm.weights import METHOD, is_change, told_in

__all__ = ["Weighing"]

TIMEOUT_S = 10.0
CALLS = ("collective_rpc", "collective_rpc_async")
WAKES = ("wake_up", "wake_up_async")


class Weighing:
    """Asks one engine's workers, through the client of its core.

    Parameters
    ----------
    engine : vllm.v1.engine.llm_engine.LLMEngine or vllm.v1.engine.async_llm.AsyncLLM
        Only a weak reference is kept: an engine is freed when its owner lets it go.
    watch : Watch
    account : Account
    environ : mapping
    weighs : bool
        False: the workers are asked for their kernel alone.
    """

    def __init__(
        self, engine: Any, watch: Watch, account: Account, environ: Mapping[str, str], *, weighs: bool = True
    ) -> None:
        self._engine, self._watch, self._account = weakref.ref(engine), watch, account
        self._environ, self._asked = environ, (TIMEOUT_S, (weighs,))
        self._is_stale = True
        self._task: asyncio.Task[None] | None = None
        # In this process a program may load weights past every call that we see.
        self._is_inside = weighs and hasattr(engine.engine_core, "engine_core")

    def attach(self) -> None:
        """Hear of changes; ask before the first request."""
        core = self._core()
        for name in (*CALLS, *WAKES):
            if hasattr(core, name):
                setattr(core, name, self._hearing(getattr(core, name), is_wake=name in WAKES))
        self._watch.before_request = self.before_request

    def _core(self) -> Any:
        engine = self._engine()
        return None if engine is None else engine.engine_core

    def _hearing(self, original: Callable[..., Any], *, is_wake: bool) -> Callable[..., Any]:
        def heard(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            if is_wake or is_change(args[0] if args else kwargs.get("method")):
                self._is_stale = True
                self._watch.touch()

        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def waiting(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await original(*args, **kwargs)
                finally:
                    heard(args, kwargs)

            return waiting

        @functools.wraps(original)
        def calling(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                heard(args, kwargs)

        return calling

    def before_request(self, is_idle: bool) -> None:
        """Ask if need be: a serving engine at once, an offline one while it has nothing to do."""
        engine = self._engine()
        if engine is None or not (self._is_stale or (self._is_inside and is_idle)):
            return
        try:
            if hasattr(engine, "output_handler"):
                self._is_stale = False
                self._task = asyncio.get_running_loop().create_task(self._ask_later(engine.engine_core))
            elif is_idle:
                self._is_stale = False
                self._know(engine.engine_core.collective_rpc(METHOD, *self._asked))
        except Exception as error:  # noqa: BLE001 -- weights are then not reported
            self._account.fault(Fault.WEIGHTS, error)

    async def _ask_later(self, core: Any) -> None:
        try:
            self._know(await core.collective_rpc_async(METHOD, *self._asked))
        except Exception as error:  # noqa: BLE001 -- the same
            self._account.fault(Fault.WEIGHTS, error)

    def _know(self, answers: Any) -> None:
        engine = self._engine()
        if engine is not None:
            told = told_in(answers)
            facts = engine_facts(engine.vllm_config, self._environ, worker=told.kernel)
            self._watch.know(facts, told.digest.text)
