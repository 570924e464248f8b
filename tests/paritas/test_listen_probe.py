"""Whether an address can be listened on, in the system's words."""

import socket

import pytest
from free_ports import free_port

from paritas.listen_probe import why_not_free


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::]"])
def test_one_taken_address_of_several_is_one_too_many(host):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert why_not_free(f"{host}:{taken.getsockname()[1]}") == "Address already in use"


def test_a_port_that_its_owner_shares_is_taken_too():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert why_not_free(f"127.0.0.1:{taken.getsockname()[1]}") == "Address already in use"


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:0", "localhost:0", "0.0.0.0:0", "[::]:0", "unix:/no/such.sock"]
)
def test_what_can_be_bound_is_left_to_be_bound(listen):
    assert why_not_free(listen) == ""


def test_a_port_is_free_again_after_the_look():
    port = free_port()
    assert why_not_free(f"127.0.0.1:{port}") == ""
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize(
    ("listen", "reason"),
    [("192.0.2.1:0", "Cannot assign requested address"), ("a..b:0", "not the name of a host")],
)
def test_what_never_works_is_said(listen, reason):
    assert why_not_free(listen) == reason


def test_a_name_that_nobody_knows_is_told_in_the_systems_words():
    assert why_not_free("nowhere.invalid:0") != ""
