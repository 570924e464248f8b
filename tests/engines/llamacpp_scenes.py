"""A real llama.cpp server, `paritas proxy` before it, both in processes of their own, and a trainer beside them."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryFile

from emitter_scenes import PATIENT_S, Agent, emitter_to, socket_path
from engine_answers import HASHER
from engines.vllm_scenes import PATIENT

from paritas.clock import SystemClock
from paritas.collectors.torch import Names, Stamp, TorchCollector
from paritas.commands.offline import judge
from paritas.contracts.load import load_named
from paritas.records import KernelIdentity, LogprobSemantics, Role, Sampling, State

START_S = 120
KEY = b"an example key, not a secret one"  # the key of HASHER
SLOTS = 4
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
EACH, TOKENS = 4, 32
STAMP = Stamp(
    "run", KernelIdentity(Role.TRAIN, engine="torch"), sampling=Sampling(semantics=LogprobSemantics.RAW)
)
# llama.cpp's own defaults are none of these.
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


@contextmanager
def ended(process):
    """End a process, whatever happens."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=START_S)


@contextmanager
def serving(gguf, *, slots=SLOTS):
    """The address of a llama.cpp that serves a file."""
    program = Path(__file__).with_name("llamacpp_server.py")
    command = [sys.executable, str(program), str(gguf), str(slots)]
    with TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        with ended(process):
            address = process.stdout.readline().strip()
            if not address:
                process.wait(START_S)
                log.seek(0)
                raise AssertionError(log.read()[-4000:])
            yield address


@contextmanager
def proxied(upstream, folder, agent_path):
    """The address of a `paritas proxy` that observes everything."""
    (folder / "token.key").write_bytes(KEY)
    program = str(Path(sys.executable).with_name("paritas"))
    command = [program, "proxy", "--listen", "127.0.0.1:0", "--upstream", upstream, "--run", "run"]
    command += ["--share", "1", "--agent", f"unix:{agent_path}", "--token-key", str(folder / "token.key")]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PARITAS_")} | PATIENT
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    with ended(process):
        lines = takewhile(lambda line: line not in ("", "ready\n"), iter(process.stdout.readline, None))
        told = dict(line.split(maxsplit=1) for line in lines if " " in line)
        url = told["listening:"].strip()
        while (engine := engine_behind(url)) == "unknown":
            asyncio.run(asyncio.sleep(0.1))  # a proxy that serves may not have looked to its end yet
        assert engine == "llama.cpp"
        yield url
        process.terminate()
        out, err = process.communicate(timeout=START_S)
        assert (process.returncode, err) == (0, "")
        assert " + 0 dropped (none)" in out, out


def engine_behind(url):
    """What a proxy takes the server behind it for; what it is asked before it knows passes unobserved."""
    with urllib.request.urlopen(f"{url}/paritas/healthz", timeout=START_S) as answer:
        return json.load(answer)["engine"]


def ask(url, path, body, **headers):
    """Return the JSON of an answer."""
    named = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    asked = urllib.request.Request(url + path, json.dumps(body).encode(), named)
    with urllib.request.urlopen(asked, timeout=START_S) as answer:
        return json.loads(answer.read())


def tokens_of(answer):
    """Token ids of a completion; None where llama.cpp counted more than it tells."""
    (choice,) = answer["choices"]
    ids = [one["id"] for one in choice["logprobs"]["content"]]
    return ids if len(ids) == answer["usage"]["completion_tokens"] else None


def rollouts(upstream, folder, **sampling):
    """Sample through the proxy; return its traces, and rows of (name, prompt, ids) for the trainer.

    The client asks for log-probabilities, as who trains on the tokens does, and gets ids with them.
    """
    fixed = {"max_tokens": TOKENS, "logprobs": 1}  # `ignore_eos` would be another law, and is told as one

    def sample(number):
        prompt = PROMPTS[number % len(PROMPTS)]
        body = {"prompt": prompt, "seed": number, **fixed, **sampling}
        answer = ask(url, "/v1/completions", body, x_paritas_sequence_id=f"s-{number}")
        return f"s-{number}", prompt, tokens_of(answer)

    with socket_path() as path, Agent(path) as agent:
        with proxied(upstream, folder, path) as url, ThreadPoolExecutor(SLOTS) as clients:
            rows = list(clients.map(sample, range(EACH * len(PROMPTS))))
        traces = agent.traces()
    rows = [row for row in rows if row[2] is not None]
    assert {trace.sequence_id for trace in traces} == {name for name, _, _ in rows}
    assert len(rows) >= EACH * len(PROMPTS) - 4
    return traces, rows


class Trainer:
    """Scores rows with a model of transformers through the public collector, as a training step does."""

    def __init__(self, model, tokenizer):
        self.model, self._tokenizer = model, tokenizer

    def batches(self, rows):
        """Yield (names, ids, length of the prompt): rows of one prompt that are as long as each other."""
        import torch

        alike = {}
        for name, prompt, ids in rows:
            alike.setdefault((prompt, len(ids)), []).append((name, ids))
        for (prompt, _), group in alike.items():
            before = self._tokenizer(prompt)["input_ids"]
            yield (
                [name for name, _ in group],
                torch.tensor([[*before, *ids] for _, ids in group]),
                len(before),
            )

    def law(self, ids):
        """Log-law of each next token, shape (b, t - 1, vocabulary)."""
        return self.model(ids).logits[:, :-1].log_softmax(-1)

    def traces(self, rows, *, weights_version=""):
        """Return the training side of rows, as it came to the agent."""
        import torch

        with socket_path() as path, Agent(path) as agent:
            emitter = emitter_to(path)
            collector = TorchCollector(emitter, clock=SystemClock(), hasher=HASHER, stamp=STAMP)
            with collector, torch.no_grad(), collector.step(weights_version=weights_version) as step:
                for names, ids, start in self.batches(rows):
                    mask = (torch.arange(1, ids.shape[1]) >= start).expand(len(names), -1)
                    step.observe(
                        ids[:, 1:], logits=self.model(ids).logits[:, :-1], mask=mask, names=Names(names)
                    )
            assert emitter.flush(timeout_s=PATIENT_S)
            found = agent.traces()
        assert all(trace.kernel.role is Role.TRAIN for trace in found)
        return found

    def some_steps_on(self, rows, *, steps=2, rate=2e-5):
        """A trainer after optimiser steps that favour what was sampled, as advantages above zero do."""
        import copy

        import torch

        later = Trainer(copy.deepcopy(self.model), self._tokenizer)
        optimiser = torch.optim.AdamW(later.model.parameters(), lr=rate, weight_decay=0.0)
        for _ in range(steps):
            optimiser.zero_grad()
            for _, ids, start in self.batches(rows):
                (-later.law(ids).gather(-1, ids[:, 1:, None])[:, start - 1 :].mean()).backward()
            optimiser.step()
        return later


def judged(inference, train, *, contract="int4"):
    """Return the clauses that are violated, the causes best first, and the facts of the first."""
    found = judge(load_named(contract), [*inference, *train])
    violated = {v.clause for v in found.verdicts if v.state is State.VIOLATED}
    facts = found.diagnosis[0].facts if found.diagnosis else {}
    return violated, [finding.cause for finding in found.diagnosis], facts
