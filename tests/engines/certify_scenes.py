"""A prompt suite, a contract and the checkpoints that certifications of real kernels need."""

import json
import shutil
from pathlib import Path

from paritas.cli import main

PROMPTS = (
    ("story", "Once upon a time in a small village"),
    ("fact", "Water boils at a lower temperature on a mountain because"),
    ("code", "def fibonacci(n):\n"),
    ("list", "Three things to take on a long journey:\n1."),
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

    def certify(self, train, inference, *options):
        """Return the exit code, the report, and the folder that was kept."""
        out = self.folder / f"out{len(list(self.folder.iterdir()))}"
        words = ("certify", self.folder / "contract.yaml", "--train", train, "--inference", inference)
        code = main([str(word) for word in (*words, *self._drawing, *options, "--out", out)])
        report = json.loads((out / "report.json").read_text())
        assert code == report["exit_code"]
        return code, report, out


def violated(report):
    """Clauses that are violated over everything."""
    judged = report["verdicts"]
    return {v["clause"] for v in judged if (v["state"], v["slice"]) == ("violated", "all")}


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
    import gzip

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
