"""`paritas topics` against a real broker: made once, with the declared settings, and left alone after that."""

import json
from contextlib import closing

import pytest

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from paritas.cli import main


def topics(broker, *more):
    return main(["topics", "--kafka", broker.bootstrap, "--replicas", "1", *more])


def configs(broker, topic):
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
        told = admin.describe_configs(asked, config_filter="all")
    return {name: entry["value"] for name, entry in told["topic"][topic].items()}


def test_topics_are_made_once_with_what_was_asked_for(serving_broker, capsys):
    names = ("--spans", "t-spans", "--escalations", "t-escalations")
    assert topics(serving_broker, *names, "--partitions", "5", "--retention", "12h") == 0
    assert capsys.readouterr().out == "t-spans: made, 5 partitions\nt-escalations: made, 1 partition\n"
    assert topics(serving_broker, *names, "--partitions", "9", "--json") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"topic": "t-spans", "partitions": 5, "made": False},
        {"topic": "t-escalations", "partitions": 1, "made": False},
    ]
    spans = configs(serving_broker, "t-spans")
    assert spans["retention.ms"] == str(12 * 3600 * 1000)
    assert spans["message.timestamp.type"] == "LogAppendTime"
    assert configs(serving_broker, "t-escalations")["retention.ms"] == str(90 * 86_400 * 1000)


def test_more_copies_than_brokers_is_one_clear_error(serving_broker, capsys):
    code = main(["topics", "--kafka", serving_broker.bootstrap, "--spans", "t-copies"])
    assert code == 64
    assert capsys.readouterr().err.startswith(
        f"[usage] topic 't-copies' on {serving_broker.bootstrap} cannot be made: "
    )
