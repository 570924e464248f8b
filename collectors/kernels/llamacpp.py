"""A GGUF file in this process, by llama.cpp through llama-cpp-python."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from paritas.collectors.kernels.kernel import Ids, Rows
from paritas.collectors.kernels.spec import KernelSpec
from paritas.errors import UsageError
from paritas.records import KernelIdentity

__all__ = ["LlamaModel", "open_model"]

CONTEXT_MOST = 4096  # the key-value cache is allocated at once
MAGIC = b"GGUF"
# `general.file_type` of the format's description: the type of most tensors.
FILE_TYPES = {
    "0": "F32",
    "1": "F16",
    "2": "Q4_0",
    "3": "Q4_1",
    "7": "Q8_0",
    "8": "Q5_0",
    "9": "Q5_1",
    "10": "Q2_K",
    "11": "Q3_K_S",
    "12": "Q3_K_M",
    "13": "Q3_K_L",
    "14": "Q4_K_S",
    "15": "Q4_K_M",
    "16": "Q5_K_S",
    "17": "Q5_K_M",
    "18": "Q6_K",
    "32": "BF16",
}


def open_model(spec: KernelSpec) -> "LlamaModel":
    """Load a file.

    Raises
    ------
    UsageError
        No such file, no GGUF, or llama.cpp cannot load it.
    """
    llama_cpp = import_module("llama_cpp")
    path = Path(spec.target)
    if not path.is_file():
        raise UsageError(f"{path}: no such file", hint=f"{spec.flag} llamacpp:FILE takes a GGUF file")
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise UsageError(f"{path}: is no GGUF file", hint="llama.cpp's convert_hf_to_gguf.py makes one")
    threads = spec.number("threads")
    # Both: what takes a prompt in otherwise starts a thread for each core.
    told = {"n_threads": int(threads), "n_threads_batch": int(threads)} if threads else {}
    try:
        model = llama_cpp.Llama(str(path), n_ctx=CONTEXT_MOST, logits_all=False, verbose=False, **told)
    except (ValueError, RuntimeError, OSError) as error:
        raise UsageError(f"{path}: llama.cpp cannot load it", hint=str(error)[:300]) from error
    return LlamaModel(model, spec, version=llama_cpp.__version__)


def _quantization(told: str) -> str:
    """Name the number a file holds as llama.cpp's server does; empty where it holds none."""
    name = FILE_TYPES.get(told, f"file type {told}")
    return f"gguf {name}" if told else ""


class LlamaModel:
    """Logits of one model, one sequence at a time."""

    many = 1

    def __init__(self, model: Any, spec: KernelSpec, *, version: str) -> None:
        self._model = model
        told: Mapping[str, str] = model.metadata
        self.identity = KernelIdentity(
            spec.role,
            engine="llama.cpp",
            engine_version=f"llama-cpp-python {version}",
            quantization=_quantization(told.get("general.file_type", "")),
            extra={"kernel": told.get("general.architecture", ""), "device": "cpu"},
        )
        self.vocabulary: int = model.n_vocab()
        self.context: int | None = min(CONTEXT_MOST, model.n_ctx())
        self.stops: frozenset[int] = frozenset({model.token_eos()} - {-1})

    def encode(self, text: str, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return the token ids the file's own tokenizer makes of a text.

        Raises
        ------
        UsageError
            For a chat: its template is the training kernel's to apply.
        """
        if messages:
            raise UsageError("llama.cpp takes chats as token ids", hint="give prompts as texts")
        return np.array(self._model.tokenize(text.encode(), special=True), np.int64)

    def start(self, prompts: Ids) -> Rows:
        """Take one prompt, shape (1, m)."""
        self._model.reset()
        self._model.eval(prompts[0].tolist())
        return self._last()

    def step(self, tokens: Ids) -> Rows:
        """Take one token, shape (1,)."""
        self._model.eval(tokens.tolist())
        return self._last()

    def _last(self) -> Rows:
        """Copy the logits of the last token: the next evaluation writes over them."""
        found = self._model._ctx.get_logits_ith(-1)  # noqa: SLF001 -- the public array keeps all positions or none
        return np.ctypeslib.as_array(found, (self.vocabulary,))[None].astype(np.float32)
