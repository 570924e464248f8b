"""What an engine tells, under the names of every version; one text is recorded from a real vLLM 0.32."""

import contextlib
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.collectors.scrape import Histogram, engine_metrics
from paritas.errors import UsageError

RECORDED = Path(__file__).parent / "metrics/vllm-0.32.prom"


def test_a_real_vllm():
    told = engine_metrics(RECORDED.read_text())
    assert (told.engine, told.model) == ("vllm", "smol")
    assert (told.running, told.waiting, told.finished, told.preemptions) == (0, 0, 5, 0)
    assert (told.prompt_tokens, told.generation_tokens) == (85, 53)
    assert (told.prefix_queries, told.prefix_hits, told.prefix_hit_rate) == (80, 0, 0)
    assert told.kv_usage == 0
    assert (told.ttft.count, told.itl.count, told.queue.count) == (5, 48, 5)
    assert told.ttft.mean_s == pytest.approx(0.39655, abs=1e-4)
    assert told.ttft.quantile_s(0.5) == pytest.approx(0.045)
    assert (told.swapped, told.draft_tokens, told.acceptance_rate) == (None, None, None)
    assert told.names["itl"] == "vllm:inter_token_latency_seconds"
    assert told.names["finished"] == "vllm:request_success_total"


def line(name, value, **labels):
    inside = ",".join(f'{key}="{one}"' for key, one in labels.items())
    return f"{name}{{{inside}}} {value}\n"


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("vllm:gpu_cache_usage_perc", "kv_usage"),
        ("vllm:kv_cache_usage_perc", "kv_usage"),
        ("sglang:token_usage", "kv_usage"),
        ("sglang_token_usage", "kv_usage"),
        ("vllm:gpu_prefix_cache_hit_rate", "prefix_hit_rate"),
        ("sglang:cache_hit_rate", "prefix_hit_rate"),
        ("vllm:spec_decode_draft_acceptance_rate", "acceptance_rate"),
        ("sglang:spec_accept_length", "acceptance_length"),
        ("sglang:num_running_reqs", "running"),
        ("sglang:num_queue_reqs", "waiting"),
        ("vllm:num_requests_swapped", "swapped"),
        ("vllm:corrupted_requests_total", "corrupted"),
    ],
)
def test_old_names_and_new(name, field):
    told = engine_metrics(line(name, 0.25, model_name="m"))
    assert getattr(told, field) == 0.25
    assert told.engine == ("vllm" if name.startswith("vllm") else "sglang")
    assert told.names == {field: name.replace("sglang_", "sglang:")}


def test_of_two_names_the_newer_counts():
    text = line("vllm:gpu_cache_usage_perc", 0.1) + line("vllm:kv_cache_usage_perc", 0.2)
    assert engine_metrics(text).kv_usage == 0.2


def test_several_engines_behind_one_address():
    text = "".join(
        line("vllm:num_requests_running", n, engine=n, model_name=f"m{n}")
        + line("vllm:kv_cache_usage_perc", n / 10, engine=n)
        + line("vllm:time_to_first_token_seconds_bucket", n, engine=n, le="1.0")
        + line("vllm:time_to_first_token_seconds_bucket", 2 * n, engine=n, le="+Inf")
        + line("vllm:time_to_first_token_seconds_sum", n, engine=n)
        for n in (1, 2)
    )
    told = engine_metrics(text)
    assert (told.model, told.running, told.kv_usage) == ("", 3, 0.2)
    assert told.ttft == Histogram((1.0, math.inf), (3.0, 6.0), 3.0)


def test_speculation_from_counters():
    text = line("vllm:spec_decode_num_draft_tokens_total", 40) + line(
        "vllm:spec_decode_num_accepted_tokens_total", 30
    )
    assert engine_metrics(text).acceptance_rate == 0.75


@pytest.mark.parametrize("text", ["", "# only a comment\n", line("http_requests_total", 3)])
def test_no_engine_is_no_error(text):
    told = engine_metrics(text)
    assert (told.engine, told.running, told.ttft, dict(told.names)) == ("", None, None, {})


BUCKET = line("vllm:time_to_first_token_seconds_bucket", 3, le="soon")


@pytest.mark.parametrize("text", ["<html>no</html>", "vllm:num_requests_running{ 1", "a b c d\n", BUCKET])
def test_another_text_is_one_clear_error(text):
    with pytest.raises(UsageError, match=r"^this is no text of Prometheus metrics: ") as error:
        engine_metrics(text)
    assert error.value.hint == "an engine tells them at /metrics"


def test_an_empty_histogram_has_no_quantiles():
    empty = Histogram((1.0, math.inf), (0.0, 0.0), 0.0)
    assert math.isnan(empty.quantile_s(0.5))
    assert math.isnan(empty.mean_s)


@settings(deadline=None, max_examples=80)
@given(
    rows=st.lists(st.tuples(st.floats(0.001, 100.0), st.integers(0, 50)), min_size=1, max_size=12),
    q=st.floats(0.01, 1.0),
)
def test_a_quantile_lies_in_its_bucket_and_grows(rows, q):
    bounds = sorted({bound for bound, _ in rows})
    counts, total = [], 0
    for number, _ in enumerate(bounds):
        total += rows[number][1]
        counts.append(float(total))
    told = Histogram((*bounds, math.inf), (*counts, float(total)), 1.0)
    if total:
        found = told.quantile_s(q)
        assert 0.0 <= found <= bounds[-1]
        assert found <= told.quantile_s(1.0) + 1e-12
        at = next(n for n, count in enumerate(counts) if count >= q * total)
        assert found <= bounds[at] + 1e-9


@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(UsageError):
        engine_metrics(text)
