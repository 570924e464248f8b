"""A checkpoint folder in this process, by PyTorch and transformers."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from paritas.collectors.identity import kernel_of
from paritas.collectors.kernels.hf_variants import in_float8, quantized
from paritas.collectors.kernels.kernel import Ids, Rows
from paritas.collectors.kernels.spec import KernelSpec
from paritas.collectors.torch.backend import pytorch
from paritas.collectors.torch.identity import read_training_kernel
from paritas.errors import UsageError
from paritas.records import KernelIdentity

__all__ = ["HfModel", "open_model"]

MANY = 16
# What loading a checkpoint raises where the folder or the machine is at fault; a build without CUDA asserts.
LOADING = (
    ImportError,
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    AssertionError,
)
CHUNK = 64  # response positions whose whole laws are compared at once
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt")


def open_model(spec: KernelSpec) -> "HfModel":
    """Load the model of a folder.

    Raises
    ------
    UsageError
        No such folder, no model in it, or it cannot be loaded as asked.
    """
    folder = Path(spec.target)
    if not folder.is_dir():
        raise UsageError(
            f"{folder}: no such folder", hint=f"{spec.flag} hf:DIR takes a folder on this machine"
        )
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{folder}: holds no model", hint="config.json is missing: is it what save_pretrained wrote?"
        )
    return HfModel(folder, _loaded(folder, spec), spec)


def _loaded(folder: Path, spec: KernelSpec) -> Any:
    """Return the model in evaluation mode, quantised and moved as asked; quiet on the terminal."""
    torch, transformers = pytorch(), import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    told: dict[str, Any] = {"dtype": getattr(torch, spec.options["dtype"])} if "dtype" in spec.options else {}
    if "attention" in spec.options:
        told["attn_implementation"] = spec.options["attention"]
    device = spec.options.get("device", "cuda" if torch.cuda.is_available() else "cpu")
    try:
        with redirect_stderr(StringIO()):  # loading a quantised checkpoint shows progress bars of its own
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, **told)
            moved = model.eval().requires_grad_(requires_grad=False).to(device)
            _unpack(moved)
    except LOADING as error:
        raise UsageError(f"{spec.flag} {folder}: cannot be loaded as asked", hint=_reason(error)) from error
    return quantized(moved, spec) if "quantization" in spec.options else moved


def _unpack(model: Any) -> None:
    """Let a quantised checkpoint turn its packed weights into numbers now: some do so in the first pass."""
    if getattr(model.config, "quantization_config", None) is not None:
        torch = pytorch()
        with torch.inference_mode():
            model(input_ids=torch.zeros((1, 1), dtype=torch.int64, device=model.device))


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


class HfModel:
    """Logits of one model; sequences of a batch have one length, so that no padding is a third kernel.

    Parameters
    ----------
    folder : Path
        Where the tokenizer is looked for when a text comes.
    model : transformers.PreTrainedModel
    """

    many = MANY

    def __init__(self, folder: Path, model: Any, spec: KernelSpec) -> None:
        self._folder, self._model, self._spec = folder, model, spec
        self._cache: Any = None
        self._tokenizer: Any = None
        self.identity: KernelIdentity = _identity(model, spec)
        self.vocabulary: int = int(model.get_output_embeddings().weight.shape[0])
        self.context: int | None = getattr(model.config, "max_position_embeddings", None)
        self.stops: frozenset[int] = _stops(model)

    def encode(self, text: str, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return token ids, special tokens as the tokenizer or its chat template puts them."""
        tokenizer = self._tokenizer = self._tokenizer or _tokenizer(self._folder)
        if not messages:
            return np.array(tokenizer(text)["input_ids"], np.int64)
        if not tokenizer.chat_template:
            hint = "give prompts as texts, or save the template beside the tokenizer"
            raise UsageError(f"{self._folder}: its tokenizer has no chat template", hint=hint)
        told = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
        return np.array(tokenizer(told, add_special_tokens=False)["input_ids"], np.int64)

    def start(self, prompts: Ids) -> Rows:
        """Take prompts of one length, shape (b, m), into a fresh key-value cache."""
        self._cache = self._new_cache()
        return self._next(prompts)

    def step(self, tokens: Ids) -> Rows:
        """Take one token each, shape (b,)."""
        return self._next(tokens[:, None])

    def _new_cache(self) -> Any:
        cache = import_module("transformers").DynamicCache(config=self._model.config)
        return in_float8(cache) if "kv_cache" in self._spec.options else cache

    def _next(self, ids: Ids) -> Rows:
        told = self._forward(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        return _rows(told[:, -1])

    def response(self, prompt: Ids, tokens: Ids) -> Iterator[Rows]:
        """Yield logits at the response positions: one forward pass over the whole sequence, as in training.

        The pass gives logits of the response alone, in the model's dtype; they are turned into
        float32 a chunk at a time.
        """
        ids = np.concatenate([prompt, tokens])[None]
        told = self._forward(ids, use_cache=False, logits_to_keep=len(tokens) + 1)[0, :-1]
        for start in range(0, len(tokens), CHUNK):
            yield _rows(told[start : start + CHUNK])

    def responses(self, prompts: Sequence[Ids], tokens: Sequence[Ids]) -> list[Rows]:
        """Return the logits at the response positions of several sequences: one micro-batch of a trainer.

        Shorter sequences are padded on the right: under a causal mask no token looks there.
        """
        whole = [np.concatenate(pair) for pair in zip(prompts, tokens, strict=True)]
        longest = max(ids.size for ids in whole)
        kept = longest - min(prompt.size for prompt in prompts) + 1
        padded = np.stack([np.pad(ids, (0, longest - ids.size)) for ids in whole])
        told = self._forward(padded, use_cache=False, logits_to_keep=kept)
        ends = ((p.size - 1, p.size - 1 + t.size) for p, t in zip(prompts, tokens, strict=True))
        shift = longest - kept
        return [
            _rows(row[start - shift : stop - shift]) for row, (start, stop) in zip(told, ends, strict=True)
        ]

    def _forward(self, ids: Ids, **named: Any) -> Any:
        """Return the logits of one pass; what a device cannot do or hold is a person's to mend."""
        torch = pytorch()
        tensor = torch.from_numpy(np.ascontiguousarray(ids)).to(self._model.device)
        try:
            with torch.inference_mode():
                return self._model(input_ids=tensor, **named).logits
        except (RuntimeError, NotImplementedError, MemoryError) as error:
            raise UsageError(f"{self._folder}: the model failed here", hint=_reason(error)) from error


def _rows(logits: Any) -> Rows:
    rows: Rows = logits.float().cpu().numpy()
    return rows


def _tokenizer(folder: Path) -> Any:
    if not any((folder / name).is_file() for name in TOKENIZERS):
        hint = "save it beside the model, or give prompt_token_ids instead of texts"
        raise UsageError(f"{folder}: holds no tokenizer", hint=hint)
    try:
        return import_module("transformers").AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (ImportError, OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder}: its tokenizer cannot be loaded", hint=_reason(error)) from error


def _stops(model: Any) -> frozenset[int]:
    """Tokens that end a response, by the generation settings saved with the model, else by its own."""
    for settings in (getattr(model, "generation_config", None), model.config):
        told = getattr(settings, "eos_token_id", None)
        if told is not None:
            return frozenset(told if isinstance(told, list) else [told])
    return frozenset()


def _identity(model: Any, spec: KernelSpec) -> KernelIdentity:
    read = kernel_of(spec.role, read_training_kernel(model, os.environ))
    named = replace(read, engine="transformers") if spec.role.value == "inference" else read
    quantization = spec.options.get("quantization", read.quantization)
    return replace(named, quantization=quantization, kv_cache_dtype=spec.options.get("kv_cache", ""))
