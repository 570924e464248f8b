"""A vLLM server as inference kernel: prompts as token ids in, sampled tokens with log-probabilities out."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from paritas.collectors.kernels.kernel import Answer, Ask, Ids
from paritas.collectors.kernels.law import is_neutral
from paritas.collectors.kernels.spec import KernelSpec
from paritas.collectors.openai.engines import PROBES, EngineFacts, facts_of
from paritas.collectors.openai.responses import Spoken
from paritas.errors import UsageError
from paritas.records import KernelIdentity, LogprobSemantics, Sampling

__all__ = ["VllmKernel", "request_of", "spoken_answer"]

PROBE_S = 60.0  # the first /server_info takes seconds
ANSWER_S = 600.0
MANY = 16  # requests at once; the server batches them
MODES = {"raw_logprobs": LogprobSemantics.RAW, "processed_logprobs": LogprobSemantics.PROCESSED}
MODE_HINT = (
    "give logprobs_mode=raw_logprobs (vLLM's default) or processed_logprobs after the address, "
    "or start the server with VLLM_SERVER_DEV_MODE=1"
)


class VllmKernel:
    """Sampler over ``/v1/completions``; `connect` asks the server what it is.

    Parameters
    ----------
    url : str
        Address without path.
    told : mapping of path to JSON value
        Answers of the probes.
    top_k : int
        Most likely tokens to ask for.
    """

    vocabulary: int | None = None

    def __init__(self, spec: KernelSpec, told: Mapping[str, Any], *, top_k: int) -> None:
        self._url, self._top_k = spec.target.rstrip("/"), top_k
        models = _models(told, self._url)
        self._model = _chosen(models, spec.options.get("model"), self._url)
        mode = spec.options.get("logprobs_mode")
        self._facts: EngineFacts = facts_of(told, semantics=MODES[mode] if mode else None)
        if self._facts.are_logits:
            hint = "start it with --logprobs-mode raw_logprobs"
            raise UsageError(f"{self._url}: reports logits, not log-probabilities", hint=hint)
        self.identity: KernelIdentity = self._facts.kernel
        limit = models[self._model].get("max_model_len")
        self.context: int | None = limit if isinstance(limit, int) else None

    @classmethod
    def connect(cls, spec: KernelSpec, *, top_k: int) -> "VllmKernel":
        """Ask the server what it is.

        Raises
        ------
        UsageError
            The address is none, nobody answers there, or what answers is no such server.
        """
        url = spec.target.rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{spec.flag}: {url!r} is no address", hint="such as http://127.0.0.1:8000")
        told = {"/v1/models": _json(url, "/v1/models", timeout_s=PROBE_S)}
        for path in PROBES:
            if path not in told and (answer := _probed(url, path)) is not None:
                told[path] = answer
        return cls(spec, told, top_k=top_k)

    def law(self, asked: Sampling) -> Sampling:
        """Say what the server reports; without any processing all semantics are the same.

        Raises
        ------
        UsageError
            Tokens are drawn from a processed law and the server does not say which it reports.
        """
        semantics = self._facts.semantics
        if semantics is LogprobSemantics.UNKNOWN and not is_neutral(asked):
            raise UsageError(f"{self._url}: does not say what its log-probabilities mean", hint=MODE_HINT)
        unknown = semantics is LogprobSemantics.UNKNOWN
        return replace(asked, semantics=LogprobSemantics.RAW if unknown else semantics)

    def encode(self, text: str) -> Ids | None:
        """Return the tokens of ``/tokenize``; None where the server has no such path."""
        body = json.dumps({"model": self._model, "prompt": text}).encode()
        told = _probed(self._url, "/tokenize", body=body)
        tokens = told.get("tokens") if isinstance(told, dict) else None
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            return None
        return np.array(tokens, np.int64)

    def batch(self, max_tokens: int) -> int:  # noqa: ARG002 -- the server's memory is its own affair
        """Return how many requests are sent at once."""
        return MANY

    def sample(self, asks: Sequence[Ask], law: Sampling) -> list[Answer]:
        """Send one request a response, together, and wait for all."""
        with ThreadPoolExecutor(max(len(asks), 1)) as pool:
            return list(pool.map(lambda ask: self._answer(ask, law), asks))

    def _answer(self, ask: Ask, law: Sampling) -> Answer:
        body = json.dumps(request_of(ask, law, model=self._model, top_k=self._top_k)).encode()
        told = _json(self._url, "/v1/completions", body=body, timeout_s=ANSWER_S)
        return spoken_answer(ask, told, self._url)


def request_of(ask: Ask, law: Sampling, *, model: str, top_k: int) -> dict[str, object]:
    """Return the request; everything that shapes the law is said, so that no default of the server counts."""
    return {
        "model": model,
        "prompt": ask.prompt.tolist(),
        "max_tokens": ask.max_tokens,
        "seed": ask.seed,
        "temperature": law.temperature,
        "top_p": law.top_p,
        "top_k": law.top_k or -1,
        "min_p": law.min_p,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logprobs": top_k,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def spoken_answer(ask: Ask, told: Any, url: str) -> Answer:
    """Read an answer.

    Raises
    ------
    UsageError
        It tells no token ids, or not one log-probability a token.
    """
    choices = told.get("choices") if isinstance(told, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    spoken = Spoken()
    spoken.read_choice(choice, now_ns=0)
    ids = spoken.ids or [-1 if one.token_id is None else one.token_id for one in spoken.entries]
    if not ids or min(ids) < 0 or len(ids) != len(spoken.entries):
        raise UsageError(
            f"{url}: answers without token ids and log-probabilities", hint="is it vLLM >= 0.10?"
        )
    logprob = [np.nan if one.logprob is None else one.logprob for one in spoken.entries]
    top = [one.top for one in spoken.entries]
    finish = str(choice.get("finish_reason") or "")
    return Answer(ask, np.array(ids, np.int64), np.array(logprob, np.float64), top, finish=finish)


def _models(told: Mapping[str, Any], url: str) -> dict[str, dict[str, Any]]:
    answer = told.get("/v1/models")
    listed = answer.get("data") if isinstance(answer, dict) else None
    named = {
        str(one["id"]): one
        for one in listed or ()
        if isinstance(one, dict) and isinstance(one.get("id"), str)
    }
    if not named:
        raise UsageError(f"{url}: serves no model", hint="is it an OpenAI-compatible server?")
    return named


def _chosen(models: Mapping[str, Any], wanted: str | None, url: str) -> str:
    if wanted is None and len(models) == 1:
        return next(iter(models))
    if wanted in models:
        return str(wanted)
    known = ", ".join(models)
    if wanted is None:
        raise UsageError(f"{url}: serves {len(models)} models", hint=f"give one as model=NAME: {known}")
    raise UsageError(f"{url}: serves no model {wanted!r}", hint=f"it serves {known}")


def _probed(url: str, path: str, *, body: bytes | None = None) -> Any:
    """Return an answer; None where the server knows no such path."""
    try:
        return _json(url, path, timeout_s=PROBE_S, body=body)
    except UsageError:
        return None


def _json(url: str, path: str, *, timeout_s: float, body: bytes | None = None) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, body, headers)  # noqa: S310 -- the scheme was checked
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 -- as above
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise UsageError(f"{url}{path}: answered {error.code}", hint=_reason(error)) from error
    except ValueError as error:
        raise UsageError(f"{url}{path}: answered no JSON", hint="is it a vLLM server?") from error
    except (OSError, http.client.HTTPException) as error:
        why = _why(getattr(error, "reason", error))
        raise UsageError(f"{url}: no answer: {why}", hint="is the server up? vllm serve MODEL") from error


def _why(error: object) -> str:
    if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
        return "what answers there does not speak HTTP, or broke off"
    return getattr(error, "strerror", None) or str(error)


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the server's own words, which are about our request, cut short."""
    with error:
        text = error.read(4096).decode("utf-8", "replace")
    try:
        told = json.loads(text)
        return str(told.get("error", {}).get("message") or told.get("message") or "")[:300]
    except (ValueError, AttributeError):
        return ""
