"""What SGLang calls in each of its processes: `register`, entry point group ``sglang.srt.plugins``.

SGLang hands every finished request to its metrics exporters.  Ours is one more of them: it gets the
request and its ``meta_info`` in the tokenizer manager's process, after the answer is made, and cannot
change it.  Requests that ask for no log-probabilities have none here; put the proxy before the engine
for those.  Enabled by the same ``PARITAS_*`` variables as every collector.
"""

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from paritas.clock import SystemClock
from paritas.collectors.emitter import Emitter
from paritas.collectors.openai.engines import PROBES, Engine, EngineFacts, facts_of
from paritas.collectors.settings import CollectorSettings, hasher_of, settings_from
from paritas.collectors.sglang.requests import Finished, SglangSource, trace_of_request
from paritas.errors import ParitasError
from paritas.records import LogprobSemantics
from paritas.tokens import TokenHasher

__all__ = ["Exporter", "as_json", "engine_of", "register"]

LOG = logging.getLogger("paritas.sglang")
MANAGER = "sglang.srt.observability.request_metrics_exporter.RequestMetricsExporterManager.__init__"
OLDER_MANAGER = "sglang.srt.managers.request_metrics_exporter.RequestMetricsExporterManager.__init__"
FAULTS_LIMIT = 16


def register() -> None:
    """Prepare this process if the environment asks for it; never raises."""
    try:
        settings = settings_from(os.environ)
        if settings.is_enabled:
            _install(settings, hasher_of(settings))
    except ParitasError as error:
        LOG.warning("this process is not observed: %s", error.render().replace("\n", " "))
    except Exception as error:  # noqa: BLE001 -- the edge to somebody else's engine
        LOG.warning("this process is not observed: %s: %s", type(error).__name__, error)


def _install(settings: CollectorSettings, hasher: TokenHasher) -> None:
    hooks = import_module("sglang.srt.plugins.hook_registry")

    def add_exporter(made: Any, manager: Any, *args: Any, **kwargs: Any) -> Any:
        """Stand behind the constructor of the manager."""
        try:
            server = kwargs.get("server_args", args[0] if args else None)
            manager._exporters.append(Exporter(settings, hasher, engine_of(server, os.environ)))  # noqa: SLF001 -- its own list, there is no method
        except Exception as error:  # noqa: BLE001 -- SGLang has its manager, with or without us
            LOG.warning("not observed: %s: %s", type(error).__name__, error)
        return made

    for target in (MANAGER, OLDER_MANAGER):
        try:
            import_module(target.rpartition(".")[0].rpartition(".")[0])
        except ImportError:
            continue
        hooks.HookRegistry.register(target, add_exporter, hooks.HookType.AFTER)
        return
    LOG.warning("not observed: this version of SGLang has no metrics exporters")


def engine_of(server: Any, environ: Mapping[str, str]) -> EngineFacts:
    """Return what is known of the engine from its resolved arguments."""
    told = (
        {name: value for name, value in vars(server).items() if _is_plain(value)}
        if server is not None
        else {}
    )
    told["version"] = _version()
    semantics = LogprobSemantics.RAW if environ.get("SGLANG_RETURN_ORIGINAL_LOGPROB") == "1" else None
    model = {"model_path": told.get("model_path"), "weight_version": told.get("weight_version")}
    answers = {PROBES[-1]: told, "/model_info": model}
    return facts_of(answers, engine=Engine.SGLANG, semantics=semantics)


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | str)


def _version() -> str:
    try:
        return str(import_module("sglang").__version__)
    except (ImportError, AttributeError):
        return ""


def as_json(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``meta_info`` as it would come out of JSON, as far as it is read: lists, not tuples.

    Examples
    --------
    >>> as_json({"output_token_logprobs": [(-0.5, 7, None)], "output_top_logprobs": [None, [(-0.1, 5, None)]]})
    {'output_token_logprobs': [[-0.5, 7, None]], 'output_top_logprobs': [None, [[-0.1, 5, None]]]}
    """
    told = dict(meta)
    if isinstance(rows := told.get("output_token_logprobs"), list | tuple):
        told["output_token_logprobs"] = [list(row) for row in rows]
    if isinstance(tops := told.get("output_top_logprobs"), list | tuple):
        told["output_top_logprobs"] = [top and [list(row) for row in top] for top in tops]
    return told


class Exporter:
    """One of SGLang's metrics exporters; what it does not understand it counts.

    Parameters
    ----------
    settings : CollectorSettings
    hasher : TokenHasher
    facts : EngineFacts
    """

    def __init__(self, settings: CollectorSettings, hasher: TokenHasher, facts: EngineFacts) -> None:
        self._source = SglangSource(
            hasher,
            settings.run_id,
            settings.weights_version or facts.weights_version,
            settings.attributes,
            facts,
        )
        resource = {"service.name": "paritas-sglang"}
        self.emitter = Emitter(settings.agent, clock=SystemClock(), limits=settings.limits, resource=resource)
        self.faults, self.passed_over, self._in_a_row = 0, 0, 0

    async def write_record(self, asked: Any, answer: Any) -> None:
        """Take in one finished request, as SGLang hands it to its exporters; never raises."""
        if self._in_a_row >= FAULTS_LIMIT:
            return
        try:
            finished = Finished(vars(asked), as_json(answer.get("meta_info") or {}))
            trace, _ = trace_of_request(finished, self._source)
            if trace is None:
                self.passed_over += 1
            else:
                self.emitter.emit(trace)
            self._in_a_row = 0
        except Exception as error:  # noqa: BLE001 -- the answer is made already
            self.faults += 1
            self._in_a_row += 1
            if self.faults == 1:
                LOG.warning(
                    "not observed: %s: %s; further ones are only counted", type(error).__name__, error
                )

    def close(self) -> None:
        """Hand over what waits; SGLang closes its exporters in some versions."""
        self.emitter.close(timeout_s=self.emitter.exit_s)
