"""A trainer that tells of its own sampling is known inside it, and nowhere else."""

import threading

from paritas.collectors.telling import Telling, teller
from paritas.records import KernelIdentity, Role

VLLM = KernelIdentity(Role.INFERENCE, engine="vllm")


def test_it_is_known_inside_and_not_after():
    telling = Telling()
    assert teller() is None
    with telling.here():
        assert teller() is telling
    assert teller() is None


def test_the_inner_of_two_counts_and_the_outer_comes_back():
    outer, inner = Telling(), Telling()
    with outer.here():
        with inner.here():
            assert teller() is inner
        assert teller() is outer


def test_another_thread_has_none():
    found = []
    with Telling().here():
        thread = threading.Thread(target=lambda: found.append(teller()))
        thread.start()
        thread.join()
    assert found == [None]


def test_engines_that_differ_are_not_told_apart():
    telling = Telling()
    telling.hear(VLLM, "w1:a")
    assert (telling.kernel, telling.weights_digest) == (VLLM, "w1:a")
    telling.hear(KernelIdentity(Role.INFERENCE, engine="sglang"), "w1:b")
    telling.hear(VLLM, "w1:a")
    assert (telling.kernel, telling.weights_digest, telling.requests) == (None, "", 3)
