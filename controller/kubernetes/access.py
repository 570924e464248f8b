"""Which API server, whom to trust, and as whom to ask: a pod's service account, or a kubeconfig."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from paritas.controller.secret_files import bearer
from paritas.errors import TransientError, UsageError

__all__ = ["ACCOUNT", "ClusterAccess", "in_cluster", "trusting"]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = "https://kubernetes.default.svc"
OUTSIDE = "outside of a cluster name a --kubeconfig"


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How one cluster is asked.

    Attributes
    ----------
    server : str
        Base URL of the API server, https.
    tls : ssl.SSLContext
        Whom to trust, and the client's certificate where there is one.
    namespace : str
        The one meant where none is named; empty for none.
    token : str
        Bearer token; empty where there is none, or where it is in a file.
    token_file : Path, optional
        Read again for every request, because it is renewed.
    """

    server: str
    tls: ssl.SSLContext
    namespace: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that say who asks.

        Raises
        ------
        TransientError
            The token's file cannot be read now; it may be in renewal.
        """
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        try:
            return bearer(self.token_file)
        except UsageError as error:
            raise TransientError(str(error)) from error


def in_cluster(folder: Path = ACCOUNT, *, server: str = SERVER) -> ClusterAccess:
    """Return the access of this pod's service account.

    Raises
    ------
    UsageError
        This is no pod, or its account's token is not mounted.
    """
    token_file = folder / "token"
    if not token_file.is_file():
        hint = f"mount the service account's token; {OUTSIDE}"
        raise UsageError(f"there is no service account in {folder}", hint=hint)
    namespace = folder / "namespace"
    own = namespace.read_text().strip() if namespace.is_file() else ""
    return ClusterAccess(server, trusting(folder / "ca.crt"), own, token_file=token_file)


def trusting(ca_file: Path | None = None, *, text: str | None = None) -> ssl.SSLContext:
    """Return what trusts the authorities of a file or of a PEM text; those of the system without either.

    Raises
    ------
    UsageError
        It cannot be read, or holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file), cadata=text)
    except (OSError, ValueError) as error:
        unread = error.strerror if isinstance(error, FileNotFoundError | PermissionError) else ""
        reason = unread or "it holds no certificate"
        raise UsageError(f"cannot trust {str(ca_file or 'the authorities')!r}: {reason}") from error
