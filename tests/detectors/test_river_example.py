"""The upstream-ready example stands alone, keeps river's conventions and says what our own detector says."""

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS
from river import base
from river.checks import common

from paritas.detectors.river_detectors import SRDetector

PATH = Path(__file__).resolve().parents[2] / "examples/river/shiryaev_roberts.py"
spec = importlib.util.spec_from_file_location("shiryaev_roberts", PATH)
example = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = example  # where pickle looks for the class
spec.loader.exec_module(example)
ShiryaevRoberts = example.ShiryaevRoberts
CHECKS = [
    check
    for name, check in vars(common).items()
    if name.startswith("check_")
    and name != "check_tags"  # river's own detectors have no tags
    and list(inspect.signature(check).parameters) == ["model"]
]


@pytest.mark.slow
def test_it_runs_by_itself_and_its_examples_hold():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-B", str(PATH)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    doctest, ours, peer = done.stdout.splitlines()
    assert doctest == "doctest: 17 examples, 0 failed"
    told = (
        "{}: alarms at an error rate of: 0 at 5%, 0 at 8%, {} at 25%; the last rate is found after {} values"
    )
    assert ours == told.format("ShiryaevRoberts(limit=0.1)", 20, 56)
    assert peer == told.format("PageHinkley()", 1, 104)
    assert done.returncode == 0


def test_it_needs_river_and_nothing_of_ours():
    code = f"import runpy, sys; runpy.run_path({str(PATH)!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.split() if name.split(".")[0] == "paritas"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("place", [0, 1])
def test_it_passes_rivers_checks(place, check):
    parameters = list(ShiryaevRoberts._unit_test_params())[place]
    check(ShiryaevRoberts(**parameters))


def test_it_is_a_detector_of_river_with_the_sections_of_its_modules():
    assert issubclass(ShiryaevRoberts, base.DriftAndWarningDetector)
    told = inspect.getdoc(ShiryaevRoberts)
    for section in ("Parameters\n----------", "Examples\n--------", "References\n----------\n[^1]:"):
        assert section in told
    for name in inspect.signature(ShiryaevRoberts).parameters:
        assert f"\n{name}\n    " in told, name


@settings(max_examples=30)
@given(SEEDS, st.floats(0.2, 6.0))
def test_it_says_what_our_detector_says(seed, level):
    values = np.random.default_rng(seed).exponential(0.05 * level, 120)
    ours, theirs = (
        kind(limit=0.05, threshold=1e3, warning_threshold=30.0) for kind in (SRDetector, ShiryaevRoberts)
    )
    for value in [*values.tolist(), float("nan"), -1.0, float("inf")]:
        ours.update(value)
        theirs.update(value)
        flags = [(d.drift_detected, d.warning_detected) for d in (ours, theirs)]
        assert flags[0] == flags[1]
        assert ours.log_evidence == pytest.approx(theirs.log_evidence, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"limit": 0.0}, "limit must be positive and finite"),
        ({"threshold": 1.0}, "threshold and warning_threshold must be larger than 1"),
        ({"bets": (1.0,)}, "bets must lie between 0 and 1"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused(parameters, told):
    with pytest.raises(ValueError, match=f"^{told}$"):
        ShiryaevRoberts(**parameters)
