"""Real parts for the tests of this folder; each part has a module of its own here."""

import gc

import pytest

pytest.register_assert_rewrite("eventlog_contract")


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory):
    """One Apache Kafka broker for the session; a test that stops it starts it again."""
    pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")
    from system.kafka_broker import KafkaBroker, missing_tool

    if reason := missing_tool():
        pytest.skip(reason)
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def serving_broker(kafka_broker):
    """The broker, serving before the test and after it."""
    kafka_broker.start()
    yield kafka_broker
    kafka_broker.start()


@pytest.fixture
def collected():
    """Garbage warns in the test that made it, not in a later one."""
    yield
    gc.collect()
