"""GRPO in one file, watched while it runs: vLLM samples, PyTorch trains, Paritas compares the two.

    python examples/grpo/grpo.py --model DIR                  the sampler gets the new weights after each step
    python examples/grpo/grpo.py --model DIR --fault stale    it does not, and says which version it has
    python examples/grpo/grpo.py --model DIR --fault lost     it does not, and believes that it has them

Shows   where the lines of Paritas go in a loop of your own (each is marked with "Paritas:"), how the
        weights reach a vLLM in the same process, and what an alarm looks like while the training goes on.
Needs   torch, transformers, vLLM (the CPU build suffices), pip install 'paritas[agent,control,detect]'; DIR is
        a Hugging Face checkpoint, small enough for this machine (`make example-grpo` uses one of 135 million weights).
Takes   about two minutes on two cores without a GPU.
Prints  a line a step; with a fault, escalations between them: `stale` is named from the versions, `lost` shows only
        in the numbers; last, the account.

Both kernels are float32.  With `--dtype bfloat16` vLLM samples from weights that rounding has put back to where they
were before a small step, which float32 training does not see: a real mismatch, and Paritas reports it.

The reward is a toy: short words.  The clipped ratio is the trainer's probability over the one that vLLM
reports, as in TRL and verl, so what Paritas measures is what enters the gradient.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROMPTS = (
    "The capital of France is",
    "Once upon a time in a small village",
    "Water boils at",
    "To make bread you need",
)
CLIP = 0.2
PARITAS = Path(sys.executable).with_name("paritas")
START_S = 120.0
LINGER_S = 10.0  # sending takes 0.2 s, judging the last of it a second of silence; cores are shared


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of a checkpoint")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--group", type=int, default=4, help="completions of each prompt")
    parser.add_argument("--tokens", type=int, default=24, help="of each completion")
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--dtype", default="float32", help="of vLLM; bfloat16 rounds small steps of the trainer away"
    )
    parser.add_argument("--fault", choices=("stale", "lost"), help="vLLM keeps the weights it started with")
    return parser.parse_args()


# ---- Paritas: receiver, detectors and controller in one process, and a subscriber that prints ----------


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Start `paritas up` and `paritas watch`, and point the collectors of this process to them."""
    up = started("up", "--data", folder, "--listen", "127.0.0.1:0")
    try:
        wait_for(folder / "running.json", up)
        watch = started("watch", "--data", folder)
        os.environ |= {"PARITAS_DATA": str(folder), "PARITAS_RUN_ID": "grpo"}
        try:
            yield
            threading.Event().wait(LINGER_S)  # until what was sent is judged
        finally:
            end(watch)
    finally:
        end(up)  # it says what became of every sequence


