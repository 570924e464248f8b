"""kubeconfig files and service accounts: what is taken, and the exact text of every refusal."""

import base64
import re

import pytest
import yaml
from certificates import self_signed

from paritas.controller.kubernetes.access import in_cluster
from paritas.controller.kubernetes.kubeconfig import from_kubeconfig
from paritas.errors import TransientError, UsageError


@pytest.fixture
def pems(tmp_path):
    return self_signed(tmp_path)


def write(tmp_path, *, cluster=None, user=None, context=None, **top):
    told = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"} | (context or {})}],
        "clusters": [{"name": "k", "cluster": {"server": "https://k:6443"} | (cluster or {})}],
        "users": [{"name": "u", "user": {"token": "secret"} if user is None else user}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(told | top))
    return file


def refusal(file, context=""):
    with pytest.raises(UsageError) as caught:
        from_kubeconfig(file, context)
    return str(caught.value).replace(f"{file}: ", "")


def test_server_namespace_and_token_are_taken(tmp_path, pems):
    file = write(
        tmp_path, cluster={"certificate-authority": pems.certificate.name}, context={"namespace": "serving"}
    )
    access = from_kubeconfig(file)
    assert (access.server, access.namespace) == ("https://k:6443", "serving")
    assert access.headers() == {"Authorization": "Bearer secret"}
    assert len(access.tls.get_ca_certs()) == 1


def test_another_context_a_token_file_and_inline_certificates_are_taken(tmp_path, pems):
    encoded = {
        f"{name}-data": base64.b64encode(path.read_bytes()).decode()
        for name, path in {"client-certificate": pems.certificate, "client-key": pems.key}.items()
    }
    authority = {"certificate-authority-data": encoded["client-certificate-data"]}
    file = write(
        tmp_path,
        cluster=authority,
        user=encoded | {"tokenFile": "token"},
        contexts=[{"name": "other", "context": {"cluster": "k", "user": "u"}}],
    )
    (tmp_path / "token").write_text("first\n")
    access = from_kubeconfig(file, "other")
    assert access.headers() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    assert access.headers() == {"Authorization": "Bearer second"}
    (tmp_path / "token").unlink()
    with pytest.raises(TransientError, match=r"^cannot read key file '.*token': No such file or directory$"):
        access.headers()


def test_names_that_are_numbers_are_names_all_the_same(tmp_path, pems):
    authority = {"certificate-authority": pems.certificate.name}
    (tmp_path / "7").write_text("seventh")
    access = from_kubeconfig(
        write(tmp_path, cluster=authority, user={"tokenFile": 7}, context={"namespace": 5})
    )
    assert (access.namespace, access.headers()) == ("5", {"Authorization": "Bearer seventh"})


def test_a_token_is_in_no_text_about_the_access(tmp_path, pems):
    access = from_kubeconfig(write(tmp_path, cluster={"certificate-authority": pems.certificate.name}))
    assert access.token == "secret"
    assert "secret" not in repr(access)


def test_a_user_may_be_nobody(tmp_path, pems):
    file = write(tmp_path, user={}, cluster={"certificate-authority": str(pems.certificate)})
    assert from_kubeconfig(file).headers() == {}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"current-context": ""}, "there is no current-context"),
        ({"current-context": "x"}, "there is no context 'x'"),
        ({"clusters": []}, "there is no cluster 'k'"),
        ({"users": [1]}, "there is no user 'u'"),
        ({"contexts": 5}, "there is no context 'c'"),
        ({"cluster": {"server": "http://k"}}, "the server 'http://k' is not an https URL"),
        (
            {"cluster": {"insecure-skip-tls-verify": True}},
            "insecure-skip-tls-verify would show the token to anybody",
        ),
        ({"user": {"exec": {"command": "login"}}}, "users with 'exec' are not supported"),
        ({"user": {"auth-provider": {}}}, "users with 'auth-provider' are not supported"),
        ({"user": {"username": "a", "password": "b"}}, "users with 'username' are not supported"),
        ({"cluster": {"certificate-authority-data": "!"}}, "certificate-authority-data is no base64"),
        (
            {"cluster": {"certificate-authority": "no.crt"}},
            "certificate-authority: no.crt: No such file or directory",
        ),
    ],
)
def test_what_cannot_be_followed_is_said(tmp_path, changes, text):
    assert refusal(write(tmp_path, **changes)) == text


def test_certificates_that_are_none_are_said(tmp_path, pems):
    nothing = base64.b64encode(b"nothing").decode()
    assert refusal(write(tmp_path, cluster={"certificate-authority-data": nothing})) == (
        "cannot trust 'the authorities': it holds no certificate"
    )
    user = {"client-certificate": str(pems.certificate), "client-key-data": nothing}
    file = write(tmp_path, user=user, cluster={"certificate-authority": str(pems.certificate)})
    assert refusal(file) == "the client certificate and its key do not fit"


@pytest.mark.parametrize(
    ("content", "text"), [("{", "is no YAML"), ("[]", "is no kubeconfig"), ("a: 1", "is no kubeconfig")]
)
def test_a_file_that_is_no_kubeconfig_is_said(tmp_path, content, text):
    (tmp_path / "k").write_text(content)
    assert refusal(tmp_path / "k") == text
    assert refusal(tmp_path / "none") == "cannot be read: No such file or directory"


def test_a_service_account_is_its_folder(tmp_path, pems):
    with pytest.raises(UsageError, match=re.escape(f"there is no service account in {tmp_path}")):
        in_cluster(tmp_path)
    (tmp_path / "token").write_text("t")
    with pytest.raises(UsageError, match=r"^cannot trust '.*ca.crt': No such file or directory$"):
        in_cluster(tmp_path)
    (tmp_path / "ca.crt").write_bytes(pems.certificate.read_bytes())
    assert in_cluster(tmp_path).namespace == ""
    (tmp_path / "namespace").write_text("serving\n")
    access = in_cluster(tmp_path)
    assert (access.namespace, access.server) == ("serving", "https://kubernetes.default.svc")
    assert access.headers() == {"Authorization": "Bearer t"}
