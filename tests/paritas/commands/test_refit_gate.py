"""The refit gate live: `paritas up` with a contract that declares it, on the recording with a stale replica."""

import gzip
import json
import signal

from command_runs import recording, run, service, until

CONTRACT = """apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: gated, version: 1.0.0}
spec:
  preset: dense-bf16
  refit: {tokens: 400}
"""


def versioned(path, name):
    """Write a shipped recording as of weights version 7."""
    with gzip.open(recording(name), "rt") as file, path.open("w") as out:
        for line in file:
            out.write(json.dumps({**json.loads(line), "weights_version": "7"}) + "\n")
    return path


def test_a_replica_with_a_failed_weight_sync_is_rejected_before_it_counts(tmp_path):
    contract = tmp_path / "gated.yaml"
    contract.write_text(CONTRACT)
    serve = versioned(tmp_path / "serve.jsonl", "healthy.serve")
    train = versioned(tmp_path / "train.jsonl", "stale.train")
    with service(tmp_path / "data", "--contract", str(contract)) as process:
        assert run("ingest", "--data", tmp_path / "data", serve, train).returncode == 0
        fired = until(lambda: _rejected(process))
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    assert fired.split()[0] == "critical"
    assert " in replica=r2: weights 7 rejected: " in fired
    # It is stopped at the rejection: how many others were accepted by then is chance.
    assert "1 versions rejected, " in rest
    assert " sequences held" in rest


def _rejected(process):
    line = process.stdout.readline()
    return line if "rejected" in line else ""
