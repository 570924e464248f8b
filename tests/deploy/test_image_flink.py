"""The Flink image really judges: its own cluster in a container, on a real broker, as the user and with the rights of the chart.

It takes minutes and 3 GB to build, so it is built by hand and named:

    deploy/image/build.sh --target flink --base BASE --tag NAME
    PARITAS_TEST_FLINK_IMAGE=NAME pytest tests/deploy/test_image_flink.py
"""

import json
import os

import pytest
from deploy.containers import USER, podman
from deploy.parts import why_not
from deploy.pod_kafka import PodKafka
from deploy.pod_scene import AGENT_PORT, Scene, delivered_all, send
from system.parts import why_not as why_no_part

IMAGE = os.environ.get("PARITAS_TEST_FLINK_IMAGE", "")
MISSING = (
    "PARITAS_TEST_FLINK_IMAGE names no image: deploy/image/build.sh --target flink makes one (minutes, 3 GB)"
)
REASON = why_not("containers") or why_no_part("kafka") or ("" if IMAGE else MISSING)
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)

# The Flink operator's pods keep a writable root: Flink unpacks native libraries and writes logs there.
RIGHTS = ("--user=65532:65532", "--cap-drop=all", "--security-opt=no-new-privileges", "--memory=3g")
LIMITS = (
    "--ulimit=nofile=1024:1024",
    "--ulimit=nproc=1000:1000",
    "--hostname=flink",
    "--add-host=flink:127.0.0.1",
)


def test_starts_what_the_flink_operator_starts():
    words = [
        "bash",
        "-c",
        "command -v kubernetes-jobmanager.sh kubernetes-taskmanager.sh && java -version 2>&1",
    ]
    run = ("run", "--rm", "--network=none", *RIGHTS, *LIMITS, "--entrypoint=/docker-entrypoint.sh", IMAGE)
    said = podman(*run, *words)
    assert said.splitlines()[:2] == [
        f"/opt/flink/bin/kubernetes-{name}manager.sh" for name in ("job", "task")
    ]
    assert ' "17.' in said


def test_judges_a_topic_to_its_end(tmp_path):
    verdicts = tmp_path / "verdicts"
    verdicts.mkdir()
    os.chown(verdicts, USER, USER)
    with Scene(tmp_path) as scene, PodKafka(scene.pod, tmp_path / "kafka") as kafka:
        scene.make_topics(kafka.bootstrap)
        with scene.agent(f"{{kafka: {{bootstrap: ['{kafka.bootstrap}']}}}}") as agent:
            agent.wait_for(lambda: agent.well(AGENT_PORT), "the agent is ready")
            delivered_all(agent, send(scene.socket, "stale", "healthy.serve", "stale.train"))
        options = (f"--network={scene.pod.network}", f"--volume={verdicts}:/verdicts", *RIGHTS, *LIMITS)
        judge = ("detect", "--engine", "flink", "--kafka", kafka.bootstrap, "--contract", "dense-bf16")
        podman("run", "--rm", *options, IMAGE, *judge, "--to-end", "--verdicts", "/verdicts", timeout_s=150)
    (line,) = [
        line for path in verdicts.rglob("*") if path.is_file() for line in path.read_text().splitlines()
    ]
    assert '"violated"' in line
    assert json.loads(line)
