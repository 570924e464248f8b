"""Why a cluster does not serve us: the client library answers every failure with the same timeout."""

import socket
import ssl

from paritas.agent.eventlog.kafka_errors import KafkaProblem, KafkaTransientError, KafkaUsageError
from paritas.agent.eventlog.kafka_settings import KafkaSettings, host_and_port

__all__ = ["why_not_served"]


_Refusal = KafkaTransientError | KafkaUsageError


def why_not_served(settings: KafkaSettings, context: ssl.SSLContext | None) -> _Refusal:
    """Connect to each address as the library would, and say how far it goes.

    Parameters
    ----------
    settings : KafkaSettings
        Addresses and identity that were not served.
    context : ssl.SSLContext, optional
        How to encrypt; None for a connection in the clear.

    Returns
    -------
    KafkaTransientError or KafkaUsageError
        Of the address that came furthest.
    """
    errors = [_try(address, settings, context) for address in settings.bootstrap]
    furthest = [KafkaProblem.UNREACHABLE, KafkaProblem.TLS, KafkaProblem.NOT_LET_IN]
    return max(errors, key=lambda error: furthest.index(error.problem))


def _try(address: str, settings: KafkaSettings, context: ssl.SSLContext | None) -> _Refusal:
    host, port = host_and_port(address)
    try:
        with socket.create_connection((host, port), timeout=settings.connect_timeout_s) as plain:
            if context is not None:
                context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLError as error:
        return _tls_error(address, error)
    except OSError as error:
        return KafkaTransientError(
            KafkaProblem.UNREACHABLE,
            f"cannot connect to {address}: {error.strerror or error}",
            hint="is the broker up, and the address right?",
        )
    return _not_let_in(address, settings)


def _tls_error(address: str, error: ssl.SSLError) -> KafkaUsageError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return KafkaUsageError(
            KafkaProblem.TLS,
            f"{address}: its certificate is not trusted: {error.verify_message}",
            hint="give its certificate authority as ca_file",
        )
    return KafkaUsageError(
        KafkaProblem.TLS, f"{address}: no TLS there", hint="use the broker's TLS listener, or no TLS"
    )


def _not_let_in(address: str, settings: KafkaSettings) -> KafkaTransientError:
    if settings.sasl is not None:
        who = settings.sasl.username or settings.sasl.token_file
        return KafkaTransientError(
            KafkaProblem.NOT_LET_IN,
            f"{address} did not let us in with SASL {settings.sasl.mechanism} as {str(who)!r}",
            hint="check user and password, and that this listener offers the mechanism",
        )
    return KafkaTransientError(
        KafkaProblem.NOT_LET_IN,
        f"{address} takes the connection but does not serve it",
        hint="it may want TLS or SASL, be overloaded, or be no Kafka broker",
    )