def started(*words: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([PARITAS, *map(str, words)])  # noqa: S603 -- our own command


def wait_for(path: Path, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(round(START_S / 0.1)):
        if path.exists():
            return
        if process.poll() is not None:
            break
        threading.Event().wait(0.1)
    sys.exit("paritas up did not start")


def end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait(START_S)


# ---- the sampler ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rollout:
    """One completion, as vLLM reports it."""

    name: str
    group: str
    prompt: list[int]
    ids: list[int]
    logprobs: list[float]
    text: str


class Sampler:
    """A vLLM in this process."""

    def __init__(self, asked: argparse.Namespace) -> None:
        os.environ |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process: weights need no transport
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "HF_HUB_OFFLINE": "1",
        }
        # Paritas: an installed paritas is found by vLLM itself; called here too, it also works from a checkout.
        from paritas.collectors.vllm.plugin import register

        register()
        from vllm import LLM

        self._asked = asked
        self._llm = LLM(
            str(asked.model), dtype=asked.dtype, max_model_len=256, enforce_eager=True, seed=asked.seed
        )
        self._tokenizer = self._llm.get_tokenizer()
        self._version = 0

    def sample(self, step: int) -> list[Rollout]:
        """Complete every prompt `group` times."""
        ids = [self._tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
        places = [(p, n) for p in range(len(ids)) for n in range(self._asked.group)]
        rows = [(f"{step}/{p}/{n}", f"{step}/{p}", ids[p]) for p, n in places]
        outputs = self._llm.generate(
            [{"prompt_token_ids": prompt} for _, _, prompt in rows],
            [self._params(name, group) for name, group, _ in rows],
            use_tqdm=False,
        )
        return [rollout(name, group, one) for (name, group, _), one in zip(rows, outputs, strict=True)]

    def _params(self, name: str, group: str):  # noqa: ANN202 -- vLLM is imported late
        from vllm import SamplingParams

        # Paritas: the name that the trainer will use for the same sequence, and the weights' version.
        told = {
            "paritas_sequence_id": name,
            "paritas_group_id": group,
            "paritas_weights_version": str(self._version),
        }
        return SamplingParams(temperature=1.0, max_tokens=self._asked.tokens, logprobs=0, extra_args=told)

    def refresh(self, model, version: int) -> None:  # noqa: ANN001
        """Copy the trainer's weights; vLLM casts, fuses and packs them as when it loads a checkpoint."""
        if self._asked.fault == "stale":
            return
        self._version = version
        if self._asked.fault == "lost":
            return
        weights = ((name, tensor.detach()) for name, tensor in model.state_dict().items())
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._llm.reset_prefix_cache()  # it holds keys and values of the old weights


def rollout(name: str, group: str, output) -> Rollout:  # noqa: ANN001
    sample = output.outputs[0]
    ids = list(sample.token_ids)
    logprobs = [row[token].logprob for row, token in zip(sample.logprobs, ids, strict=True)]
    return Rollout(name, group, list(output.prompt_token_ids), ids, logprobs, sample.text)


# ---- the trainer ---------------------------------------------------------------------------------------


class Trainer:
    """A policy in float32 and its optimiser."""

    def __init__(self, asked: argparse.Namespace) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        from paritas.collectors.torch import TorchCollector
        from paritas.collectors.torch.identity import training_kernel

        torch.manual_seed(asked.seed)
        self.model = AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32)
        self._optimiser = torch.optim.AdamW(self.model.parameters(), lr=asked.lr, weight_decay=0.0)
        # Paritas: the training side's collector, of this kernel.
        self.collector = TorchCollector.from_environ(
            os.environ, kernel=training_kernel(self.model, os.environ)
        )

    def step(self, rollouts: list[Rollout], advantages, version: int) -> float:  # noqa: ANN001
        """Take one step of the clipped objective; return the share of tokens whose ratio was clipped."""
        from paritas.collectors.torch import Names

        tokens, mask, old = padded(rollouts)
        logits = self.model(tokens, attention_mask=attention(rollouts, tokens)).logits[:, :-1]
        with self.collector.step(weights_version=str(version)) as step:
            # Paritas: shows the logits that the loss is made of; names are those the sampler was given.
            step.observe(
                tokens[:, 1:],
                logits=logits,
                mask=mask,
                names=Names([one.name for one in rollouts], [one.group for one in rollouts]),
            )
            logprobs = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
            ratio = (logprobs - old).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            gain = (ratio * advantages[:, None]).minimum(clipped * advantages[:, None])
            (-(gain * mask).sum() / mask.sum()).backward()
            self._optimiser.step()
            self._optimiser.zero_grad()
        return float(((ratio != clipped) & mask).sum() / mask.sum())


def padded(rollouts: list[Rollout]):  # noqa: ANN201
    """Tokens padded on the right; where a completion's token is predicted, and vLLM's numbers there."""
    import torch

    longest = max(len(one.prompt) + len(one.ids) for one in rollouts)
    tokens = torch.zeros(len(rollouts), longest, dtype=torch.long)
    mask = torch.zeros(len(rollouts), longest - 1, dtype=torch.bool)
    old = torch.zeros(len(rollouts), longest - 1)
    for row, one in enumerate(rollouts):
        end_at = len(one.prompt) + len(one.ids)
        tokens[row, :end_at] = torch.tensor(one.prompt + one.ids)
        mask[row, len(one.prompt) - 1 : end_at - 1] = True
        old[row, len(one.prompt) - 1 : end_at - 1] = torch.tensor(one.logprobs)
    return tokens, mask, old


def attention(rollouts: list[Rollout], tokens):  # noqa: ANN001, ANN201
    import torch

    lengths = torch.tensor([len(one.prompt) + len(one.ids) for one in rollouts])
    return (torch.arange(tokens.shape[1])[None] < lengths[:, None]).long()


def reward(text: str) -> float:
    """Short words are good; at most 12 letters count."""
    words = text.split()
    return -sum(min(len(word), 12) for word in words) / max(len(words), 1)


def group_advantages(rewards, size: int):  # noqa: ANN001, ANN201
    """GRPO: how much better than the other completions of the same prompt, in standard deviations."""
    groups = rewards.view(-1, size)
    centred = groups - groups.mean(1, keepdim=True)
    return (centred / (groups.std(1, keepdim=True) + 1e-4)).flatten()


def train(asked: argparse.Namespace) -> None:
    import torch

    sampler, trainer = Sampler(asked), Trainer(asked)
    with trainer.collector:
        for version in range(asked.steps):
            rollouts = sampler.sample(version)
            rewards = torch.tensor([reward(one.text) for one in rollouts])
            clipped = trainer.step(rollouts, group_advantages(rewards, asked.group), version)
            print(f"step {version}: reward {rewards.mean():.3f}, clipped {clipped:.1%}", flush=True)
            sampler.refresh(trainer.model, version + 1)


def main() -> None:
    asked = arguments()
    with tempfile.TemporaryDirectory() as folder, watched(Path(folder)):
        train(asked)


if __name__ == "__main__":
    main()
