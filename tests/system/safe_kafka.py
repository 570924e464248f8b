"""A real broker with a listener that wants both TLS and SCRAM, and the file that a user writes for it."""

from free_ports import free_ports
from system.kafka_broker import PASSWORD, SCRAM_LOGIN, KafkaBroker

from paritas.agent.eventlog.kafka_settings import KafkaSettings, TopicSettings
from paritas.agent.eventlog.kafka_topic import ensure_topic

LISTENER = "listener.name.sasl_ssl"


class SafeBroker(KafkaBroker):
    """Beside the plain listener for tests there is one at `safe_bootstrap`."""

    def __init__(self, directory):
        [self.safe_port] = free_ports(1)
        super().__init__(directory)
        plain, safe = f"PLAINTEXT://127.0.0.1:{self.port}", f"SASL_SSL://{self.safe_bootstrap}"
        self._further = (
            f"listeners={plain},{safe},CONTROLLER://127.0.0.1:{self.controller_port}",
            f"advertised.listeners={plain},{safe}",
            f"{LISTENER}.sasl.enabled.mechanisms=SCRAM-SHA-512",
            f"{LISTENER}.scram-sha-512.sasl.jaas.config={SCRAM_LOGIN}",
        )

    @property
    def safe_bootstrap(self):
        """Address of the listener that is encrypted and asks who is there."""
        return f"localhost:{self.safe_port}"


def settings_file(folder, broker, *, password=PASSWORD, connect="60s"):
    """What a user writes."""
    (folder / "password").write_text(password + "\n")
    path = folder / "kafka.yaml"
    path.write_text(
        "kafka:\n"
        f"  bootstrap: ['{broker.safe_bootstrap}']\n"
        f"  connect_timeout: {connect}\n"
        f"  tls: {{ca_file: {broker.certificate}}}\n"
        "  sasl:\n"
        "    mechanism: SCRAM-SHA-512\n"
        "    username: scram-user\n"
        f"    password_file: {folder / 'password'}\n"
    )
    return path


def named_topic(broker, name, partitions=2):
    """A topic made through the plain listener."""
    chosen = KafkaSettings((broker.bootstrap,), topic=name)
    ensure_topic(chosen, TopicSettings(partitions=partitions))
    return chosen
