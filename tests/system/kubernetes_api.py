"""A real Kubernetes API server on etcd for tests: it stores, checks, admits and mutates; no kubelet runs what it stores.

Nor does a controller: a namespace gets its default service account here, and a pod its readiness, by hand.
"""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
import zlib
from contextlib import ExitStack, suppress

import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from free_ports import free_port
from system.kubernetes_parts import API_SERVER, etcd
from system.otel_parts import running, wait_until

ADMIN = "admin-token"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
REQUEST_S = 30.0


class RefusedError(Exception):
    """The API server said no: `status` is its HTTP status, the text its message."""

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status = status


class KubernetesApi:
    """etcd and one API server; a context manager.  After `stop`, `start` serves the same objects again.

    Parameters
    ----------
    directory : Path
        Data, keys and logs.
    users : mapping of str to str
        Further users by their bearer token, who may do nothing before a role says so; `ADMIN` may do all.
    flags : iterable of str
        Further flags of the API server (admission plugins, feature gates).
    """

    def __init__(self, directory, *, users=None, flags=()):
        self.directory, self._flags = directory, tuple(flags)
        self._users = {ADMIN: 'admin,admin,"system:masters"'}
        self._users |= {token: f"{name},{name}" for token, name in (users or {}).items()}
        self._port, self._etcd_port = free_port(), free_port()
        self._etcd, self._serving = ExitStack(), ExitStack()
        self.part = None  # the running API server, for its log and its process

    @property
    def server(self):
        """Base URL."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self):
        """Whom a client has to trust."""
        return self.directory / "tls" / "apiserver.crt"

    def __enter__(self):
        with ExitStack() as opened:
            opened.callback(self._etcd.close)
            opened.callback(self.stop)
            self._start_etcd()
            self._write_keys()
            self.start()
            opened.pop_all()
        return self

    def __exit__(self, *_):
        self.stop()
        self._etcd.close()

    def start(self):
        """Serve, and return when it is ready; it is not started twice."""
        if self.part is not None:
            return
        command = [API_SERVER, *self._arguments(), *self._flags]
        log = self.directory / "apiserver.log"
        self.part = self._serving.enter_context(running(command, log, environment={}, ports={}))
        wait_until(self._is_ready, "the API server is ready", alive=self.part)

    def stop(self):
        """Stop serving; etcd keeps what there is."""
        self.part = None
        self._serving.close()

    def call(self, method, path, body=None, *, token=ADMIN, content_type="application/json"):
        """Ask the API; return its answer, or raise `RefusedError`."""
        headers = {"authorization": f"Bearer {token}", "content-type": content_type}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S, context=self._trusting()) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(error.code, _message(error.read())) from error

    def apply(self, *objects):
        """Create each object or change it to this, as ``kubectl apply --server-side`` does; return what became of them."""
        return [self._apply(thing) for thing in objects]

    def apply_text(self, text):
        """Apply every document of a YAML text, as of a manifest or of what a chart renders."""
        return self.apply(*(thing for thing in yaml.safe_load_all(text) if thing))

    def namespace(self, name):
        """Make a namespace with the service account without which no pod is admitted; return the name."""
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name},
        }
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, account)
        return name

    def account_token(self, namespace, name):
        """Return a token of a service account, as the kubelet gets it for a pod."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return self.call("POST", path, asked)["status"]["token"]

    def wait_allowed(self, user, verb, resource, namespace):
        """Wait until RBAC has heard of a new role: the API server follows them a moment later."""
        attributes = {"namespace": namespace, "verb": verb, "resource": resource}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        wait_until(
            lambda: self.call("POST", path, review)["status"]["allowed"], f"{user} may {verb} {resource}"
        )

    def kubeconfig(self, token=ADMIN):
        """Return a file with which kubectl and Helm reach this server."""
        cluster = {"server": self.server, "certificate-authority": str(self.ca_file)}
        context = {"cluster": "test", "user": "test"}
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "contexts": [{"name": "test", "context": context}],
            "users": [{"name": "test", "user": {"token": token}}],
        }
        file = self.directory / f"kubeconfig-{zlib.crc32(token.encode()):08x}.yaml"
        file.write_text(yaml.safe_dump(text))
        return file

    def _start_etcd(self):
        url, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        arguments = {
            "data-dir": self.directory / "etcd",
            "name": "only",
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"only={peer}",
        }
        command = [etcd(), *_flags(arguments)]
        part = self._etcd.enter_context(
            running(command, self.directory / "etcd.log", environment={}, ports={})
        )
        wait_until(lambda: _answers(f"{url}/health"), "etcd is healthy", alive=part)

    def _write_keys(self):
        lines = (f"{token},{user}\n" for token, user in self._users.items())
        (self.directory / "tokens.csv").write_text("".join(lines))
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        (self.directory / "accounts.pem").write_bytes(pem)

    def _arguments(self):
        key = self.directory / "accounts.pem"
        return _flags(
            {
                "etcd-servers": f"http://127.0.0.1:{self._etcd_port}",
                "bind-address": "127.0.0.1",
                "advertise-address": "127.0.0.1",
                "endpoint-reconciler-type": "none",  # nobody reaches it as a service, and loopback is refused
                "secure-port": self._port,
                "cert-dir": self.directory / "tls",
                "token-auth-file": self.directory / "tokens.csv",
                "authorization-mode": "RBAC",
                "service-account-issuer": "https://kubernetes.default.svc",
                "service-account-key-file": key,
                "service-account-signing-key-file": key,
                "service-cluster-ip-range": "10.0.0.0/24",
            }
        )

    def _trusting(self):
        return ssl.create_default_context(cafile=self.ca_file)

    def _is_ready(self):
        with suppress(OSError):  # its certificate may be half written
            return self.ca_file.exists() and _answers(f"{self.server}/readyz", self._trusting())
        return False

    def _apply(self, thing):
        group, kind, place = thing["apiVersion"], thing["kind"], thing["metadata"]
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        known = self.call("GET", root)["resources"]
        (resource,) = (r for r in known if r["kind"] == kind and "/" not in r["name"])
        within = f"/namespaces/{place.get('namespace', 'default')}" if resource["namespaced"] else ""
        path = f"{root}{within}/{resource['name']}/{place['name']}?fieldManager=test&force=true"
        return self.call("PATCH", path, thing, content_type=APPLY)


def _flags(arguments):
    return [f"--{name}={value}" for name, value in arguments.items()]


def _message(body):
    """What a refusal says: a Status, or plain text where the path itself is not served (yet)."""
    try:
        return json.loads(body).get("message")
    except ValueError:
        return body.decode().strip()


def _answers(url, tls=None):
    try:
        with urllib.request.urlopen(url, timeout=REQUEST_S, context=tls):
            return True
    except OSError:  # not there yet, or answers that it is not ready
        return False


def kubectl(api, *arguments):
    """Run kubectl as the administrator and return what it said."""
    command = ["kubectl", f"--kubeconfig={api.kubeconfig()}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=REQUEST_S).stdout
