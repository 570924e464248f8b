"""The exporter that SGLang would call.  SGLang cannot be installed beside our tests: objects have its shapes."""

import asyncio
from types import SimpleNamespace

from emitter_scenes import PATIENT_S, Agent, socket_path
from engine_answers import HASHER

from paritas.collectors.settings import settings_from
from paritas.collectors.sglang.plugin import Exporter, engine_of, register
from paritas.records import LogprobSemantics

SERVER = SimpleNamespace(
    dtype="bfloat16",
    kv_cache_dtype="fp8_e5m2",
    tp_size=4,
    disable_radix_cache=False,
    attention_backend="fa3",
    model_path="org/model",
    weight_version="default",
    quantization=None,
)


def request(name="r"):
    return SimpleNamespace(rid=name, sampling_params={"temperature": 1.0}, top_logprobs_num=0)


def answer(name="r"):
    told = {"id": name, "finish_reason": {"type": "stop"}, "completion_tokens": 1, "prompt_tokens": 2}
    return {"text": "x", "meta_info": {**told, "output_token_logprobs": [(-0.5, 7, None)]}}


def test_the_engine_tells_its_resolved_arguments():
    facts = engine_of(SERVER, {})
    kernel = facts.kernel
    assert (kernel.engine, kernel.dtype, kernel.kv_cache_dtype, kernel.tp) == (
        "sglang",
        "bfloat16",
        "fp8_e5m2",
        4,
    )
    assert (kernel.prefix_caching, kernel.attention_backend, kernel.extra["model"]) == (
        True,
        "fa3",
        "org/model",
    )
    assert facts.semantics is LogprobSemantics.TEMPERATURE_ONLY
    assert engine_of(SERVER, {"SGLANG_RETURN_ORIGINAL_LOGPROB": "1"}).semantics is LogprobSemantics.RAW
    assert engine_of(None, {}).kernel.dtype == ""


def test_finished_requests_reach_a_real_agent_and_faults_reach_nobody(caplog):
    with socket_path() as path, Agent(path) as agent:
        settings = settings_from({"PARITAS_AGENT": f"unix:{path}", "PARITAS_RUN_ID": "run"})
        exporter = Exporter(settings, HASHER, engine_of(SERVER, {}))
        for given in (answer("a"), {"meta_info": {}}, None, answer("b")):
            asyncio.run(exporter.write_record(request(), given))
        assert exporter.emitter.flush(timeout_s=PATIENT_S)
        exporter.close()
        assert agent.sequences() == ["a", "b"]
    assert (exporter.faults, exporter.passed_over) == (1, 1)
    assert len(caplog.records) == 1


def test_it_gives_up_on_an_engine_it_does_not_understand(caplog):
    settings = settings_from({"PARITAS_RUN_ID": "run"})
    exporter = Exporter(settings, HASHER, engine_of(None, {}))
    for _ in range(40):
        asyncio.run(exporter.write_record(request(), None))
    exporter.close()
    assert exporter.faults == 16
    assert len(caplog.records) == 1


def test_without_a_wish_nothing_happens(monkeypatch, caplog):
    for name in ("PARITAS_RUN_ID", "PARITAS_AGENT", "PARITAS_ENABLED"):
        monkeypatch.delenv(name, raising=False)
    register()
    assert not caplog.records
