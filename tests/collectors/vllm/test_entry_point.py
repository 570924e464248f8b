"""A wheel of ours, installed: engines find our functions by their entry points, and they load."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GROUPS = {
    "vllm.general_plugins": "paritas.collectors.vllm.plugin:register",
    "sglang.srt.plugins": "paritas.collectors.sglang.plugin:register",
}
LOAD = """
import sys
from importlib.metadata import entry_points
for group in sys.argv[1:]:
    found = [one for one in entry_points(group=group) if one.name == "paritas"]
    print(group, found[0].value, found[0].load().__module__)
    found[0].load()()
"""


@pytest.mark.slow
def test_an_installed_wheel_is_found_by_the_engines(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as inside:
        inside.extractall(tmp_path / "site")
    env = {"PYTHONPATH": str(tmp_path / "site"), "PARITAS_ENABLED": "0", "PATH": "/usr/bin:/bin"}
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, *GROUPS], capture_output=True, text=True, check=False, env=env
    )
    expected = "".join(f"{group} {value} {value.partition(':')[0]}\n" for group, value in GROUPS.items())
    assert (loaded.returncode, loaded.stderr, loaded.stdout) == (0, "", expected)
