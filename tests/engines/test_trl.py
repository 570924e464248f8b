"""A real GRPO training, watched with one line: both kernels' traces arrive, pair and agree."""

import numpy as np
import pytest
import torch
from engines.capture_scenes import HASHER

from paritas.collectors.telling import teller
from paritas.collectors.trl import attach
from paritas.errors import UsageError
from paritas.records import KernelIdentity, LogprobSemantics, Role

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

TOKENS = 6
PROMPTS = ["The capital of France is", "Two and two make", "Water is made of", "The sun is a"]


@pytest.fixture(scope="module")
def parts(small_model):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(small_model, padding_side="left")
    # The first four layers of the real model: what is tested are the two ways of computing, not what it says.
    told = {"dtype": torch.float32, "num_hidden_layers": 4}
    return lambda: AutoModelForCausalLM.from_pretrained(small_model, **told), tokenizer


def trainer_of(parts, folder, **more):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "num_generations": 2,
        "max_completion_length": TOKENS,
        "learning_rate": 1e-4,
        "temperature": 0.8,
        "logging_steps": 1,
        "disable_tqdm": True,
        **more.pop("config", {}),
    }
    return GRPOTrainer(
        model=parts[0](),
        reward_funcs=lambda completions, **_: [float(len(set(text))) for text in completions],
        args=GRPOConfig(**config),
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=parts[1],
        **more,
    )


def sample(prompts, trainer):
    """Sample one after the other from the model as it is, without padding or cache: another kernel."""
    out = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
    for prompt in prompts:
        ids = trainer.processing_class(prompt)["input_ids"]
        grown, logprobs = list(ids), []
        with torch.no_grad():
            for _ in range(TOKENS):
                law = torch.log_softmax(trainer.model(torch.tensor([grown])).logits[0, -1] / 0.8, -1)
                token = int(torch.multinomial(law.exp(), 1))
                grown.append(token)
                logprobs.append(float(law[token]))
        out["prompt_ids"].append(ids)
        out["completion_ids"].append(grown[len(ids) :])
        out["logprobs"].append(logprobs)
    return out


def of_role(traces, role):
    return {name: trace for (one, name), trace in traces.items() if one == role}


def test_both_kernels_arrive_pair_and_agree(parts, tmp_path, watched):
    seen = []

    def remembered(prompts, trainer):
        out = sample(prompts, trainer)
        seen.append(out["completion_ids"])
        return out

    trainer = trainer_of(parts, tmp_path, rollout_func=remembered)
    attachment = attach(trainer, collector=watched.collector)
    trainer.train()
    traces = watched.traces()
    both_steps_are_counted(watched)
    both_kernels_agree(of_role(traces, "train"), of_role(traces, "inference"))
    names_follow_the_rows(of_role(traces, "train"), seen)
    attachment.detach()
    assert "_compute_loss" not in trainer.__dict__


def both_steps_are_counted(watched):
    count = watched.collector.read()
    assert (count.dropped, count.steps) == ({}, 2)
    steps = watched.steps()
    assert [(step.weights_version, step.device_s) for step in steps] == [("0", None), ("1", None)]
    assert all(0 < step.host_s < 600 for step in steps)


def both_kernels_agree(train, inference):
    assert sorted(train) == sorted(inference)
    assert len(train) == 8
    assert {trace.weights_version for trace in train.values()} == {"0", "1"}
    for name, ours in train.items():
        agrees(ours, inference[name])
    digests = {(trace.weights_version, trace.weights_digest) for trace in train.values()}
    assert len({digest for _, digest in digests} - {""}) == len(digests) == 2  # one a version
    assert {trace.weights_digest for trace in inference.values()} == {""}


def agrees(ours, theirs):
    assert (ours.weights_version, ours.group_id) == (theirs.weights_version, theirs.group_id)
    assert ours.token.tolist() == theirs.token.tolist()
    assert np.abs(ours.logprob - theirs.logprob).max() < 1e-3
    assert ours.sampling.semantics is LogprobSemantics.TEMPERATURE_ONLY
    assert ours.sampling.temperature == pytest.approx(0.8)
    assert ours.kernel.dtype == "float32"
    assert ours.kernel.extra["micro_batch"] == "4"
    assert ours.kernel.attention_backend == "sdpa"


def names_follow_the_rows(train, seen):
    """Batches were shuffled between generation and loss."""
    for step, rows in enumerate(seen):
        for row, ids in enumerate(rows):
            assert train[f"{step}.{step}/{row}"].token.tolist() == HASHER.hash(np.array(ids)).tolist()
    groups = [trace.group_id for trace in train.values()]
    assert {groups.count(group) for group in groups} == {2}


def test_what_the_engines_own_collector_saw_becomes_the_samplers_side(parts, tmp_path, watched):
    """In its place: a rollout function that asks who tells, as vLLM's plugin does for each request."""
    engine = KernelIdentity(Role.INFERENCE, engine="vllm", dtype="bfloat16", extra={"cuda": "12"})

    def left_to_the_trainer(prompts, trainer):
        for _ in prompts:
            teller().hear(engine, f"w1:{trainer.state.global_step}")
        return sample(prompts, trainer)

    trainer = trainer_of(parts, tmp_path, rollout_func=left_to_the_trainer)
    attach(trainer, collector=watched.collector)
    trainer.train()
    inference = [trace for (role, _), trace in watched.traces().items() if role == "inference"]
    assert len(inference) == 8
    for trace in inference:
        assert trace.weights_digest == f"w1:{trace.weights_version}"
        assert (trace.kernel.dtype, trace.kernel.extra["cuda"]) == ("bfloat16", "12")
        assert trace.kernel.extra["told_by"] == "trl"
    assert teller() is None


def test_a_lagging_loss_is_not_taken_for_the_weights_that_sampled(parts, tmp_path, watched):
    config = {"num_iterations": 2, "max_steps": 2}
    trainer = trainer_of(parts, tmp_path, rollout_func=sample, config=config)
    attach(trainer, collector=watched.collector)
    trainer.train()
    traces = watched.traces()
    assert len(traces) == 8  # one generation, old log-probabilities at its weights, two steps of loss
    assert {trace.weights_version for trace in traces.values()} == {"0"}


def test_the_training_is_the_same_with_and_without(parts, tmp_path, watched):
    def weights(watch):
        torch.manual_seed(0)
        trainer = trainer_of(parts, tmp_path, config={"seed": 5, "max_steps": 1})
        if watch:
            attach(trainer, collector=watched.collector)
        trainer.train()
        return trainer.model.lm_head.weight.detach().clone()

    assert torch.equal(weights(watch=False), weights(watch=True))
    traces = watched.traces()
    assert {role for role, _ in traces} == {"train"}  # transformers' own sampler tells no log-probabilities
    assert len(traces) == 4


def test_a_collector_that_fails_costs_the_training_nothing(parts, tmp_path, watched):
    trainer = trainer_of(parts, tmp_path, config={"max_steps": 1})
    attachment = attach(trainer, collector=watched.collector)
    watched.collector.show = None  # calling it raises
    trainer.train()
    assert trainer.state.global_step == 1
    attachment.detach()


def test_something_else_is_refused_with_a_hint():
    with pytest.raises(UsageError) as caught:
        attach(object())
    assert caught.value.render() == (
        "[usage] object has no _generate_and_score_completions, _compute_loss and "
        "_get_per_token_logps_and_entropies\n"
        "  hint: attach to a GRPOTrainer or RLOOTrainer of TRL; others show batches with collector.step()"
    )
