"""The same settings for Java's client: every property, and what it does not do."""

from pathlib import Path

import pytest

from paritas.agent.eventlog.kafka_settings import KafkaSettings, Sasl, SaslMechanism, Tls
from paritas.commands.kafka_java import Pem, java_properties, read_pem
from paritas.errors import UsageError

AT = ("a:1",)
SHADED = "org.apache.flink.kafka.shaded.org.apache.kafka.common.security"
KEY = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n"
CLIENT = Tls(Path("/ca"), Path("/me"), Path("/key"))


def test_a_plain_cluster_needs_nothing():
    assert java_properties(KafkaSettings(AT)) == {}


def test_authorities_travel_in_the_settings_as_other_machines_have_no_such_file():
    assert java_properties(KafkaSettings(AT, tls=Tls(Path("/ca"))), Pem("CA")) == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
    }


def test_a_client_certificate_and_any_host():
    tls = Tls(CLIENT.ca_file, CLIENT.certificate_file, CLIENT.key_file, check_hostname=False)
    found = java_properties(KafkaSettings(AT, tls=tls), Pem("CA", "ME", KEY))
    assert found == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "ME",
        "ssl.keystore.key": KEY,
        "ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        (SaslMechanism.PLAIN, "plain.PlainLoginModule"),
        (SaslMechanism.SCRAM_SHA_256, "scram.ScramLoginModule"),
        (SaslMechanism.SCRAM_SHA_512, "scram.ScramLoginModule"),
    ],
)
def test_passwords(mechanism, module):
    assert java_properties(KafkaSettings(AT, sasl=Sasl(mechanism, "me", 'a"b\\c'))) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": str(mechanism),
        "sasl.jaas.config": f'{SHADED}.{module} required username="me" password="a\\"b\\\\c";',
    }


def test_both():
    settings = KafkaSettings(AT, tls=Tls(), sasl=Sasl(SaslMechanism.PLAIN, "me", "x"))
    assert java_properties(settings)["security.protocol"] == "SASL_SSL"


def test_what_java_does_not_do():
    with pytest.raises(UsageError) as caught:
        java_properties(KafkaSettings(AT, tls=CLIENT), Pem("CA", "ME", "-----BEGIN RSA PRIVATE KEY-----"))
    assert caught.value.render() == (
        "[usage] /key: Java's Kafka client takes unencrypted PKCS #8 keys only\n"
        "  hint: convert it: openssl pkcs8 -topk8 -nocrypt -in /key -out key.pem"
    )
    bearer = Sasl(SaslMechanism.OAUTHBEARER, token_file=Path("/t"))
    with pytest.raises(UsageError) as caught:
        java_properties(KafkaSettings(AT, sasl=bearer))
    assert caught.value.render() == (
        "[usage] --engine flink has no SASL OAUTHBEARER by token_file\n"
        "  hint: use SCRAM or PLAIN, or say Java's own properties with --kafka-setting"
    )


def test_files_are_read_and_a_missing_one_is_named(tmp_path):
    for name in ("ca", "me", "key"):
        (tmp_path / name).write_text(name.upper())
    tls = Tls(tmp_path / "ca", tmp_path / "me", tmp_path / "key")
    assert read_pem(tls) == Pem("CA", "ME", "KEY")
    assert read_pem(None) == read_pem(Tls()) == Pem()
    assert repr(read_pem(tls)) == "Pem(…)"
    with pytest.raises(UsageError) as caught:
        read_pem(Tls(tmp_path / "none"))
    assert caught.value.render() == (
        f"[usage] {tmp_path / 'none'}: No such file or directory\n  hint: expected PEM files"
    )
