"""What engines say of the tokens of one choice, gathered over a whole answer or its chunks.

| shape | ids | log-probabilities |
|---|---|---|
| chat ``logprobs.content[]`` (OpenAI, vLLM, SGLang, llama.cpp, TensorRT-LLM) | ``token_ids``, ``response_token_ids``, ``id`` or ``token_id`` of an entry, or text ``token_id:N`` | ``logprob`` |
| completions ``logprobs`` with lists (OpenAI, vLLM, SGLang) | ``token_ids``, or texts ``token_id:N`` | ``token_logprobs`` |
| vLLM ``/inference/v1/generate`` | ``token_ids`` | ``logprobs.content[]`` with ``rank`` |
| SGLang ``meta_info.output_token_logprobs`` | second of each tuple, ``output_ids`` | first of each tuple |
| LMDeploy ``output_token_logprobs`` of pairs | second of each pair | first of each pair |
| llama.cpp ``/completion`` ``completion_probabilities[]`` | ``id`` of an entry | ``logprob`` |
| llama.cpp with ``post_sampling_probs`` | ``id`` of an entry | log of ``prob`` |

Nothing here fails on a strange value: a number that is none counts as not reported.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Entry", "Spoken", "read_prompt_logprobs", "weights_of"]

TOKEN_ID = "token_id:"  # noqa: S105 -- how vLLM writes an id as a text, no password
VLLM_SENTINEL = -9998.5


@dataclass(frozen=True, slots=True)
class Entry:
    """One position as reported: id where told, log-probability in nats, most likely tokens, rank or 0."""

    token_id: int | None
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 0


@dataclass(slots=True)
class Spoken:
    """One choice, as far as it was told.

    Attributes
    ----------
    ids : list of int
        Token ids told beside the log-probabilities.
    entries : list of Entry
        Positions with log-probabilities, in order.
    arrivals : list of (int, int)
        Monotonic ns, and tokens known by then.
    is_finished : bool
        A finish reason came.
    weights : list of str
        Versions of the weights, in order of appearance, each once.
    prompt_tokens : int or None
        Length of the prompt, where told.
    is_out_of_step : bool
        Chunks did not add up to what the engine counted.
    is_wide : bool
        An entry's text is not ASCII: a character may have taken several tokens.
    finish_reason : str
        As told last.
    counted : int or None
        Tokens of this choice as the engine counted them, where it told that beside this choice alone.
    """

    ids: list[int] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    is_finished: bool = False
    weights: list[str] = field(default_factory=list)
    prompt_tokens: int | None = None
    is_out_of_step: bool = False
    is_wide: bool = False
    finish_reason: str = ""
    counted: int | None = None

    def read_choice(self, choice: Mapping[str, Any], *, now_ns: int) -> None:
        """Add what a choice of an OpenAI-like answer or chunk says."""
        self.ids += _ids(
            choice.get("token_ids") or choice.get("response_token_ids") or choice.get("output_ids")
        )
        meta = choice.get("meta_info")
        if isinstance(meta, Mapping):
            self._read_meta(meta)
        elif isinstance(tuples := choice.get("output_token_logprobs"), list):
            self.entries += _tuples(tuples, _listed(choice.get("output_top_logprobs")))
        else:
            self.entries += _entries(choice.get("logprobs"))
            self.is_wide |= _is_wide(choice.get("logprobs"))
        self.is_finished |= choice.get("finish_reason") is not None
        self.finish_reason = str(choice.get("finish_reason") or self.finish_reason)
        if isinstance(told := choice.get("prompt_token_ids"), list):
            self.prompt_tokens = len(told)
        self._learn(choice)
        self._arrived(now_ns)

    def read_generate(self, answer: Mapping[str, Any], *, now_ns: int) -> None:
        """Add what an answer or chunk of SGLang's ``/generate`` says; ids come with each tuple."""
        meta = answer.get("meta_info")
        if isinstance(meta, Mapping):
            self._read_meta(meta)
            self.is_finished |= meta.get("finish_reason") is not None
        self._arrived(now_ns)

    def read_native(self, answer: Mapping[str, Any], *, now_ns: int) -> None:
        """Add what an answer or chunk of llama.cpp's ``/completion`` says; its counts are of all so far.

        Its ``tokens`` are told by some of its answers only, and before the first token are none.
        """
        content = {"content": answer.get("completion_probabilities")}
        self.entries += _entries(content)
        self.is_wide |= _is_wide(content)
        if answer.get("stop") is True:
            self.is_finished, self.finish_reason = True, str(answer.get("stop_type") or "")
        self.counted = _count(answer.get("tokens_predicted"), unsaid=self.counted)
        self.prompt_tokens = _count(answer.get("tokens_evaluated"), unsaid=self.prompt_tokens)
        self._arrived(now_ns)

    def _read_meta(self, meta: Mapping[str, Any]) -> None:
        rows, tops = _listed(meta.get("output_token_logprobs")), _listed(meta.get("output_top_logprobs"))
        total = meta.get("completion_tokens")
        if len(rows) == total:  # cumulative: each chunk repeats what came before, which is read once
            known = 0 if self.is_out_of_step or total < len(self.entries) else len(self.entries)
            self.entries[known:] = _tuples(rows[known:], tops[known:])
        elif rows:
            self.entries += _tuples(rows, tops)
            self.is_out_of_step = isinstance(total, int) and len(self.entries) != total
        if isinstance(count := meta.get("prompt_tokens"), int):
            self.prompt_tokens = count
        self._learn(meta)

    def _learn(self, told: Mapping[str, Any]) -> None:
        for version in weights_of(told):
            if version not in self.weights:
                self.weights.append(version)

    def _arrived(self, now_ns: int) -> None:
        known = max(len(self.ids), len(self.entries))
        if known > (self.arrivals[-1][1] if self.arrivals else 0):
            self.arrivals.append((now_ns, known))


