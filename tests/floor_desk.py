"""A desk for floors: a contract, a key pair, two recordings of one kernel and the floor they make."""

import gzip
import json

import numpy as np
from command_runs import recording, run

CONTRACT = """apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: mine, version: 1.0.0}
spec:
  policy: small
  kernels: {inference: {engine: vllm, dtype: bfloat16}}
  clauses:
    numerical:
      - {id: token-tv, statistic: tv, at_most: {floor: engine, times: 1.5, ceiling: 0.9}}
    statistical:
      - {id: bias, statistic: gradient_bias, cap: 2.0, at_most: 0.5}
      - {id: tail, statistic: ratio_tail, above: 1.05, at_most: 0.5}
      - {id: k3, statistic: kl_k3, at_most: 0.5}
"""


def lines():
    with gzip.open(recording("healthy.serve"), "rt") as file:
        return [json.loads(line) for line in file]


def batched(path, size, sd, **more):
    """Write the healthy recording as the engine at another batch size would have logged it."""
    rng = np.random.default_rng(size)
    with path.open("w") as file:
        for row in lines():
            log = np.minimum(np.array(row["logprobs"]) + rng.normal(0, sd, len(row["logprobs"])), 0.0)
            told = {"logprobs": log.tolist(), "extra": {"batch": str(size)}, "top_logprobs": None, **more}
            file.write(json.dumps({**row, **told}) + "\n")
    return path


def laid_desk(folder):
    """Lay the desk in `folder`, and return it."""
    (folder / "mine.yaml").write_text(CONTRACT)
    assert run("floor", "key", folder / "k.pem", folder / "p.pem").returncode == 0
    batched(folder / "one.jsonl", 1, 0.0)
    batched(folder / "other.jsonl", 8, 0.02)
    done = run(*measuring(folder, "engine"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"signed in {folder}/engine.json\n")
    return folder


def measuring(folder, name, role="inference", one="one.jsonl", other="other.jsonl"):
    sides = ("--one", folder / one, "--other", folder / other, "--key", folder / "k.pem")
    return (
        "floor",
        "measure",
        folder / "mine.yaml",
        name,
        "--role",
        role,
        *sides,
        "-o",
        folder / f"{name}.json",
    )
