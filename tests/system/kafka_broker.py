"""A real broker for tests: Apache Kafka in its own process, on free ports, that can be stopped, killed and started again."""

import os
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import Self

from free_ports import free_ports
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from paritas.clock import SystemClock

KAFKA_SH = Path(__file__).parents[2] / "deploy" / "kafka" / "kafka.sh"
USERS = {"SCRAM-SHA-256": "scram-user", "SCRAM-SHA-512": "scram-user", "PLAIN": "plain-user"}
PASSWORD = "correct-horse"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
BEARER_LOGIN = 'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
BEARER = "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
FORMAT_OPTIONS = " ".join(
    f"--add-scram {mechanism}=[name=scram-user,password={PASSWORD}]"
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
)


def missing_tool():
    """Why no broker can be started here; None if one can."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed: the real broker cannot be started"
    return None


def fetch():
    """Copy the broker's jars, once; says so.  CalledProcessError if they cannot be had."""
    subprocess.run([KAFKA_SH, "fetch"], check=True)


class KafkaBroker:
    """One broker; a context manager.  After `stop` or `kill`, `start` serves the same data again.

    Parameters
    ----------
    directory : Path
        Data, logs and settings of this broker.
    properties : iterable of str
        Further broker settings.
    """

    def __init__(self, directory, properties=()):
        self.directory = directory
        self.port, self.controller_port, self.sasl_port, self.tls_port = free_ports(4)
        self._further = tuple(properties)
        self._process = None
        self._clock = SystemClock()

    @property
    def bootstrap(self):
        """Address of the listener without encryption or authentication."""
        return f"127.0.0.1:{self.port}"

    @property
    def sasl_bootstrap(self):
        """Address of the listener that asks who is there."""
        return f"127.0.0.1:{self.sasl_port}"

    @property
    def tls_bootstrap(self):
        """Address of the encrypted listener; its certificate is for localhost."""
        return f"localhost:{self.tls_port}"

    @property
    def log(self):
        """What the broker printed."""
        return self.directory / "kafka.log"

    @property
    def data(self):
        """Where its partitions are."""
        return self.directory / "data"

    def start(self):
        """Return when the broker serves; nothing happens if it does already."""
        if self._process is not None and self._process.poll() is None:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "further.properties"
        properties.write_text("\n".join(self._properties()) + "\n")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(KAFKA_SH), "run"],
                env=os.environ | self._environment(properties),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is for pytest, which stops it in order
            )
        self._wait_until_it_serves(timeout_s=120)

    def _environment(self, properties):
        return {
            "KAFKA_PORT": str(self.port),
            "KAFKA_CONTROLLER_PORT": str(self.controller_port),
            "KAFKA_DATA": str(self.data),
            "KAFKA_LOGS": str(self.directory),
            "KAFKA_PROPERTIES": str(properties),
            "KAFKA_FORMAT_OPTIONS": FORMAT_OPTIONS,
            "KAFKA_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts sooner, on few cores
        }

    def _properties(self):
        plain, tls = f"PLAINTEXT://127.0.0.1:{self.port}", f"SSL://localhost:{self.tls_port}"
        sasl = f"SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}"
        login = "listener.name.sasl_plaintext"
        yield f"listeners={plain},{sasl},{tls},CONTROLLER://127.0.0.1:{self.controller_port}"
        yield f"advertised.listeners={plain},{sasl},{tls}"
        yield f"{login}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
        yield f'{login}.plain.sasl.jaas.config={PLAIN_LOGIN} user_plain-user="{PASSWORD}";'
        yield f"{login}.scram-sha-256.sasl.jaas.config={SCRAM_LOGIN}"
        yield f"{login}.scram-sha-512.sasl.jaas.config={SCRAM_LOGIN}"
        yield f"{login}.oauthbearer.sasl.jaas.config={BEARER_LOGIN}"
        yield f"{login}.oauthbearer.sasl.server.callback.handler.class={BEARER}.OAuthBearerUnsecuredValidatorCallbackHandler"
        yield f"{login}.oauthbearer.sasl.login.callback.handler.class={BEARER}.OAuthBearerUnsecuredLoginCallbackHandler"
        yield from self._tls_properties()
        yield from self._further

    def _tls_properties(self):
        store = self.certificate.with_suffix(".p12")
        if not store.exists():
            make_certificate(store, self.certificate)
        yield f"ssl.keystore.location={store}"
        yield "ssl.keystore.type=PKCS12"
        yield f"ssl.keystore.password={PASSWORD}"

    @property
    def certificate(self):
        """What a client must trust to use the encrypted listener."""
        return self.directory / "broker.pem"

    def _wait_until_it_serves(self, *, timeout_s):
        deadline_ns = self._clock.monotonic_ns() + timeout_s * 1_000_000_000
        while not self.serves():
            ended = self._process.poll()
            late = self._clock.monotonic_ns() > deadline_ns
            if ended is not None or late:
                what = f"ended with {ended}" if ended is not None else f"did not serve within {timeout_s} s"
                raise AssertionError(f"the broker {what}:\n{self.log.read_text()[-4000:]}")
            self._clock.wait(threading.Event(), timeout_s=0.1)

    def serves(self):
        """Whether the broker answers a client."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                pass
            with closing(
                KafkaAdminClient(bootstrap_servers=self.bootstrap, bootstrap_timeout_ms=2000)
            ) as admin:
                return bool(admin.describe_cluster()["brokers"])
        except (KafkaError, OSError):
            return False

    def stop(self):
        """End it in order; twice is fine."""
        self._end(signal.SIGTERM)

    def kill(self):
        """End it at once, as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, how):
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=60)
        self._process = None

    def pause(self):
        """Freeze it: connections stay, nothing answers."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        """Go on after `pause`."""
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()


def make_certificate(store, certificate):
    """A key with a certificate for localhost, made by the tool that comes with Java."""
    common = ["-storetype", "PKCS12", "-keystore", str(store), "-storepass", PASSWORD, "-alias", "broker"]
    subject = ["-dname", "CN=localhost", "-ext", "SAN=dns:localhost,ip:127.0.0.1", "-validity", "30"]
    keytool("-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", *subject, *common)
    keytool("-exportcert", "-rfc", "-file", str(certificate), *common)


def keytool(*arguments):
    subprocess.run(["keytool", *arguments], check=True, capture_output=True, timeout=60)
