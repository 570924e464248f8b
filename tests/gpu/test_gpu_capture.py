"""The capture on CUDA: equal to float64, never waiting, right under reuse of memory, refused in a graph."""

from types import SimpleNamespace

import pytest
import torch
from row_cases import assert_scores, rows

from paritas.clock import SystemClock
from paritas.collectors.torch import CaptureDrop, CaptureLimits, Names, Stamp, TorchCollector, score_rows
from paritas.collectors.torch.rows import _score_in_pieces
from paritas.collectors.torch.weights import weights_digest
from paritas.records import StepTime
from paritas.tokens import TokenHasher

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


class Kept:
    """Stands in for the emitter: keeps traces.  The emitter itself needs no GPU and is tested without."""

    exit_s = 0.1

    def __init__(self):
        self.traces, self.steps = [], []

    def emit_many(self, traces):
        for one in traces:
            (self.steps if isinstance(one, StepTime) else self.traces).append(one)

    def flush(self, *, timeout_s):
        return True

    def close(self, *, timeout_s):
        """Nothing to close."""


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def collector(kept):
    hasher = TokenHasher(b"0123456789abcdef")
    with TorchCollector(kept, clock=SystemClock(), hasher=hasher, stamp=Stamp("run")) as made:
        yield made


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernel_agrees_with_float64(dtype, temperature):
    logits, tokens = rows(dtype, "cuda")
    scores = score_rows(logits, tokens, temperature=temperature, with_rank=True)
    assert_scores(scores, logits, tokens, temperature)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pieces_without_triton_agree_too(dtype):
    logits, tokens = rows(dtype, "cuda")
    scores = _score_in_pieces(logits, tokens, temperature=1.0, with_rank=True)
    assert_scores(scores, logits, tokens, 1.0)


def test_a_vocabulary_of_real_size():
    logits = torch.randn(4, 64, 151_936, device="cuda", dtype=torch.bfloat16) * 4
    tokens = torch.randint(0, 151_936, (4, 64), device="cuda")
    assert_scores(score_rows(logits, tokens, with_rank=True), logits, tokens, 1.0)


def test_observing_never_waits_for_the_device(collector, kept):
    logits, tokens = torch.randn(8, 128, 32_000, device="cuda"), torch.randint(0, 32_000, (8, 128))
    tokens = tokens.cuda()
    names = Names([str(row) for row in range(8)])
    collector.step().observe(tokens, logits=logits, names=names)  # compiles the kernel, allocates
    collector.flush()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")  # whatever waits raises, and would be counted as a fault
    try:
        with collector.step() as step:
            step.observe(tokens, logits=logits, names=names)
            step.observe(tokens, logprobs=logits[..., 0], mask=tokens >= 0, names=names)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    collector.flush()
    assert collector.read().dropped == {}
    assert len(kept.traces) == 24
    (step,) = kept.steps
    assert step.device_s == collector.read().step_s > 0
    assert step.host_s > 0


def test_ranks_come_with_the_log_probabilities(collector, kept):
    logits, tokens = torch.randn(2, 16, 5000, device="cuda"), torch.randint(0, 5000, (2, 16), device="cuda")
    collector.step().observe(tokens, logits=logits, names=Names(["a", "b"]))
    collector.flush()
    exact = (logits >= logits.gather(-1, tokens[..., None])).sum(-1).cpu()
    assert [trace.rank.tolist() for trace in kept.traces] == exact.tolist()


def test_a_digest_is_taken_without_waiting_and_is_that_of_the_host(collector, kept):
    """One layer by hand, in the names of a checkpoint: transformers need not be here."""
    model = decoder().cuda()
    tokens, logprobs = torch.zeros(1, 2, dtype=torch.long, device="cuda"), torch.zeros(1, 2, device="cuda")
    collector.step(weights_version="0", model=model).observe(tokens, logprobs=logprobs, names=Names(["a"]))
    collector.flush()
    torch.cuda.synchronize()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with collector.step(weights_version="1", model=model) as step:
            step.observe(tokens, logprobs=logprobs, names=Names(["b"]))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    collector.flush()
    digests = [trace.weights_digest for trace in kept.traces]
    assert digests[1] == weights_digest(model.cpu()).text != ""
    assert digests[0] not in ("", digests[1])


def decoder():
    torch.manual_seed(0)
    attention = {f"{part}_proj": torch.nn.Linear(64, 64, bias=False) for part in "qkvo"}
    mlp = {f"{part}_proj": torch.nn.Linear(64, 64, bias=False) for part in ("gate", "up", "down")}
    layer = torch.nn.ModuleDict(
        {"self_attn": torch.nn.ModuleDict(attention), "mlp": torch.nn.ModuleDict(mlp)}
    )
    made = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([layer])})
    made.config = SimpleNamespace(num_hidden_layers=1)
    return made


def test_the_step_may_write_to_its_tensors_at_once(collector, kept):
    tokens = torch.randint(0, 1000, (4, 256), device="cuda")
    for version in range(50):
        logits = torch.full((4, 256, 1000), -50.0, device="cuda")
        logits.scatter_(-1, tokens[..., None], float(version))
        shown = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
        expected = shown[0, 0].item()
        mask = torch.ones_like(tokens)
        collector.step(weights_version=str(version)).observe(
            tokens, logprobs=shown, mask=mask, names=Names(list("abcd"))
        )
        shown.fill_(-1.0)
        mask.zero_()
        del shown, logits
        torch.full((4, 256, 1000), 7.0, device="cuda")  # likely the memory that was just freed
        collector.flush()
        assert kept.traces[-1].weights_version == str(version)
        assert kept.traces[-1].logprob[0] == pytest.approx(expected, abs=1e-5)
        assert len(kept.traces[-1]) == 256


def test_tokens_on_the_host_and_logits_on_the_device(collector, kept):
    logits, tokens = torch.randn(2, 5, 100, device="cuda"), torch.randint(0, 100, (2, 5))
    collector.step().observe(tokens, logits=logits, names=Names(["a", "b"]))
    collector.flush()
    exact = torch.log_softmax(logits.double(), -1).gather(-1, tokens.cuda()[..., None])[..., 0].cpu()
    assert kept.traces[1].logprob == pytest.approx(exact[1].numpy(), abs=1e-5)


def test_more_than_may_be_under_way_is_dropped_and_counted(kept):
    limits = CaptureLimits(pending_bytes=20 * 1024)
    hasher = TokenHasher(b"0123456789abcdef")
    with TorchCollector(kept, clock=SystemClock(), hasher=hasher, stamp=Stamp("r"), limits=limits) as made:
        tokens = torch.zeros(1, 1024, dtype=torch.long, device="cuda")
        torch.cuda._sleep(2_000_000_000)  # about a second in which nothing arrives
        for _ in range(5):
            made.step().observe(tokens, logprobs=torch.zeros(1, 1024, device="cuda"))
        told = made.read()
        assert told.dropped[CaptureDrop.PENDING_BYTES] == 4
        assert told.pending == 1
        made.flush()
        assert made.read().emitted == 1


def test_a_graph_that_is_captured_is_left_alone(collector):
    logits, tokens = torch.randn(1, 4, 100, device="cuda"), torch.zeros(1, 4, dtype=torch.long, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = logits * 2
        collector.step().observe(tokens, logits=doubled)
    graph.replay()
    torch.cuda.synchronize()
    assert collector.read().dropped == {CaptureDrop.GRAPH_CAPTURE: 1}
    assert torch.equal(doubled, logits * 2)
