"""A prompt suite, a contract and the checkpoints that certifications of real kernels need."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np

from paritas.cli import main
from paritas.collectors.kernels import LocalScorer, Suite, open_sampler, parse_spec, read_prompts
from paritas.collectors.kernels.hf import open_model
from paritas.collectors.kernels.kernel import Scored
from paritas.commands.certify_run import Kernels, Plan, certify_pair
from paritas.commands.offline import judge_recording
from paritas.contracts.load import load_named
from paritas.records import Role, Sampling

# Eight tokens each, so that responses to all of them are decoded together.
PROMPTS = (
    ("story", "Once upon a time in a small village"),
    ("fact", "Water boils earlier on a mountain because the"),
    ("code", "def mean(values):\n    return sum"),
    ("list", "Pack for a journey:\n1."),
)
CONTRACT = """
apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: certified, version: 1.0.0, owner: tests}
spec:
  policy: smollm2
  preset: dense-bf16
  slices: [{name: all}, {name: kind, by: [slice], at_most: 8}]
  clauses:
    numerical:
      - {id: osc, statistic: logit_oscillation, quantile: 0.9, at_most: 3.0, slices: [all]}
      - {id: flips, statistic: argmax_flip_rate, at_most: 0.1, slices: [all]}
  promotion: {offline_ci: {suite: prompts.jsonl, alpha: 0.05}}
"""

# What a hundred short responses can certify; the cause of each limit is the ladder in docs/collectors.md.
BUDGET = """
apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: budget, version: 1.0.0, owner: tests}
spec:
  policy: smollm2
  slices: [{name: all}]
  clauses:
    numerical:
      - {id: token-tv, statistic: tv, at_most: 0.1}
      - {id: flips, statistic: argmax_flip_rate, at_most: 0.2}
    observability:
      - {id: finite, statistic: nonfinite_rate, at_most: 0}
  promotion: {offline_ci: {suite: prompts.jsonl, alpha: 0.05, at_least: {sequences: 64}}}
"""


class Desk:
    """A folder with the suite and the contract, and a way to certify with them.

    Parameters
    ----------
    drawing : options for every run
    """

    def __init__(self, folder, *drawing):
        self.folder, self._drawing = folder, drawing
        lines = (json.dumps({"prompt": text, "slice": kind}) + "\n" for kind, text in PROMPTS)
        (folder / "prompts.jsonl").write_text("".join(lines))
        (folder / "contract.yaml").write_text(CONTRACT)
        (folder / "budget.yaml").write_text(BUDGET)

    def certify(self, train, inference, *options, contract="contract"):
        """Return the exit code, the report, and the folder that was kept."""
        out = self.folder / f"out{len(list(self.folder.iterdir()))}"
        words = ("certify", self.folder / f"{contract}.yaml", "--train", train, "--inference", inference)
        code = main([str(word) for word in (*words, *self._drawing, *options, "--out", out)])
        report = json.loads((out / "report.json").read_text())
        assert code == report["exit_code"]
        return code, report, out


def judged(out, contract):
    """What a kept recording says under another contract: a file or the name of a preset."""
    found = judge_recording(load_named(str(contract)), out / "serve.jsonl.gz", out / "train.jsonl.gz")
    return json.loads(json.dumps(found.as_dict()))


class OneLate(LocalScorer):
    """A trainer that writes each number one token late, as labels moved once too often make it."""

    def score(self, answer, law):
        """Score as ever; what was held whole is not handed on, since it is of other positions."""
        scored = super().score(answer, law)
        top = [*scored.top[-1:], *scored.top[:-1]]
        return Scored(np.roll(scored.logprob, 1), top)


def late_by_one(desk, model):
    """Certify a model with itself, scored by a trainer that is off by one; return the report."""
    train = parse_spec(f"hf:{model},dtype=float32", Role.TRAIN)
    inference = parse_spec(f"hf:{model},dtype=bfloat16", Role.INFERENCE)
    suite = Suite(read_prompts(desk.folder / "prompts.jsonl"), samples=4, max_tokens=24, seed=3)
    plan = Plan(train, inference, suite, Sampling(1.0, 1.0, 0, 0.0))
    kernels = Kernels(open_sampler(inference, top_k=20), OneLate(open_model(train), top_k=20))
    contract = load_named(str(desk.folder / "contract.yaml"))
    return certify_pair(contract, plan, kernels, out=None).as_dict()


def rolled(out, folder):
    """Copy a recording with the training kernel's numbers moved by one token."""
    folder.mkdir()
    shutil.copy(out / "serve.jsonl.gz", folder)
    with (
        gzip.open(out / "train.jsonl.gz", "rt") as read,
        gzip.open(folder / "train.jsonl.gz", "wt") as written,
    ):
        for line in read:
            row = json.loads(line)
            row.pop("exact", None)
            row |= {name: row[name][-1:] + row[name][:-1] for name in ("logprobs", "top_logprobs")}
            written.write(json.dumps(row) + "\n")
    return folder


def violated(report):
    """Clauses that are violated over everything."""
    return {v["clause"] for v in report["verdicts"] if (v["state"], v["slice"]) == ("violated", "all")}


def causes(report):
    """Causes over everything, best first."""
    return [f["cause"] for f in report["diagnosis"] if f["slice"] == "all"]


def changed_rope(model, folder, theta):
    """The same weights with another base of the rotary embedding, as a missing line in a configuration does."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = theta
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def learned(model, folder, recording, *, steps, rate=1e-4):
    """Weights some optimiser steps ahead: trained on the tokens of a recording, as a policy update does."""
    import torch
    from transformers import AutoModelForCausalLM

    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=rate)
    with gzip.open(recording, "rt") as file:
        rows = [json.loads(line) for line in file][: 4 * steps]
    for step in range(steps):
        optimiser.zero_grad()
        for row in rows[4 * step : 4 * step + 4]:
            ids = torch.tensor([row["prompt_token_ids"] + row["token_ids"]])
            policy(input_ids=ids, labels=ids).loss.backward()
        optimiser.step()
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    policy.save_pretrained(folder)
    return Path(folder)