def _count(told: Any, *, unsaid: int | None) -> int | None:
    return told if isinstance(told, int) and not isinstance(told, bool) else unsaid


def weights_of(told: Mapping[str, Any]) -> list[str]:
    """Return the versions of weights that a choice, ``meta_info`` or ``metadata`` tells, oldest first.

    vLLM says "default" where nobody gave the weights a name; that is no version.

    Examples
    --------
    >>> weights_of({"weight_versions": [{"version": "3", "start": 0, "end": 9}]})
    ['3']
    """
    spans = told.get("weight_versions")
    named = (
        [one.get("version") for one in spans if isinstance(one, Mapping)] if isinstance(spans, list) else []
    )
    names = [str(one) for one in named or [told.get("weight_version")] if one is not None]
    return [name for name in names if name not in ("", "default")]


def read_prompt_logprobs(told: Any) -> list[Entry]:
    """Return the positions of vLLM's ``prompt_logprobs``; the first token has none.

    A position maps ids to numbers: the prompt's own token first, then the most likely ones.

    Examples
    --------
    >>> read_prompt_logprobs([None, {"7": {"logprob": -0.5, "rank": 1}}])
    [Entry(token_id=None, logprob=None, top=(), rank=0), Entry(token_id=7, logprob=-0.5, top=((7, -0.5),), rank=1)]
    """
    return [_prompt_entry(one) for one in told] if isinstance(told, list) else []


def _prompt_entry(told: Any) -> Entry:
    if not isinstance(told, Mapping) or not told:
        return Entry(None, None)
    rows = [(_id_of(key), _ranked(value)) for key, value in told.items()]
    own = next(iter(told.values()))
    rank = _rank(own.get("rank")) if isinstance(own, Mapping) else 0
    return Entry(rows[0][0], rows[0][1], _known(rows), rank)


def _ids(told: Any) -> list[int]:
    """Return token ids; -1 (absent) for what is none."""
    found = [_id_of(one) for one in told] if isinstance(told, list) else []
    return [-1 if one is None else one for one in found]


def _id_of(told: Any) -> int | None:
    """Return the id a value or a text like ``token_id:7`` or ``7`` tells."""
    if isinstance(told, str):
        digits = told.removeprefix(TOKEN_ID)
        told = int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 19 else None
    return told if isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 1 << 62 else None


def _entries(logprobs: Any) -> list[Entry]:
    if not isinstance(logprobs, Mapping):
        return []
    if isinstance(content := logprobs.get("content"), list):
        return [_content_entry(one) for one in content]
    if isinstance(values := logprobs.get("token_logprobs"), list):
        return _columns(values, logprobs.get("tokens"), logprobs.get("top_logprobs"))
    return []


