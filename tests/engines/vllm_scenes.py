"""Real vLLM in processes of their own, with and without the plugin, and what trains beside it."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from functools import reduce
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from free_ports import free_port

from paritas.records import KernelIdentity, LogprobSemantics, Role, Sampling, TokenTrace
from paritas.tokens import TokenHasher

ROOT = Path(__file__).parents[2]
START_S = 600
KEY = b"0123456789abcdef0123456789abcdef"
HASHER = TokenHasher(KEY)
GROUP = "vllm.general_plugins"
ENTRY = "paritas = paritas.collectors.vllm.plugin:register"
ENGINE = {
    "dtype": "bfloat16",
    "max_model_len": 512,
    "enforce_eager": True,
    "seed": 0,
}
CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_NO_USAGE_STATS": "1",  # they go to a server outside
    # Bound to cores, every engine here would be on the same ones; several threads would wait for each other.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
# An agent here shares its cores with an engine.
PATIENT = {"PARITAS_TIMEOUT_S": "60", "PARITAS_RETRY_FOR_S": "60"}
QUESTIONS = (
    "The capital of France is",
    "def fibonacci(n):",
    "Once upon a time in a small village",
    "The three primary colours are",
    "Water boils at",
    "In 1969, humans first",
    "To make bread you need",
    "The square root of 144 is",
)


def environment(folder, **variables):
    """Variables of an engine's process; with some of ours the plugin's entry point is on its path.

    The folder holds what a wheel of paritas holds beside its code; the code is the working tree.
    """
    told = {name: value for name, value in os.environ.items() if not name.startswith("PARITAS_")}
    told |= CPU
    if not variables:
        return told | {"PARITAS_ENABLED": "0"}
    found = folder / "entry/paritas_vllm_entry-0.dist-info"
    found.mkdir(parents=True, exist_ok=True)
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: paritas-vllm-entry\nVersion: 0\n")
    (found / "entry_points.txt").write_text(f"[{GROUP}]\n{ENTRY}\n")
    (folder / "token.key").write_bytes(KEY)
    named = {"PARITAS_RUN_ID": "run", "PARITAS_TOKEN_KEY_FILE": str(folder / "token.key")}
    ours = PATIENT | named | variables
    return told | ours | {"PYTHONPATH": str(folder / "entry")}


def offline(folder, asked, env):
    """Run a program that uses vLLM; return its answers and what it wrote to stderr."""
    request, answer = folder / "asked.json", folder / "answered.json"
    answer.unlink(missing_ok=True)
    request.write_text(json.dumps(asked))
    command = [sys.executable, str(Path(__file__).with_name("offline_vllm.py")), str(request), str(answer)]
    done = subprocess.run(
        command, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=START_S
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(answer.read_text()), done.stderr


def is_up(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


class Served:
    """A running server; `code` and `log` are there when it has ended."""

    def __init__(self, url, process, log):
        self.url, self._process, self._log = url, process, log
        self.code, self.log = None, ""

    def ask(self, path, body, headers=None):
        """Return the bytes of an answer."""
        told = {"Content-Type": "application/json", **(headers or {})}
        asked = urllib.request.Request(self.url + path, json.dumps(body).encode(), told)
        with urllib.request.urlopen(asked, timeout=START_S) as answer:
            return answer.read()

    def end(self):
        self._process.terminate()
        self.code = self._process.wait(START_S)
        self._log.seek(0)
        self.log = self._log.read()


@contextmanager
def serving(model, folder, env, *options):
    """The server of `vllm serve`; the command itself does not start in the CPU build, which has another name."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "smol"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16"]
    command += ["--max-model-len", "512", "--enforce-eager", *options]
    with TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=folder)
        served = Served(f"http://127.0.0.1:{port}", process, log)
        try:
            while not is_up(served.url):
                if process.poll() is not None:
                    log.seek(0)
                    raise AssertionError(log.read()[-4000:])
                asyncio.run(asyncio.sleep(1.0))  # an engine tells nobody when it is ready
            yield served
            served.end()
        finally:
            process.kill()
            process.wait(START_S)


def joined(chunks):
    """The answer that a stream adds up to: how many tokens a chunk holds depends on who is slower, vLLM or its client."""
    return reduce(_continued, chunks, {"choices": []})


def _continued(before, chunk):
    pairs = zip_longest(before["choices"], chunk["choices"], fillvalue={})
    return {**before, **chunk, "choices": [_grown(*pair) for pair in pairs]}


def _grown(before, after):
    return {name: _more(name, before.get(name), after.get(name)) for name in {**before, **after}}


def _more(name, before, after):
    """Texts and lists grow; of the rest, what was said last stands."""
    if before is None or after is None:
        return after if before is None else before
    if isinstance(after, dict):
        return _grown(before, after)
    is_growing = isinstance(after, list) or name in ("text", "content")
    return before + after if is_growing else after


def laws(model, rows, *, temperature=1.0):
    """Yield rows of one prompt together with the log-law at each of their tokens, shape (b, t, vocabulary).

    A row is (name, prompt, ids); rows of one prompt are as long as each other and go through the model at once.
    """
    import torch

    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[1]), []).append(row)
    for prompt, group in groups.items():
        whole = torch.tensor([[*prompt, *ids] for _, _, ids in group])
        logits = model(whole).logits[:, len(prompt) - 1 : -1]
        yield group, torch.log_softmax(logits.double() / temperature, -1)


def trained(model, rows, *, temperature=1.0, semantics=LogprobSemantics.RAW, weights_version=""):
    """Score sequences with a model of transformers, as a trainer does: one trace a row."""
    import torch

    found = []
    with torch.no_grad():
        for group, law in laws(model, rows, temperature=temperature):
            ids = torch.tensor([row[2] for row in group])
            values = law.gather(-1, ids[..., None])[..., 0].float().numpy()
            found += [
                TokenTrace(
                    "run",
                    name,
                    KernelIdentity(Role.TRAIN, engine="torch"),
                    values[number],
                    HASHER.hash(np.array(one)),
                    np.zeros(len(one), np.uint8),
                    weights_version=weights_version,
                    sampling=Sampling(temperature=temperature, semantics=semantics),
                )
                for number, (name, _, one) in enumerate(group)
            ]
    return found
