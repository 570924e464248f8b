"""What is closed when its block ends, whatever ended it."""

import pytest

from paritas.closing import Closing


class Door(Closing):
    def __init__(self):
        self.closed = 0

    def close(self):
        self.closed += 1


def test_a_block_closes_what_it_opened_also_on_an_error():
    with Door() as door:
        assert door.closed == 0
    assert door.closed == 1
    door = Door()
    with pytest.raises(KeyError), door:
        raise KeyError
    assert door.closed == 1


def test_what_cannot_be_closed_cannot_be_made():
    with pytest.raises(TypeError, match=r"abstract method '?close'?"):
        type("Hole", (Closing,), {})()
