"""Setting Flink up says what is missing in one line, and leaves nothing half made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from system.flink_setup import missing_tool

SETUP = Path(__file__).with_name("flink_setup.py")
NOWHERE = "http://127.0.0.1:1/simple"

pytestmark = pytest.mark.timeout(600)


def set_up(cache, **env):
    """Run the set-up with a cache of its own; returns (code, lines that it said)."""
    told = os.environ | {"PARITAS_CACHE": str(cache)} | env
    done = subprocess.run(
        [sys.executable, str(SETUP)], env=told, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


@pytest.fixture
def cache(tmp_path):
    if reason := missing_tool():
        pytest.skip(reason)
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("present", "text"),
    [
        ((), "flink: java is not installed: Flink runs on Java 17 or newer"),
        (("java",), "flink: mvn is not installed: Maven copies Flink's Kafka connector"),
    ],
)
def test_a_missing_tool_is_named(present, text, tmp_path):
    for tool in present:
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    assert set_up(tmp_path / "cache", PATH=str(tmp_path)) == (1, [text])
    assert not (tmp_path / "cache").exists()


@pytest.mark.thorough
def test_without_the_network_one_line_says_so_and_nothing_is_used(cache):
    code, said = set_up(cache, PIP_INDEX_URL=NOWHERE, PIP_RETRIES="0", PIP_CONFIG_FILE=os.devnull)
    assert code == 1
    assert len(said) == 2
    assert said[0].startswith("flink: installing apache-flink==2.2.0 and paritas into ")
    assert said[1].startswith("flink: apache-flink==2.2.0 cannot be had: is the network up? ")
    assert not (cache / "flink-venv").exists()
    assert not list(cache.glob("flink-venv-*/.installed"))


def test_another_file_than_the_pinned_connector_is_refused(cache, tmp_path):
    """A Maven that copies something else; the environment is taken as made."""
    mvn = tmp_path / "mvn"
    mvn.write_text(
        "#!/bin/sh\n"
        "for word; do case $word in -DoutputDirectory=*) folder=${word#*=} ;; esac; done\n"
        'echo other > "$folder/flink-sql-connector-kafka-5.0.0-2.2.jar"\n'
    )
    mvn.chmod(0o755)
    probe = (
        "import sys; sys.path.insert(0, sys.argv[1]); from system import flink_setup as s\n"
        "s.CACHE.mkdir(); jar, recipe = next(iter(s.JARS.items()))\n"
        "try: s._fetch_jar(recipe[0], jar, recipe[1])\n"
        "except s.SetupError as error: print(error, jar.exists(), len(list(jar.parent.iterdir())))"
    )
    told = os.environ | {"PARITAS_CACHE": str(cache), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", probe, str(SETUP.parents[1])]
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=60, check=True)
    assert "flink-sql-connector-kafka:5.0.0-2.2: SHA-256 is " in done.stdout
    assert done.stdout.endswith(" False 0\n")
