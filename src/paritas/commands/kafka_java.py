"""The same Kafka settings as Flink's Java clients name them; pure, needs no Flink."""

from dataclasses import dataclass

from paritas.agent.eventlog.kafka_settings import KafkaSettings, Sasl, SaslMechanism, Tls
from paritas.errors import UsageError

__all__ = ["Pem", "java_properties", "read_pem"]

# Flink's connector jar carries Kafka's client under a name of its own.
SECURITY = "org.apache.flink.kafka.shaded.org.apache.kafka.common.security"
MODULES = {
    SaslMechanism.PLAIN: "plain.PlainLoginModule",
    SaslMechanism.SCRAM_SHA_256: "scram.ScramLoginModule",
    SaslMechanism.SCRAM_SHA_512: "scram.ScramLoginModule",
}


@dataclass(frozen=True, slots=True)
class Pem:
    """What the files of a TLS section hold: task managers on other machines have no such files.

    Attributes
    ----------
    authorities, certificate, key : str
        PEM; empty for none.
    """

    authorities: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        """Without the key."""
        return "Pem(…)"


def read_pem(tls: Tls | None) -> Pem:
    """Read the files.

    Raises
    ------
    UsageError
        One cannot be read.
    """
    if tls is None:
        return Pem()
    try:
        texts = [
            path.read_text() if path else "" for path in (tls.ca_file, tls.certificate_file, tls.key_file)
        ]
    except (OSError, ValueError) as error:
        named = getattr(error, "filename", None) or "a TLS file"
        reason = getattr(error, "strerror", None) or "not text"
        raise UsageError(f"{named}: {reason}", hint="expected PEM files") from error
    return Pem(*texts)


def java_properties(settings: KafkaSettings, pem: Pem = Pem()) -> dict[str, str]:
    """Return the properties of encryption and authentication for a Java client; none of a plain cluster.

    Parameters
    ----------
    pem : Pem
        What the TLS section's files hold.

    Raises
    ------
    UsageError
        What Java's client does not do: a key that is not PKCS #8, a bearer token of one file.

    Examples
    --------
    >>> java_properties(KafkaSettings(("a:1",), tls=Tls()))
    {'security.protocol': 'SSL'}
    """
    if settings.tls is None and settings.sasl is None:
        return {}
    transport = "PLAINTEXT" if settings.tls is None else "SSL"
    protocol = transport if settings.sasl is None else f"SASL_{transport}"
    return {"security.protocol": protocol, **_tls(settings.tls, pem), **_sasl(settings.sasl)}


def _tls(tls: Tls | None, pem: Pem) -> dict[str, str]:
    found: dict[str, str] = {}
    if tls is None:
        return found
    if pem.authorities:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem.authorities}
    if pem.certificate:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": pem.certificate}
        found["ssl.keystore.key"] = _pkcs8(pem.key, tls)
    if not tls.check_hostname:
        found["ssl.endpoint.identification.algorithm"] = ""
    return found


def _pkcs8(key: str, tls: Tls) -> str:
    if "-----BEGIN PRIVATE KEY-----" not in key:
        hint = f"convert it: openssl pkcs8 -topk8 -nocrypt -in {tls.key_file} -out key.pem"
        raise UsageError(
            f"{tls.key_file}: Java's Kafka client takes unencrypted PKCS #8 keys only", hint=hint
        )
    return key


def _sasl(sasl: Sasl | None) -> dict[str, str]:
    if sasl is None:
        return {}
    if sasl.mechanism not in MODULES:
        raise UsageError(
            f"--engine flink has no SASL {sasl.mechanism} by token_file",
            hint="use SCRAM or PLAIN, or say Java's own properties with --kafka-setting",
        )
    login = f"username={_quoted(sasl.username)} password={_quoted(sasl.password)}"
    module = f"{SECURITY}.{MODULES[sasl.mechanism]}"
    return {"sasl.mechanism": str(sasl.mechanism), "sasl.jaas.config": f"{module} required {login};"}


def _quoted(text: str) -> str:
    r"""Return a quoted value of a JAAS entry.

    Examples
    --------
    >>> print(_quoted('a"b'))
    "a\"b"
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