def _is_wide(logprobs: Any) -> bool:
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    texts = (
        [one.get("token") for one in content if isinstance(one, Mapping)] if isinstance(content, list) else []
    )
    return any(isinstance(text, str) and not text.isascii() for text in texts)


def _content_entry(told: Any) -> Entry:
    if not isinstance(told, Mapping):
        return Entry(None, None)
    top = told.get("top_logprobs", told.get("top_probs"))
    rows = (
        [(_entry_id(one), _ranked(one)) for one in top if isinstance(one, Mapping)]
        if isinstance(top, list)
        else []
    )
    return Entry(_entry_id(told), _ranked(told), _known(rows), _rank(told.get("rank")))


def _rank(told: Any) -> int:
    """A rank from 1; 0 for anything else, which is not reported."""
    return told if isinstance(told, int) and not isinstance(told, bool) and 0 < told < 1 << 32 else 0


def _entry_id(told: Mapping[str, Any]) -> int | None:
    """An entry's own id; its text tells one only in the form that vLLM was asked for."""
    for name in ("token_id", "id"):
        if (found := _id_of(told.get(name))) is not None:
            return found
    text = told.get("token")
    return _id_of(text) if isinstance(text, str) and text.startswith(TOKEN_ID) else None


def _columns(values: Sequence[Any], texts: Any, tops: Any) -> list[Entry]:
    """The lists of completions, side by side; a list that is too short ends in nothing."""
    texts = texts if isinstance(texts, list) else []
    tops = tops if isinstance(tops, list) else []
    return [
        Entry(_text_id(_nth(texts, n)), _number(value), _top_of(_nth(tops, n)))
        for n, value in enumerate(values)
    ]


def _nth(listed: Sequence[Any], n: int) -> Any:
    return listed[n] if n < len(listed) else None


def _text_id(text: Any) -> int | None:
    return _id_of(text) if isinstance(text, str) and text.startswith(TOKEN_ID) else None


def _top_of(told: Any) -> tuple[tuple[int, float], ...]:
    if not isinstance(told, Mapping):
        return ()
    return _known([(_text_id(text), _number(value)) for text, value in told.items()])


def _listed(told: Any) -> list[Any]:
    return told if isinstance(told, list) else []


def _tuples(told: Sequence[Any], tops: Sequence[Any]) -> list[Entry]:
    """SGLang's (log-probability, id, text) or LMDeploy's (log-probability, id)."""
    return [_tuple_entry(one, _nth(tops, n)) for n, one in enumerate(told)]


def _tuple_entry(told: Any, top: Any) -> Entry:
    if not isinstance(told, list) or len(told) < 2:
        return Entry(None, None)
    rows = (
        [(_id_of(one[1]), _number(one[0])) for one in top if isinstance(one, list) and len(one) > 1]
        if isinstance(top, list)
        else []
    )
    return Entry(_id_of(told[1]), _number(told[0]), _known(rows))


def _known(rows: Sequence[tuple[int | None, float | None]]) -> tuple[tuple[int, float], ...]:
    return tuple((token, value) for token, value in rows if token is not None and value is not None)


def _ranked(told: Any) -> float | None:
    """The log-probability of an entry; NaN where the rank says so.

    vLLM ranks NaN 0, and on its token route turns rank into null and the value into -9999.
    """
    if not isinstance(told, Mapping):
        return None
    value = _number(told.get("logprob")) if "logprob" in told else _log(_number(told.get("prob")))
    is_nan = "rank" in told and (
        told["rank"] == 0 or (told["rank"] is None and value is not None and value <= VLLM_SENTINEL)
    )
    return math.nan if is_nan else value


def _log(prob: float | None) -> float | None:
    """Log of a probability as told; of zero -inf, of what is no probability NaN."""
    if prob is None:
        return None
    return math.log(prob) if prob > 0 else -math.inf if prob == 0 else math.nan


def _number(told: Any) -> float | None:
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    try:
        return float(told)
    except OverflowError:  # an integer beyond every float
        return math.inf if told > 0 else -math.inf
