"""Digests of real modules: whole, fused as an engine fuses, sharded by FSDP over two processes, or unknown."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from paritas.collectors.torch.weights import block_of, model_pieces, named_blocks, weights_digest
from paritas.collectors.weights import (
    EngineLayout,
    SamplePlan,
    Unknown,
    digest_of,
    engine_pieces,
    merge,
    sample,
)

PLAN = SamplePlan(share=1.0, elements=32)
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 17000,
    "tie_word_embeddings": False,
}
LAYOUT = EngineLayout(heads=4, kv_heads=2, head_dim=8, intermediate=48)


def model(seed=0):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SIZES))


def fused(weights):
    """The parameters of a model as vLLM holds them on one rank."""
    out = {
        name: array for name, array in weights.items() if ".self_attn." not in name and ".mlp." not in name
    }
    for layer in range(2):
        at = f"model.layers.{layer}"
        parts = [weights[f"{at}.self_attn.{part}_proj.weight"] for part in "qkv"]
        out[f"{at}.self_attn.qkv_proj.weight"] = torch.cat(parts)
        out[f"{at}.self_attn.o_proj.weight"] = weights[f"{at}.self_attn.o_proj.weight"]
        both = [weights[f"{at}.mlp.{part}_proj.weight"] for part in ("gate", "up")]
        out[f"{at}.mlp.gate_up_proj.weight"] = torch.cat(both)
        out[f"{at}.mlp.down_proj.weight"] = weights[f"{at}.mlp.down_proj.weight"]
    return out


def test_a_trainer_in_float32_and_a_fused_engine_in_bfloat16_agree():
    trainer = model()
    held = fused({name: p.detach().bfloat16() for name, p in trainer.named_parameters()})
    pieces = engine_pieces(((name, block_of(tensor)) for name, tensor in held.items()), LAYOUT)
    theirs = digest_of(sample(PLAN, pieces), layers=2)
    ours = weights_digest(trainer, plan=PLAN)
    assert ours == theirs
    assert ours.unknown is None
    assert weights_digest(trainer.bfloat16(), plan=PLAN) == ours


def test_names_of_an_unfused_engine():
    pieces = engine_pieces(named_blocks(model()), LAYOUT)
    assert digest_of(sample(PLAN, pieces), layers=2) == weights_digest(model(), plan=PLAN)


def test_one_optimiser_step_is_seen():
    trainer = model()
    before = weights_digest(trainer)
    optimiser = torch.optim.AdamW(trainer.parameters(), lr=1e-4)
    trainer(input_ids=torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
    optimiser.step()
    assert weights_digest(trainer).text not in ("", before.text)


def test_the_real_model_has_one(small_model):
    told = weights_digest(AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.bfloat16))
    assert told.unknown is None
    assert told.elements > 3000


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: model().half(), Unknown.DTYPE),
        (lambda: torch.nn.Linear(2, 2), Unknown.LAYOUT),
        (lambda: without(model(), "layers.1."), Unknown.PARTS),
    ],
    ids=["float16", "no configuration", "some layers"],
)
def test_what_cannot_be_compared_is_unknown(make, reason):
    told = weights_digest(make(), plan=PLAN)
    assert (told.text, told.unknown) == ("", reason)


def without(whole, part):
    whole.model.layers = whole.model.layers[:1] if part else whole.model.layers
    return whole


def _rank(rank, folder, queue):
    """One of two processes of FSDP 2: what it knows of the sample."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    sharded = model()
    for layer in sharded.model.layers:
        fully_shard(layer)
    fully_shard(sharded)
    alone = weights_digest(sharded, plan=PLAN).unknown
    queue.put((alone.value, sample(PLAN, model_pieces(sharded))))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_shards_of_fsdp_put_together_are_the_whole(tmp_path):
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    ranks = [context.Process(target=_rank, args=(rank, tmp_path, queue)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    told = [queue.get() for _ in ranks]
    for rank in ranks:
        rank.join()
    assert [alone for alone, _ in told] == ["parts", "parts"]
    whole = merge(part for _, part in told)
    assert digest_of(whole, layers=2) == weights_digest(model(), plan=PLAN)
