"""The names that go over the wire; `attributes.yaml` says unit, type and meaning of each.

Attributes are ours and start with ``paritas.``; where the OpenTelemetry GenAI conventions have
a name (``gen_ai.request.temperature`` …) that one is used and nothing of ours is put beside it.
"""

from paritas.records import GpuReading, KernelIdentity, TokenStatus

__all__ = [
    "AGENT_PREFIX",
    "ATTRIBUTES",
    "ATTRIBUTE_PREFIX",
    "GAP_FIRST_SEQ",
    "GAP_LAST_SEQ",
    "GAP_REASON",
    "GAP_SPAN",
    "GAP_STREAM",
    "GPU_FIELDS",
    "GPU_SPAN",
    "GROUP_ID",
    "HEADER_AGENT",
    "HEADER_EPOCH",
    "HEADER_SCHEMA",
    "HEADER_SEQ",
    "HEALTH_NOTE",
    "HEALTH_SPAN",
    "INSTANCE_ID",
    "KERNEL_DIGEST",
    "KERNEL_EXTRA_PREFIX",
    "KERNEL_FIELDS",
    "LOGPROB_MEAN_NATS",
    "LOGPROB_MIN_NATS",
    "LOGPROB_SEMANTICS",
    "ROLE",
    "RUN_ID",
    "SAMPLING",
    "SCHEMA",
    "SCOPE_NAME",
    "SEGMENT_FINAL",
    "SEGMENT_START",
    "SEQUENCE_ID",
    "SPAN_NAME",
    "STATUS_COUNTS",
    "STEP_FIELDS",
    "STEP_SPAN",
    "TIMINGS",
    "TOKENS",
    "TOTAL_COUNT",
    "WEIGHTS_DIGEST",
    "WEIGHTS_VERSION",
]

SCHEMA = 1  # version of TokenBlock and of these attributes; readers refuse one they do not know
SPAN_NAME = "kernel.score"
SCOPE_NAME = "paritas"

RUN_ID = "paritas.run.id"
SEQUENCE_ID = "paritas.sequence.id"
GROUP_ID = "paritas.group.id"
ROLE = "paritas.role"
WEIGHTS_VERSION = "paritas.weights.version"
WEIGHTS_DIGEST = "paritas.weights.digest"
SEGMENT_START = "paritas.segment.start"
SEGMENT_FINAL = "paritas.segment.final"
TOKENS = "paritas.tokens"
TOTAL_COUNT = "paritas.token_count.total"
LOGPROB_MEAN_NATS = "paritas.logprob.mean_nats"
LOGPROB_MIN_NATS = "paritas.logprob.min_nats"
LOGPROB_SEMANTICS = "paritas.logprob.semantics"
KERNEL_DIGEST = "paritas.kernel.digest"
KERNEL_EXTRA_PREFIX = "paritas.kernel.extra."
ATTRIBUTE_PREFIX = "paritas.attribute."

STATUS_COUNTS = {status: f"paritas.token_count.{status.name.lower()}" for status in TokenStatus}

GAP_SPAN = "paritas.agent.gap"  # an agent says that records are lost
GAP_STREAM = "paritas.gap.stream"
GAP_FIRST_SEQ = "paritas.gap.first_seq"
GAP_LAST_SEQ = "paritas.gap.last_seq"
GAP_REASON = "paritas.gap.reason"
HEALTH_SPAN = "paritas.agent.health"  # an agent says how it is
AGENT_PREFIX = "paritas.agent."
HEALTH_NOTE = "paritas.agent.health"
INSTANCE_ID = "service.instance.id"  # the agent's name, on the resource of both

ROSTER_SPAN = "paritas.roster"  # who is expected to report
ROSTER_EPOCH = "paritas.roster.epoch"
ROSTER_NUMBER = "paritas.roster.number"
ROSTER_LEFT_OUT = "paritas.roster.left_out"
ROSTER_AGENTS = "paritas.roster.agents"

STEP_SPAN = "paritas.step"  # how long a training step took
STEP_FIELDS = {
    "weights_version": WEIGHTS_VERSION,
    "host_s": "paritas.step.host_s",
    "device_s": "paritas.step.device_s",
}
GPU_SPAN = "paritas.gpu"  # what a GPU told at one moment
GPU_FIELDS = {field: f"paritas.gpu.{field}" for field in GpuReading.__slots__}

KERNEL_FIELDS = {
    field: f"paritas.kernel.{field}" for field in KernelIdentity.__slots__ if field not in ("role", "extra")
}

SAMPLING = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "min_p": "paritas.sampling.min_p",
    "processors": "paritas.sampling.processors",
}

TIMINGS = {
    "queue_s": "paritas.timing.queue_s",
    "ttft_s": "paritas.timing.ttft_s",
    "prefill_s": "paritas.timing.prefill_s",
    "decode_s": "paritas.timing.decode_s",
}

HEADER_AGENT = "paritas-agent"
HEADER_EPOCH = "paritas-epoch"
HEADER_SEQ = "paritas-seq"
HEADER_SCHEMA = "paritas-schema"

ATTRIBUTES = frozenset(
    {
        *(RUN_ID, SEQUENCE_ID, GROUP_ID, ROLE, WEIGHTS_VERSION, WEIGHTS_DIGEST),
        *(SEGMENT_START, SEGMENT_FINAL, TOKENS, TOTAL_COUNT, KERNEL_DIGEST),
        *(LOGPROB_MEAN_NATS, LOGPROB_MIN_NATS, LOGPROB_SEMANTICS),
        *STATUS_COUNTS.values(),
        *KERNEL_FIELDS.values(),
        *SAMPLING.values(),
        *TIMINGS.values(),
    }
)
