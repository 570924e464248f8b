"""The small model in four bits, by GPTQ or AWQ: llm-compressor makes the checkpoint once, on the CPU.

Calibrated on what the policy itself writes to prompts that no test asks.  A program of its own, since
llm-compressor keeps a session, hooks and logs of its own in the process:

    python tests/engines/quantized_model.py gptq FOLDER
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from engines.engines_setup import CACHE, say
from engines.real_model import model_dir
from part_setup import one_at_a_time

GROUP = 32  # weights that share a scale; every layer's width is a multiple of it
PROMPTS = (
    "The capital of Norway is",
    "My grandmother's recipe for soup begins with",
    "class Stack:\n    def __init__(self):",
    "In the spring of 1969, engineers",
    "The difference between a frog and a toad is",
    "Dear Sir or Madam,\n\nI am writing",
    "Step 1: boil the pasta. Step 2:",
    "12 * 7 =",
)
TOKENS = 64  # of a calibrating response
# Responses a prompt: GPTQ inverts a matrix of all inputs; AWQ needs their mean sizes, and tries each 20 times.
ROUNDS = {"gptq": 3, "awq": 1}
SCHEMES = {"gptq": "W4A16", "awq": "W4A16_ASYM"}  # as each is mostly shipped: without and with zero points
MAKE_S = 900


def why_not_made(method):
    """Why the checkpoint is not there and cannot be made; None if it is or can."""
    if folder_of(method).exists() or importlib.util.find_spec("llmcompressor"):
        return None
    return "llm-compressor is not in this environment: run python tests/engines/engines_setup.py quantization"


def folder_of(method):
    """The folder's name holds what the checkpoint was made by: another recipe is another folder."""
    made_by = repr((GROUP, TOKENS, ROUNDS[method], SCHEMES[method], PROMPTS))
    return CACHE / f"smollm2-135m-{method}-{hashlib.sha256(made_by.encode()).hexdigest()[:12]}"


def quantized_dir(method):
    """Make the checkpoint once, under its name only when it is complete."""
    folder = folder_of(method)
    if folder.exists():
        return folder
    model = model_dir()
    with one_at_a_time(CACHE / "smollm2.lock"):
        if not folder.exists():
            say(f"quantising the small model by {method} into {folder} (0.2 GB, once, two minutes)")
            _make(method, model, folder)
    return folder


def _make(method, model, folder):
    half_made = Path(tempfile.mkdtemp(dir=CACHE, prefix=".quantised-"))
    command = [sys.executable, __file__, method, str(model), str(half_made)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    try:
        done = subprocess.run(
            command, env=env, cwd=half_made, capture_output=True, text=True, check=False, timeout=MAKE_S
        )
        assert done.returncode == 0, done.stderr[-4000:]
        half_made.chmod(0o755)
        half_made.replace(folder)
    finally:
        shutil.rmtree(half_made, ignore_errors=True)


def quantise(method, model_folder, out):
    """Write the checkpoint."""
    import torch
    from datasets import Dataset
    from llmcompressor import oneshot
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    rows = Dataset.from_list([{"input_ids": row} for row in written(model, tokenizer, ROUNDS[method])])
    oneshot(
        model=model,
        tokenizer=tokenizer,
        dataset=rows,
        recipe=recipe(method),
        max_seq_length=4 * TOKENS,
        num_calibration_samples=len(rows),
        shuffle_calibration_samples=False,
    )
    model.save_pretrained(out, save_compressed=True)
    tokenizer.save_pretrained(out)


def written(model, tokenizer, rounds):
    """Token ids of prompts with the policy's own responses."""
    import torch

    torch.manual_seed(11)
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        grown = model.generate(
            ids, do_sample=True, top_k=0, max_new_tokens=TOKENS, num_return_sequences=rounds
        )
        yield from grown.tolist()


def recipe(method):
    from compressed_tensors.quantization import preset_name_to_scheme
    from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier

    scheme = preset_name_to_scheme(SCHEMES[method], ["Linear"])
    scheme.weights.group_size = GROUP
    told = {"config_groups": {"all": scheme}, "ignore": ["lm_head"]}
    if method == "gptq":
        return [GPTQModifier(**told)]
    return [AWQModifier(), QuantizationModifier(**told)]


if __name__ == "__main__":
    quantise(*sys.argv[1:])
