"""Which kernel a configuration is.  Configurations are shaped like vLLM's; tests/engines reads a real one."""

from enum import Enum
from types import SimpleNamespace

import pytest

from paritas.collectors.vllm.kernel import engine_facts, read_config, read_worker
from paritas.records import LogprobSemantics


class Graphs(Enum):
    NONE = 0
    FULL_AND_PIECEWISE = (2, 1)


def config(mode="raw_logprobs", graphs=Graphs.FULL_AND_PIECEWISE):
    """As vLLM 0.32 has it, some fields."""
    return SimpleNamespace(
        model_config=SimpleNamespace(
            dtype="torch.bfloat16", quantization=None, model="m", logprobs_mode=mode, enforce_eager=False
        ),
        cache_config=SimpleNamespace(cache_dtype="auto", enable_prefix_caching=True),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=2,
            pipeline_parallel_size=1,
            data_parallel_size=2,
            enable_expert_parallel=True,
        ),
        scheduler_config=SimpleNamespace(chunked_prefill_enabled=True, max_num_seqs=256),
        compilation_config=SimpleNamespace(cudagraph_mode=graphs),
        speculative_config=SimpleNamespace(method="ngram", num_speculative_tokens=3),
        attention_config=SimpleNamespace(backend=None),
    )


def test_everything_that_is_told_is_read():
    kernel = engine_facts(config(), {"VLLM_BATCH_INVARIANT": "1"}).kernel
    assert (kernel.engine, kernel.dtype, kernel.kv_cache_dtype) == ("vllm", "bfloat16", "auto")
    assert (kernel.tp, kernel.pp, kernel.ep) == (2, 1, 4)
    assert (kernel.batch_invariant, kernel.cuda_graphs, kernel.prefix_caching, kernel.chunked_prefill) == (
        True,
        True,
        True,
        True,
    )
    assert (kernel.speculative, kernel.extra["speculative_tokens"]) == ("ngram", "3")
    assert (kernel.extra["model"], kernel.extra["max_num_seqs"], kernel.extra["dp"]) == ("m", "256", "2")
    assert kernel.extra["cudagraph_mode"] == "FULL_AND_PIECEWISE"
    assert kernel.attention_backend == ""


def test_a_worker_has_resolved_what_is_automatic():
    kernel = engine_facts(config(), {}, worker={"attention_backend": "FLASH_ATTN", "gpu": ""}).kernel
    assert (kernel.attention_backend, kernel.gpu) == ("FLASH_ATTN", "")


def test_what_is_not_there_is_not_told():
    kernel = engine_facts(SimpleNamespace(), {}).kernel
    assert kernel.fields().keys() <= {
        "role",
        "engine",
        "engine_version",
        "batch_invariant",
        *{f"extra.lib.{name}" for name in ("torch", "triton")},
    }
    assert engine_facts(SimpleNamespace(), {}).semantics is LogprobSemantics.UNKNOWN


@pytest.mark.parametrize(
    ("mode", "semantics", "are_logits"),
    [
        ("raw_logprobs", LogprobSemantics.RAW, False),
        ("processed_logprobs", LogprobSemantics.PROCESSED, False),
        ("raw_logits", LogprobSemantics.UNKNOWN, True),
        ("processed_logits", LogprobSemantics.UNKNOWN, True),
        ("of_tomorrow", LogprobSemantics.UNKNOWN, False),
    ],
)
def test_semantics_are_those_of_the_mode(mode, semantics, are_logits):
    facts = engine_facts(config(mode), {})
    assert (facts.semantics, facts.are_logits) == (semantics, are_logits)


def test_eager_has_no_graphs():
    assert read_config(config(graphs=Graphs.NONE), {})["cuda_graphs"].value is False


def test_values_say_where_they_are_from():
    reads = read_config(config(), {"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    assert reads["attention_backend"].source == "environ"
    assert reads["chunked_prefill"].source == "VllmConfig.scheduler_config.chunked_prefill_enabled"


class Backend:
    @staticmethod
    def get_name():
        return "CPU_ATTN"


def test_a_worker_tells_its_attention():
    layers = {"a": SimpleNamespace(get_attn_backend=lambda: Backend), "b": SimpleNamespace()}
    compilation = SimpleNamespace(static_forward_context=layers)
    worker = SimpleNamespace(vllm_config=SimpleNamespace(compilation_config=compilation))
    assert read_worker(worker)["attention_backend"] == "CPU_ATTN"
