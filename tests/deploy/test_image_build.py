"""`deploy/image/build.sh` and the Containerfile, without building: what they refuse, and what linters say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from deploy.parts import why_not
from system.flink_setup import JARS

IMAGE = Path(__file__).parents[2] / "deploy" / "image"
CONTAINERFILES = ["Containerfile", "flink-base.Containerfile"]
RULE_ARGUED_AWAY = re.compile(r"hadolint ignore=(\w+)")


def build(*words, **variables):
    done = subprocess.run(
        [IMAGE / "build.sh", *words],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | variables,
        timeout=60,
    )
    return done.returncode, done.stderr


def test_says_what_it_needs_where_no_builder_is():
    needs = (
        "image: needs buildah, podman or docker on PATH to build an image (Debian: apt-get install buildah)\n"
    )
    assert build("--target", "agent", BUILDER="no-such-builder") == (1, needs)


def test_names_the_targets_it_knows():
    assert build("--target", "slim") == (2, "image: knows the targets agent, full and flink, not slim\n")


@pytest.mark.parametrize("words", [["--what"], ["--target"]])
def test_says_how_it_is_used(words):
    returned, said = build(*words)
    assert returned == 2
    assert said.startswith("Build an image of Paritas")
    assert "--wheels" in said
    assert "set -E" not in said


@pytest.mark.parametrize("name", CONTAINERFILES)
def test_hadolint_finds_nothing(name):
    if reason := why_not("tools"):
        pytest.skip(reason)
    from deploy.tools_setup import tool

    done = subprocess.run([tool("hadolint"), IMAGE / name], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", CONTAINERFILES)
def test_every_rule_that_is_ignored_has_its_reason_before_it(name):
    lines = (IMAGE / name).read_text().splitlines()
    for number, line in enumerate(lines):
        if RULE_ARGUED_AWAY.search(line):
            assert lines[number - 1].startswith("# "), line


@pytest.mark.parametrize("name", CONTAINERFILES)
def test_the_base_is_pinned_by_digest(name):
    (base,) = re.findall(r"^ARG BASE=(.+)$", (IMAGE / name).read_text(), re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base)


def test_docker_reads_the_same_ignore_file():
    assert (IMAGE / "Containerfile.dockerignore").resolve() == (IMAGE / ".containerignore").resolve()


def test_the_context_holds_only_what_the_containerfile_copies():
    kept = re.findall(r"^!(.+)$", (IMAGE / ".containerignore").read_text(), re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (IMAGE / "Containerfile").read_text(), re.MULTILINE)
    assert {word.rstrip("/") for line in copied for word in line.split()} == set(kept)


def test_the_jars_are_those_that_the_flink_tests_run_with():
    lines = [line.split() for line in (IMAGE / "jars-flink.txt").read_text().splitlines() if line[0] != "#"]
    assert {tuple(line) for line in lines} == set(JARS.values())


def test_what_comes_as_source_only_is_split_off_by_name():
    words = ["awk", "-f", IMAGE / "only.awk", "-v", f"names={(IMAGE / 'source-only.txt').read_text()}"]
    parts = [
        subprocess.run(
            [*words, "-v", f"kept={kept}", IMAGE / "requirements-flink.txt"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for kept in (0, 1)
    ]
    names = [re.findall("^([a-z0-9-]+)==", part, re.MULTILINE) for part in parts]
    assert names[1] == ["crcmod", "dill", "docopt", "hdfs"]
    whole = re.findall("^([a-z0-9-]+)==", (IMAGE / "requirements-flink.txt").read_text(), re.MULTILINE)
    assert sorted(names[0] + names[1]) == sorted(whole)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", part) for part in parts)


def test_every_locked_file_has_a_hash():
    for path in IMAGE.glob("requirements-*.txt"):
        text = path.read_text()
        pinned = re.findall(r"^\S+==\S+(?: ; .+)? \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
        assert len(pinned) == len(re.findall("^[a-z0-9]", text, re.MULTILINE)), path
        assert not re.search(r"https?://", text), path


def test_the_examples_of_the_sbom_are_true():
    done = subprocess.run(
        [sys.executable, "-m", "doctest", IMAGE / "sbom.py"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")
