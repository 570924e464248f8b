"""A server watched from the outside: requests go through `paritas proxy`, PyTorch scores what was answered.

    python examples/proxy/serving.py --model DIR                      a healthy pair
    python examples/proxy/serving.py --model DIR --fault temperature  the sampler is cooler than its log-probabilities say
    python examples/proxy/serving.py --model DIR --fault top-p        the sampler truncates, the trainer does not
    python examples/proxy/serving.py --model DIR --fault stale        the trainer is three optimiser steps ahead

Shows   `paritas up`, an OpenAI-compatible server, `paritas proxy` before it, a client that only knows another
        address, and the training kernel's side of the same tokens.
Needs   torch, transformers, pip install 'paritas[agent,control,detect,proxy]', and vLLM (the CPU build suffices) or
        `--url` of a server that runs already; DIR is a Hugging Face checkpoint, small enough for this machine, and
        what that server serves (`make example-proxy` uses one of 135 million weights).
Takes   about a minute on two cores without a GPU.
Prints  with a fault, escalations that name `wrong_law`, `support_mismatch` or `stale_weights`; last, the accounts of
        the proxy and of `paritas up`.
"""

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):",
    "Once upon a time in a small village",
    "The three primary colours are",
    "Water boils at",
    "In 1969, humans first",
    "To make bread you need",
    "The square root of 144 is",
)
SAMPLING = {"temperature": {"temperature": 0.6}, "top-p": {"top_p": 0.8}}
FAULTS = (*SAMPLING, "stale")
PARITAS = Path(sys.executable).with_name("paritas")
START_S, CLIENTS = 600.0, 8
LINGER_S = 10.0  # sending takes 0.2 s, judging the last of it a second of silence; cores are shared


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of a checkpoint")
    parser.add_argument("--url", help="a server that runs already; with --fault top-p, in processed_logprobs")
    parser.add_argument("--name", default="model", help="what the server calls the model")
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--fault", choices=FAULTS)
    return parser.parse_args()


# ---- processes -----------------------------------------------------------------------------------------


@contextmanager
def process(*words: object, **more: object) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a command beside us; it ends with the block."""
    running = subprocess.Popen([*map(str, words)], **more)  # noqa: S603 -- our own commands
    try:
        yield running
    finally:
        running.terminate()
        running.wait(START_S)


def wait_until(is_there, running: "subprocess.Popen[bytes]", what: str, log: Path | None = None) -> None:  # noqa: ANN001
    for _ in range(round(START_S / 0.2)):
        if is_there():
            return
        if running.poll() is not None:
            break
        threading.Event().wait(0.2)
    sys.exit(f"{what} did not start{last_said(log) if log else ''}")


def last_said(log: Path) -> str:
    """Return a process's last line: its log does not outlive us."""
    lines = log.read_text(errors="replace").splitlines()
    return next((f": {line}" for line in reversed(lines) if line.strip()), "")


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Receiver, detectors and controller in one process, and a subscriber that prints."""
    with process(PARITAS, "up", "--data", folder, "--listen", "127.0.0.1:0") as up:
        wait_until((folder / "running.json").exists, up, "paritas up")
        with process(PARITAS, "watch", "--data", folder):
            yield


@contextmanager
def engine(asked: argparse.Namespace, folder: Path) -> Iterator[str]:
    """The address of the user's server, or of a vLLM of ours."""
    if asked.url:
        yield asked.url
        return
    port = free_port()
    # What `vllm serve` starts.  vLLM would find an installed paritas and observe itself: here the proxy does.
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", asked.model]
    words += ["--served-model-name", asked.name, "--host", "127.0.0.1", "--port", port, "--dtype", "bfloat16"]
    words += ["--max-model-len", 512, "--enforce-eager", "--logprobs-mode", f"{law_of(asked)}_logprobs"]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "PARITAS_ENABLED": "0"}
    with (
        (folder / "engine.log").open("w") as log,
        process(*words, stdout=log, stderr=log, env=os.environ | settings) as running,
    ):
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(f"{url}/health"), running, "vLLM", folder / "engine.log")
        yield url


def law_of(asked: argparse.Namespace) -> str:
    """Return what the server's log-probabilities are of: the model's law, or the one tokens are drawn from."""
    return "processed" if asked.fault == "top-p" else "raw"


@contextmanager
def proxied(upstream: str, folder: Path, asked: argparse.Namespace) -> Iterator[str]:
    """The address of a proxy before a server; it observes every sequence, and the most likely token."""
    url = f"127.0.0.1:{free_port()}"
    words = [PARITAS, "proxy", "--upstream", upstream, "--listen", url, "--data", folder]
    words += ["--run", "serving", "--share", 1, "--top-k", 1]
    words += ["--semantics", law_of(asked)]  # vLLM tells it by itself only with VLLM_SERVER_DEV_MODE=1
    with process(*words) as running:
        wait_until(lambda: knows_engine(f"http://{url}/paritas/healthz"), running, "paritas proxy")
        yield f"http://{url}"
        threading.Event().wait(LINGER_S)  # until what was sent is judged


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def answers(url: str) -> bool:
    with suppress(urllib.error.URLError, OSError, http.client.HTTPException):
        return urllib.request.urlopen(url, timeout=2).status == 200  # noqa: S310 -- an address of ours
    return False


