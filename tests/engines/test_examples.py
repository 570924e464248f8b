"""The examples run to their end in small sizes: a healthy pair is quiet, a fault is found and named."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from engines.engines_setup import why_not_here
from engines.vllm_scenes import environment, serving

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why_not_here("vllm")), reason=why_not_here("vllm") or ""),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS, GROUP, PROMPTS = 3, 4, 4
SMALL = ("--steps", STEPS, "--group", GROUP, "--tokens", 16)
FEW = ("--requests", 24, "--tokens", 24)
ENDED = re.compile(r"stopped: (\d+) records, (\d+) refused, \d+ repeated; sequences: (.*); (\d+) escalations")


@pytest.fixture(scope="module")
def few_layers(small_model, tmp_path_factory):
    """The first layers of the real model: a training step of all of them takes ten times as long."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("few") / "model"
    told = {"dtype": torch.bfloat16, "num_hidden_layers": 4}
    AutoModelForCausalLM.from_pretrained(small_model, **told).save_pretrained(folder)
    AutoTokenizer.from_pretrained(small_model).save_pretrained(folder)
    return folder


def printed(name, model, folder, *words):
    """What an example prints, after it ended well."""
    told = {key: value for key, value in os.environ.items() if not key.startswith("PARITAS_")}
    told.pop("PYTHONUNBUFFERED", None)  # a user's lines come in order without it
    # One thread waits for no other where cores are shared.
    told |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), "--model", str(model), *map(str, words)],
        env=told,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def account(output):
    """Records, what became of sequences, and escalations: the last line."""
    records, refused, sequences, escalations = ENDED.fullmatch(output.splitlines()[-1]).groups()
    assert refused == "0"
    return int(records), sequences, int(escalations)


def causes(output):
    """What subscribers were told."""
    return set(re.findall(r"looks like (\w+)", output))


@pytest.fixture(scope="module")
def users_server(small_model, tmp_path_factory):
    """Words that name a server which runs already."""
    folder = tmp_path_factory.mktemp("server")
    with serving(small_model, folder, environment(folder) | {"OMP_NUM_THREADS": "1"}) as server:
        yield "--url", server.url, "--name", "smol"


def test_serving_healthy_is_quiet(small_model, users_server, tmp_path):
    output = printed(
        "proxy/serving.py", small_model, tmp_path, *users_server, "--requests", 24, "--tokens", 24
    )
    assert "24 traces accepted = 24 delivered + 0 dropped" in output
    # Two traces a sequence, and the time of each step: the scorer takes one sequence a step.
    assert account(output) == (2 * 24 + 24, "24 paired", 0)


@pytest.mark.parametrize(("fault", "cause"), [("temperature", "wrong_law"), ("stale", "stale_weights")])
def test_serving_faults_are_named(small_model, users_server, tmp_path, fault, cause):
    output = printed("proxy/serving.py", small_model, tmp_path, *users_server, *FEW, "--fault", fault)
    assert cause in causes(output)
    _, sequences, escalations = account(output)
    assert (sequences, escalations > 0) == ("24 paired", True)


def test_serving_with_a_server_of_its_own_names_a_truncated_support(small_model, tmp_path):
    output = printed("proxy/serving.py", small_model, tmp_path, *FEW, "--fault", "top-p")
    assert "support_mismatch" in causes(output)
    _, sequences, escalations = account(output)
    assert (sequences, escalations > 0) == ("24 paired", True)


@pytest.mark.parametrize("name", ["grpo/grpo.py", "trl/train.py"])
def test_a_healthy_training_is_quiet(few_layers, tmp_path, name):
    output = printed(name, few_layers, tmp_path, *SMALL)
    rows = STEPS * GROUP * PROMPTS
    # Two traces a sequence, though vLLM's own collector is in the process too, and the time of each step.
    assert account(output) == (2 * rows + STEPS, f"{rows} paired", 0)


def test_a_sampler_that_is_not_refreshed_is_found_while_it_runs(few_layers, tmp_path):
    output = printed("grpo/grpo.py", few_layers, tmp_path, *SMALL, "--fault", "stale")
    assert "stale_weights" in causes(output)
    alarm = next(n for n, line in enumerate(output.splitlines()) if "looks like stale_weights" in line)
    last = next(n for n, line in enumerate(output.splitlines()) if line.startswith(f"step {STEPS - 1}:"))
    assert alarm < last


@pytest.mark.parametrize(("name", "fault"), [("grpo/grpo.py", "lost"), ("trl/train.py", "stale")])
def test_weights_that_were_lost_on_the_way_are_found_in_the_numbers(few_layers, tmp_path, name, fault):
    output = printed(name, few_layers, tmp_path, *SMALL, "--fault", fault)
    assert "CRITICAL" in output
    _, sequences, escalations = account(output)
    assert sequences == f"{STEPS * GROUP * PROMPTS} paired"
    assert escalations > 0
