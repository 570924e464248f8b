"""A real Trainer of transformers, watched with one line."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from paritas.collectors.torch import Names
from paritas.collectors.transformers import attach
from paritas.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = [{"input_ids": list(range(3, 11)), "labels": [-100, -100, 5, 6, 7, 8, 9, 10]} for _ in range(4)]


def trainer_of(folder):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(**sizes, vocab_size=40)
    args = TrainingArguments(
        str(folder),
        use_cpu=True,
        max_steps=2,
        per_device_train_batch_size=2,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    return Trainer(LlamaForCausalLM(config), args, train_dataset=ROWS)


def test_labels_of_a_trainer_arrive(tmp_path, watched):
    trainer, count, exact = trainer_of(tmp_path), iter(range(100)), []

    def names(inputs):
        with torch.no_grad():
            law = torch.log_softmax(trainer.model(inputs["input_ids"]).logits.double(), -1)
        picked = law[:, 1:-1].gather(-1, inputs["labels"][:, 2:, None])[..., 0]
        exact.extend(picked.numpy())
        return Names([str(next(count)) for _ in inputs["labels"]])

    attachment = attach(trainer, names=names, collector=watched.collector)
    trainer.train()
    traces = watched.traces()
    assert sorted(traces) == [("train", str(n)) for n in range(4)]
    assert [traces["train", str(n)].weights_version for n in range(4)] == ["0", "0", "1", "1"]
    for n in range(4):
        got = traces["train", str(n)]
        assert len(got) == 6
        assert np.abs(got.logprob - exact[n]).max() < 1e-5
        assert got.kernel.dtype == "float32"
    digests = [traces["train", str(n)].weights_digest for n in range(4)]
    assert digests[0] == digests[1] != digests[2] == digests[3]  # one a version, though nobody asked for it
    assert "" not in digests
    attachment.detach()
    assert "compute_loss" not in trainer.__dict__


def test_the_training_is_the_same_with_and_without(tmp_path, watched):
    plain, seen = trainer_of(tmp_path), trainer_of(tmp_path)
    attach(seen, collector=watched.collector)
    plain.train()
    seen.train()
    for one, other in zip(plain.model.parameters(), seen.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_something_else_is_refused_with_a_hint():
    with pytest.raises(UsageError) as caught:
        attach(object())
    assert caught.value.render() == (
        "[usage] object has no compute_loss\n"
        "  hint: attach to a Trainer of transformers; others show batches with collector.step()"
    )
