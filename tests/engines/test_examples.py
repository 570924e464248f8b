"""The examples run to their end in small sizes: a healthy pair is quiet, a fault is found and named."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from engines.engines_setup import why_not_here
from engines.vllm_scenes import environment, serving

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(why_not_here("vllm")), reason=why_not_here("vllm") or ""),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS, GROUP, PROMPTS = 3, 4, 4
SMALL = ("--group", GROUP, "--tokens", 16)
END_S = 120
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


@contextmanager
def running(name, model, folder, *words):
    """An example that runs; what it says of errors goes into a file."""
    told = {key: value for key, value in os.environ.items() if not key.startswith("PARITAS_")}
    told.pop("PYTHONUNBUFFERED", None)  # a user's lines come in order without it
    # One thread waits for no other where cores are shared.
    told |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(EXAMPLES / name), "--model", str(model), *map(str, words)]
    with (
        (folder / "stderr").open("w") as log,
        subprocess.Popen(
            command, env=told, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)  # it ends what it started; without effect where it has ended
            process.communicate(timeout=END_S)


def printed(name, model, folder, *words):
    """What an example prints, after it ended well."""
    with running(name, model, folder, *words) as process:
        output, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, (folder / "stderr").read_text()[-4000:]
    return output


def account(output):
    """Records, what became of sequences, and escalations: the last line."""
    records, refused, sequences, escalations = ENDED.fullmatch(output.splitlines()[-1]).groups()
    assert refused == "0"
    return int(records), sequences, int(escalations)


def causes(output):
    """What subscribers were told."""
    return set(re.findall(r"looks like (\w+)", output))


@pytest.mark.thorough
def test_serving_with_a_server_of_its_own_names_a_truncated_support(small_model, tmp_path):
    output = printed("proxy/serving.py", small_model, tmp_path, *FEW, "--fault", "top-p")
    assert "support_mismatch" in causes(output)
    _, sequences, escalations = account(output)
    assert (sequences, escalations > 0) == ("24 paired", True)


@pytest.mark.parametrize("name", ["grpo/grpo.py", pytest.param("trl/train.py", marks=pytest.mark.thorough)])
def test_a_healthy_training_is_quiet(few_layers, tmp_path, name):
    output = printed(name, few_layers, tmp_path, *SMALL, "--steps", STEPS)
    rows = STEPS * GROUP * PROMPTS
    # Two traces a sequence, though vLLM's own collector is in the process too, and the time of each step.
    assert account(output) == (2 * rows + STEPS, f"{rows} paired", 0)


def up_to(text, lines):
    """Lines until one that holds the text, with it."""
    for line in lines:
        yield line
        if text in line:
            return


@pytest.mark.thorough
def test_a_sampler_that_is_not_refreshed_is_found_while_it_runs(few_layers, tmp_path):
    # Judging waits for a second of silence, or ten of traffic: a thousand steps take longer on any machine.
    words = (*SMALL, "--steps", 1000, "--fault", "stale")
    with running("grpo/grpo.py", few_layers, tmp_path, *words) as process:
        lines = list(up_to("looks like stale_weights", process.stdout))
    assert "looks like stale_weights" in lines[-1], (tmp_path / "stderr").read_text()[-4000:]
    assert not any(line.startswith("step 999:") for line in lines)


@pytest.mark.parametrize(
    ("name", "fault"),
    [("grpo/grpo.py", "lost"), pytest.param("trl/train.py", "stale", marks=pytest.mark.thorough)],
)
def test_weights_that_were_lost_on_the_way_are_found_in_the_numbers(few_layers, tmp_path, name, fault):
    output = printed(name, few_layers, tmp_path, *SMALL, "--steps", STEPS, "--fault", fault)
    assert "CRITICAL" in output
    _, sequences, escalations = account(output)
    assert sequences == f"{STEPS * GROUP * PROMPTS} paired"
    assert escalations > 0


@pytest.fixture(scope="module")
def users_server(small_model, tmp_path_factory):
    """Words that name a server which runs already; last, as it holds its memory to the end of the module."""
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


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        pytest.param("temperature", "wrong_law", marks=pytest.mark.thorough),
        ("stale", "stale_weights"),
    ],
)
def test_serving_faults_are_named(small_model, users_server, tmp_path, fault, cause):
    output = printed("proxy/serving.py", small_model, tmp_path, *users_server, *FEW, "--fault", fault)
    assert cause in causes(output)
    _, sequences, escalations = account(output)
    assert (sequences, escalations > 0) == ("24 paired", True)
