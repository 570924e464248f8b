"""Controller and detector as the chart starts them: their rendered arguments, the certificate and tokens Helm made."""

import base64
import os
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.x509 import DNSName, SubjectAlternativeName, load_pem_x509_certificate
from deploy.chart_cases import containers, named, rendered
from deploy.parts import why_not
from free_ports import free_port
from system.otel_parts import running, wait_until

from paritas.contracts.model import Operator, Requirement
from paritas.controller.client import EscalationClient
from paritas.controller.config import TlsFiles
from paritas.controller.refusals import RefusalError, Refused
from paritas.errors import TransientError

pytestmark = pytest.mark.skipif(why_not("helm") is not None, reason=str(why_not("helm")))
PARITAS = Path(sys.executable).with_name("paritas")
MATCHER = Requirement("clause", Operator.IN, ("token-tv",))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A controller from the chart's arguments, its paths moved here; once every probe of it is answered; yields its target and the folder of secrets."""
    folder, objects = tmp_path_factory.mktemp("pod"), rendered("minimal")
    for secret in (o for o in objects if o["kind"] == "Secret"):
        for name, value in secret["data"].items():
            write(folder / secret["metadata"]["name"] / name, base64.b64decode(value))
    (container,) = containers(named(objects, "StatefulSet", "demo-paritas-controller"))
    moved = {
        "/etc/paritas/secrets/tls": str(folder / "demo-paritas-controller-tls"),
        "/etc/paritas/secrets/access": str(folder / "demo-paritas-access"),
        "/var/lib/paritas": str(folder / "state"),
    }
    with started(container, moved, folder / "log") as ports:
        yield f"localhost:{ports[4320]}", folder


@contextmanager
def started(container, moved, log):
    """Run a container's arguments here until the block ends; yields its ports once every probe is answered."""
    ports = {port["containerPort"]: free_port() for port in container["ports"]}
    names = {port["name"]: ports[port["containerPort"]] for port in container["ports"]}
    moved = moved | {f"0.0.0.0:{port}": f"127.0.0.1:{here}" for port, here in ports.items()}
    asked = [
        container[p]["httpGet"] for p in ("startupProbe", "livenessProbe", "readinessProbe") if p in container
    ]
    pages = [f"http://127.0.0.1:{names[page['port']]}{page['path']}" for page in asked]
    command = [PARITAS, *(rewritten(argument, moved) for argument in container["args"])]
    with running(command, log, environment={}, ports={}) as process:
        wait_until(lambda: all(map(answers, pages)), "every probe is answered", alive=process)
        yield ports


def test_a_detector_lives_and_is_not_restarted_while_kafka_is_away(served, tmp_path):
    target, folder = served
    objects = rendered("minimal")
    settings = named(objects, "ConfigMap", "demo-paritas-kafka")["data"]["kafka.yaml"]
    contract = named(objects, "ConfigMap", "demo-paritas-contracts")["data"]["dense.yaml"]
    write(
        tmp_path / "kafka.yaml", settings.replace("kafka-0.kafka:9092", f"127.0.0.1:{free_port()}").encode()
    )
    write(tmp_path / "dense.yaml", contract.encode())
    moved = {
        "/etc/paritas/kafka": str(tmp_path),
        "/etc/paritas/contracts": str(tmp_path),
        "/etc/paritas/secrets/controller-ca": str(folder / "demo-paritas-controller-tls"),
        "/etc/paritas/secrets/controller-token": str(folder / "demo-paritas-detectors-token"),
        "/var/lib/paritas": str(tmp_path),
        "demo-paritas-controller.paritas.svc:4320": target,
    }
    (container,) = containers(named(objects, "StatefulSet", "demo-paritas-detect-dense"))
    with started(container, moved, tmp_path / "log") as ports:
        assert not answers(f"http://127.0.0.1:{ports[4323]}/readyz")


def test_who_is_in_the_pod_needs_no_token(served):
    _, folder = served
    (container,) = containers(named(rendered("minimal"), "StatefulSet", "demo-paritas-controller"))
    variables = {
        v["name"]: v["value"].replace("/var/lib/paritas", str(folder / "state")) for v in container["env"]
    }
    asked = [PARITAS, "incidents", "list"]
    done = subprocess.run(
        asked, env=os.environ | variables, capture_output=True, text=True, timeout=90, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("who", "may_write"), [("subscriber", False), ("detectors", True), ("admin", True)])
def test_each_token_that_helm_made_opens_what_its_role_may(served, who, may_write):
    _, folder = served
    with client(served, folder / f"demo-paritas-{who}-token/token") as asking:
        assert list(asking.incidents()) == []
        if may_write:
            asking.silence([MATCHER], author=who, comment="a test", duration_s=60)
        else:
            with pytest.raises(RefusalError) as refused:
                asking.silence([MATCHER], author=who, comment="a test", duration_s=60)
            assert refused.value.reason is Refused.FORBIDDEN


def test_nobody_is_let_in_without_a_token_or_without_tls(served, tmp_path):
    target, _ = served
    write(tmp_path / "token", b"guessed")
    with client(served, tmp_path / "token") as guessing, pytest.raises(RefusalError):
        list(guessing.incidents())
    with client(served, None) as nobody, pytest.raises(RefusalError):
        list(nobody.incidents())
    with EscalationClient(target, timeout_s=1.0) as plain, pytest.raises(TransientError):
        list(plain.incidents())


def test_the_certificate_names_the_service_and_its_authority_signs_it(served):
    _, folder = served
    files = folder / "demo-paritas-controller-tls"
    authority, own = (
        load_pem_x509_certificate((files / name).read_bytes()) for name in ("ca.crt", "tls.crt")
    )
    names = own.extensions.get_extension_for_class(SubjectAlternativeName).value.get_values_for_type(DNSName)
    service = "demo-paritas-controller"
    within = f"{service}.paritas"
    assert names == [service, within, f"{within}.svc", f"{within}.svc.cluster.local", "localhost"]
    own.verify_directly_issued_by(authority)
    assert (own.not_valid_after_utc - own.not_valid_before_utc).days == 3650


def answers(page):
    try:
        with urllib.request.urlopen(page, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def client(served, token_file):
    target, folder = served
    tls = TlsFiles(ca=folder / "demo-paritas-controller-tls/ca.crt")
    return EscalationClient(target, tls=tls, token_file=token_file, timeout_s=60.0)


def rewritten(argument, moved):
    for old, new in moved.items():
        argument = argument.replace(old, new)
    return argument


def write(path: Path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)
