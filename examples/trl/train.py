"""TRL's GRPOTrainer, watched with one line while it trains; a vLLM in the same process samples.

    python examples/trl/train.py --model DIR                  the sampler gets the new weights before each step
    python examples/trl/train.py --model DIR --fault stale    it does not: TRL believes it did

Shows   `paritas.collectors.trl.attach(trainer)`, and an alarm while the training goes on.
Needs   torch, TRL, vLLM (the CPU build suffices), pip install 'paritas[agent,control,detect]'; DIR is a Hugging
        Face checkpoint, small enough for this machine (`make example-trl` uses one of 135 million weights).
Takes   about two minutes on two cores without a GPU.
Prints  TRL's log of each step; with the fault, escalations between them.  TRL gives both sides one version, so
        they come from the numbers alone, and the cause is not always named.  Last, the account.

Both kernels are float32; `examples/grpo/grpo.py` says what `--dtype bfloat16` shows.

On a GPU say `use_vllm=True` and leave `Sampler` out: TRL starts vLLM and copies the weights itself.  The build
for the CPU packs its weights, so here a `rollout_func` does it, with the call that packs them anew.  The reward is
a toy: short words.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROMPTS = (
    "The capital of France is",
    "Once upon a time in a small village",
    "Water boils at",
    "To make bread you need",
)
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
    parser.add_argument(
        "--dtype", default="float32", help="of vLLM; bfloat16 rounds small steps of the trainer away"
    )
    parser.add_argument("--fault", choices=("stale",), help="stale: vLLM keeps the weights it started with")
    return parser.parse_args()


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Start `paritas up` and `paritas watch`, and point the collectors of this process to them."""
    up = started("up", "--data", folder, "--listen", "127.0.0.1:0")
    try:
        wait_for(folder / "running.json", up)
        watch = started("watch", "--data", folder)
        os.environ |= {"PARITAS_DATA": str(folder), "PARITAS_RUN_ID": "trl"}
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


class Sampler:
    """A vLLM in this process, as TRL's `rollout_func`."""

    def __init__(self, asked: argparse.Namespace) -> None:
        os.environ |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process: weights need no transport
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
        }
        from vllm import LLM

        self._asked = asked
        self._llm = LLM(str(asked.model), dtype=asked.dtype, max_model_len=256, enforce_eager=True)

    def __call__(self, prompts: list[str], trainer) -> dict[str, list]:  # noqa: ANN001
        """Complete prompts, each as often as TRL lists it."""
        from vllm import SamplingParams

        if self._asked.fault != "stale":
            self._refresh(trainer.model)
        ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
        outputs = self._llm.generate(
            [{"prompt_token_ids": one} for one in ids],
            SamplingParams(temperature=trainer.args.temperature, max_tokens=self._asked.tokens, logprobs=0),
            use_tqdm=False,
        )
        samples = [output.outputs[0] for output in outputs]
        return {
            "prompt_ids": ids,
            "completion_ids": [list(one.token_ids) for one in samples],
            "logprobs": [
                [row[token].logprob for row, token in zip(one.logprobs, one.token_ids, strict=True)]
                for one in samples
            ],
        }

    def _refresh(self, model) -> None:  # noqa: ANN001
        weights = ((name, tensor.detach()) for name, tensor in model.state_dict().items())
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._llm.reset_prefix_cache()  # it holds keys and values of the old weights


def reward(completions: list[str], **_: object) -> list[float]:
    """Short words are good; at most 12 letters count."""
    words = [text.split() for text in completions]
    return [-sum(min(len(word), 12) for word in found) / max(len(found), 1) for found in words]


def trainer_of(asked: argparse.Namespace, folder: Path):  # noqa: ANN201 -- TRL is imported late
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        output_dir=str(folder / "trl"),
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=1,
        max_steps=asked.steps,
        learning_rate=asked.lr,
        lr_scheduler_type="constant",
        temperature=1.0,
        per_device_train_batch_size=asked.group * len(PROMPTS),
        num_generations=asked.group,
        max_completion_length=asked.tokens,
    )
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": list(PROMPTS)}),
        processing_class=AutoTokenizer.from_pretrained(asked.model, padding_side="left"),
        rollout_func=Sampler(asked),
    )


def main() -> None:
    asked = arguments()
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.stdout.reconfigure(line_buffering=True)  # two programs print: each line when it is said
    with tempfile.TemporaryDirectory() as name, watched(Path(name)):
        trainer = trainer_of(asked, Path(name))

        from paritas.collectors.trl import attach

        attach(trainer)
        trainer.train()


if __name__ == "__main__":
    main()
