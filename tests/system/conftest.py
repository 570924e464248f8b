"""Real parts for the tests of this folder; each part has a module of its own here."""

import pytest
from left_sockets import pytest_itemcollected, pytest_runtest_setup, pytest_sessionfinish  # noqa: F401

REWRITTEN = ("agent_faults", "agent_process", "chain_process", "detector_faults")  # asserts outside of tests

pytest.register_assert_rewrite("eventlog_contract", *(f"system.{name}" for name in REWRITTEN))


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory):
    """One Apache Kafka broker for the session; a test that stops it starts it again."""
    pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")
    from system.kafka_broker import KafkaBroker
    from system.parts import why_not

    if reason := why_not("kafka"):
        pytest.skip(reason)
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def serving_broker(kafka_broker):
    """The broker, serving before the test and after it."""
    kafka_broker.start()
    yield kafka_broker
    kafka_broker.start()


@pytest.fixture(scope="session")
def safe_broker(tmp_path_factory):
    """A broker that wants TLS and SCRAM."""
    pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")
    from system.parts import why_not
    from system.safe_kafka import SafeBroker

    if reason := why_not("kafka"):
        pytest.skip(reason)
    with SafeBroker(tmp_path_factory.mktemp("kafka-tls")) as broker:
        yield broker


@pytest.fixture(scope="session")
def flink(tmp_path_factory):
    """One Flink cluster of two task managers for the session."""
    from system.flink_cluster import FlinkCluster
    from system.parts import why_not

    if reason := why_not("flink"):
        pytest.skip(reason)
    with FlinkCluster(tmp_path_factory.mktemp("flink")) as cluster:
        yield cluster
