"""Steps and GPUs: there and back, known to a reader, and refused with words when they cannot be written."""

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from wire_strategies import LABELS, TEXT, plain_trace

from paritas.detectors.decode import Decoder
from paritas.errors import RecordError
from paritas.records import GpuReading, GpuSample, StepTime
from paritas.wire import encode, encode_reading, names
from paritas.wire.decode import decode
from paritas.wire.reasons import DecodeProblem

NUMBER = st.floats(allow_nan=False)
WHOLE = st.none() | st.integers(-(2**63), 2**63 - 1)
FLAG = st.none() | st.booleans()
TIMES = st.integers(0, 2**62)
STEPS = st.builds(
    StepTime, TEXT, TIMES, NUMBER, device_s=st.none() | NUMBER, weights_version=TEXT, attributes=LABELS
)
GPUS = st.builds(
    GpuReading,
    **dict.fromkeys(("uuid", "name", "driver", "compute_capability"), TEXT),
    **dict.fromkeys(("mig", "ecc"), FLAG),
    **dict.fromkeys(("power_w", "utilization"), st.none() | NUMBER),
    **dict.fromkeys(
        ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "memory_used_bytes", "memory_total_bytes"),
        WHOLE,
    ),
    **dict.fromkeys(("throttled", "ecc_uncorrected"), WHOLE),
)
SAMPLES = st.builds(GpuSample, TEXT, TIMES, GPUS.filter(lambda gpu: gpu.uuid), attributes=LABELS)
GPU = GpuReading(
    "GPU-1", "H100", "570.1", "9.0", mig=False, ecc=True, sm_clock_mhz=1980, memory_clock_mhz=2619,
    temperature_c=41, power_w=123.5, memory_used_bytes=5, memory_total_bytes=80, utilization=0.5, throttled=4,
    ecc_uncorrected=0,
)  # fmt: skip
STEP = StepTime("run", 10**18, 0.25, 0.2, "7", {"replica": "r0"})


@given(STEPS.filter(lambda step: step.run_id) | SAMPLES.filter(lambda sample: sample.run_id))
@settings(deadline=None, max_examples=150)
def test_a_reading_survives(reading):
    told = decode(encode_reading(reading, resource={"service.name": "trainer"}).value)
    assert (*told.steps, *told.gpus) == (reading,)
    assert (told.traces, told.foreign_spans, told.problems, told.gaps, told.health) == ((), 0, {}, (), ())


def test_every_field_of_a_card_is_on_the_wire():
    assert set(names.GPU_FIELDS) == {field.name for field in fields(GpuReading)}
    told = decode(encode_reading(GpuSample("run", 5, GPU), resource={}).value)
    assert told.gpus == (GpuSample("run", 5, GPU),)


def span_of(reading, resource=None):
    record = encode_reading(reading, resource=resource or {})
    request = ExportTraceServiceRequest.FromString(record.value)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    assert record.key.decode() == span.trace_id.hex()
    return span


def test_ranks_of_a_step_share_a_trace_and_each_has_a_span():
    ranks = [span_of(STEP, {"service.instance.id": f"host:{rank}"}) for rank in range(2)]
    later = span_of(replace(STEP, weights_version="8"))
    assert len({span.trace_id for span in ranks}) == 1
    assert later.trace_id != ranks[0].trace_id
    assert len({span.span_id for span in (*ranks, later)}) == 3
    assert ranks[0].span_id == span_of(STEP, {"service.instance.id": "host:0"}).span_id


def test_steps_without_a_version_share_nothing():
    bare = replace(STEP, weights_version="")
    assert span_of(bare).trace_id != span_of(replace(bare, event_ns=bare.event_ns + 1)).trace_id


def test_a_card_has_a_trace_an_hour():
    hour = 3600 * 10**9
    spans = [span_of(GpuSample("run", at, GPU)) for at in (hour, 2 * hour - 1, 2 * hour)]
    assert spans[0].trace_id == spans[1].trace_id != spans[2].trace_id


@pytest.mark.parametrize(("host_s", "length_ns"), [(0.25, 250_000_000), (float("nan"), 1000), (-1.0, 1000)])
def test_a_span_is_as_long_as_the_host_waited(host_s, length_ns):
    span = span_of(replace(STEP, host_s=host_s))
    assert span.end_time_unix_nano - span.start_time_unix_nano == length_ns


def test_a_detector_knows_them_and_passes_over_them():
    decoder = Decoder()
    values = [encode_reading(one, resource={}).value for one in (STEP, GpuSample("run", 5, GPU))]
    [trace] = encode([plain_trace()], resource={})
    assert len(list(decoder.process([*values, trace.value]))) == 1
    assert (decoder.received, decoder.foreign_spans, dict(decoder.refused)) == (3, 0, {})


def changed(reading, name, value):
    """The request of a reading with an attribute changed, or left out where the value is None."""
    request = ExportTraceServiceRequest.FromString(encode_reading(reading, resource={}).value)
    attributes = request.resource_spans[0].scope_spans[0].spans[0].attributes
    kept = next(one for one in attributes if one.key == name)
    attributes.remove(kept)
    if value is not None:
        attributes.add(key=name).value.string_value = value
    return request


@pytest.mark.parametrize(
    ("reading", "name", "value", "problem"),
    [
        (STEP, "paritas.run.id", None, DecodeProblem.MISSING_ATTRIBUTE),
        (STEP, "paritas.step.host_s", None, DecodeProblem.MISSING_ATTRIBUTE),
        (STEP, "paritas.step.host_s", "long", DecodeProblem.BAD_ATTRIBUTE),
        (STEP, "paritas.step.device_s", "long", DecodeProblem.BAD_ATTRIBUTE),
        (GpuSample("run", 5, GPU), "paritas.gpu.uuid", None, DecodeProblem.MISSING_ATTRIBUTE),
        (GpuSample("run", 5, GPU), "paritas.gpu.power_w", "much", DecodeProblem.BAD_ATTRIBUTE),
        (GpuSample("run", 5, GPU), "paritas.run.id", None, DecodeProblem.MISSING_ATTRIBUTE),
    ],
    ids=str,
)
def test_what_is_broken_is_counted_by_reason(reading, name, value, problem):
    told = decode(changed(reading, name, value).SerializeToString())
    assert (told.steps, told.gpus, told.foreign_spans, told.problems) == ((), (), 0, {problem: 1})


def test_a_span_of_another_program_with_the_same_name_is_foreign():
    request = ExportTraceServiceRequest.FromString(encode_reading(STEP, resource={}).value)
    request.resource_spans[0].scope_spans[0].scope.name = "someone"
    told = decode(request.SerializeToString())
    assert (told.steps, told.foreign_spans) == ((), 1)


def refused(reading):
    with pytest.raises(RecordError) as caught:
        encode_reading(reading, resource={})
    return caught.value.reason, caught.value.render()


def test_what_otlp_cannot_hold_is_refused_with_words():
    reason, words = refused(replace(STEP, attributes={"a": "\ud800"}))
    assert reason == "unencodable"
    assert words.startswith("[record] a StepTime cannot be written as OTLP: ")
    assert words.endswith("\n  hint: text must be valid Unicode, integers must fit 64 bits")


def test_attributes_that_alone_fill_a_record_are_refused():
    assert refused(GpuSample("run", 5, GPU, {"a": "x" * 600_000})) == (
        "too_large",
        "[record] a GpuSample exceeds the record limit\n  hint: shorten the attributes",
    )
