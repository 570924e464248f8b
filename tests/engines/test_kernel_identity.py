"""What PyTorch and transformers tell of a training kernel, each with its place."""

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from paritas.collectors.identity import Read
from paritas.collectors.torch.identity import read_training_kernel, training_kernel


@pytest.fixture(scope="module")
def model(small_model):
    return AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.bfloat16)


def test_each_value_says_where_it_was_read(model):
    told = read_training_kernel(model, {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    assert told["engine"] == Read("torch", "type(model).__mro__")
    assert told["engine_version"] == Read(torch.__version__, "torch.__version__")
    assert told["dtype"] == Read("bfloat16", "next(model.parameters()).dtype")
    assert told["attention_backend"] == Read("sdpa", "model.config._attn_implementation")
    assert told["lm_head_dtype"] == Read("bfloat16", "model.get_output_embeddings().weight.dtype")
    assert told["deterministic"].value is False
    assert told["float32_matmul_precision"].value == "highest"
    assert told["tied_embeddings"].value is True
    assert told["rope"].value == "rope_theta=100000.0,rope_type=default"
    assert told["device"].value == "cpu"
    assert told["env.CUBLAS_WORKSPACE_CONFIG"].value == ":4096:8"
    assert told["lib.transformers"].value == transformers.__version__


def test_what_is_not_there_is_absent(model):
    told = read_training_kernel(model, {})
    for name in ("gpu", "gpu_uuid", "tp", "quantization", "compile", "fsdp", "autocast", "env.NCCL_ALGO"):
        assert name not in told


def test_what_changes_the_kernel_changes_its_digest(model, small_model):
    digest = training_kernel(model, {}).digest
    eager = AutoModelForCausalLM.from_pretrained(
        small_model, dtype=torch.bfloat16, attn_implementation="eager"
    )
    seen = {digest, training_kernel(eager, {}).digest, training_kernel(model.float(), {}).digest}
    torch.use_deterministic_algorithms(True)
    try:
        seen.add(training_kernel(eager, {}).digest)
    finally:
        torch.use_deterministic_algorithms(False)
    with torch.autocast("cpu", torch.bfloat16):
        seen.add(training_kernel(eager, {}).digest)
    assert len(seen) == 5


@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_wrappers_are_looked_through(model):
    told = read_training_kernel(torch.compile(model), {})
    assert told["compile"].value is True
    assert told["attention_backend"].value == "sdpa"


def test_sizes_of_parallelism_from_megatrons_names(model):
    class Sizes:
        tensor_model_parallel_size = 2
        pipeline_model_parallel_size = 1

    kernel = training_kernel(model, {}, parallel=Sizes())
    assert (kernel.tp, kernel.pp, kernel.ep) == (2, 1, None)


def test_any_object_has_some_answer():
    assert training_kernel(object(), {}).engine == "torch"