def knows_engine(url: str) -> bool:
    """Whether a proxy knows what it stands before; what it is asked sooner passes unobserved."""
    with (
        suppress(urllib.error.URLError, OSError, http.client.HTTPException),
        urllib.request.urlopen(url, timeout=2) as answer,  # noqa: S310 -- an address of ours
    ):
        return bool(json.load(answer)["engine"] != "unknown")
    return False


# ---- the client ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What is scored: the sequence's name, and its tokens."""

    name: str
    prompt: list[int]
    ids: list[int]


def ask(url: str, number: int, prompt: list[int], asked: argparse.Namespace) -> Answer:
    """Complete one prompt, as any client of an OpenAI-compatible server does."""
    name = f"s-{number}"
    body = {"model": asked.name, "prompt": prompt, "max_tokens": asked.tokens, "seed": number}
    body |= {"temperature": 1.0, "top_p": 1.0, **SAMPLING.get(asked.fault, {})}
    body |= {"return_token_ids": True}  # the trainer needs them; vLLM's own word
    # Paritas: the name that the trainer will use for the same sequence.
    headers = {"Content-Type": "application/json", "x-paritas-sequence-id": name}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=START_S) as answer:  # noqa: S310 -- an address of ours
        (choice,) = json.load(answer)["choices"]
    if not choice.get("token_ids"):
        sys.exit(f"{asked.url} answers without token_ids: the same tokens cannot be scored")
    return Answer(name, prompt, choice["token_ids"])


def ask_all(url: str, asked: argparse.Namespace) -> list[Answer]:
    """Ask by eight clients at a time."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(asked.model)
    ids = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    with ThreadPoolExecutor(CLIENTS) as clients:
        waiting = [clients.submit(ask, url, n, ids[n % len(ids)], asked) for n in range(asked.requests)]
        return [one.result() for one in waiting]


# ---- the training kernel -------------------------------------------------------------------------------


def loaded(asked: argparse.Namespace):  # noqa: ANN201
    """Load the trainer's model before anything is sampled: the contract wants both sides of a sequence within 60 s."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32)


def score_all(model, found: list[Answer], asked: argparse.Namespace, folder: Path) -> None:  # noqa: ANN001
    """Score the tokens as a trainer does, and show them to Paritas."""
    import torch

    from paritas.collectors.torch import Names, TorchCollector
    from paritas.collectors.torch.identity import training_kernel
    from paritas.records import LogprobSemantics, Sampling

    if asked.fault == "stale":
        take_steps(model, found)
    # A trainer that does not say which law its numbers follow is compared as it is; one that says "raw" of a
    # truncated sampler is refused: `paired` is violated and nothing is measured.
    law = LogprobSemantics.UNKNOWN if asked.fault == "top-p" else LogprobSemantics.RAW
    environ = {"PARITAS_DATA": str(folder), "PARITAS_RUN_ID": "serving"}
    collector = TorchCollector.from_environ(
        environ, kernel=training_kernel(model, os.environ), sampling=Sampling(semantics=law)
    )
    with collector, torch.no_grad():
        for one in found:
            tokens, logits = forward(model, one)
            with collector.step() as step:
                step.observe(tokens, logits=logits, names=Names([one.name]))


def forward(model, one: Answer):  # noqa: ANN001, ANN201
    """Tokens of an answer, and the logits they were drawn from."""
    import torch

    logits = model(torch.tensor([[*one.prompt, *one.ids]])).logits[:, len(one.prompt) - 1 : -1]
    return torch.tensor([one.ids]), logits


def take_steps(model, found: list[Answer], steps: int = 3, rows: int = 4) -> None:  # noqa: ANN001
    """Train on some of what was sampled, as with advantages above zero; the server does not get the weights."""
    import torch

    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    for step in range(steps):
        for one in found[step * rows : (step + 1) * rows]:
            tokens, logits = forward(model, one)
            torch.nn.functional.cross_entropy(logits[0], tokens[0]).backward()
        optimiser.step()
        optimiser.zero_grad()


def main() -> None:
    asked = arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(watched(folder))
        with engine(asked, folder) as upstream:
            print(f"server: {upstream}", flush=True)
            with proxied(upstream, folder, asked) as url:
                print(f"proxy:  {url}", flush=True)
                model = loaded(asked)
                found = ask_all(url, asked)
                print(
                    f"{len(found)} answers, {sum(len(one.ids) for one in found)} tokens: scoring", flush=True
                )
                score_all(model, found, asked, folder)


if __name__ == "__main__":
    main()
