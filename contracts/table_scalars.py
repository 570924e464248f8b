"""The scalar shapes that fields of the DSL share."""

from paritas.contracts.model import Stage
from paritas.contracts.shapes import Choice, Listing, Number, Text
from paritas.records import State

__all__ = [
    "EXPECTED",
    "FILE",
    "FREE",
    "LABEL",
    "NAME",
    "OPEN_SHARE",
    "POSITIVE",
    "POSITIVE_SHARE",
    "SHARE",
    "SLICE_VALUE",
    "STAGES",
    "STATES",
    "VERSION",
]

NAME = Text(
    r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$", "lower case letters, digits, '-', '_' and '.', at most 63"
)
LABEL = Text(r"^[A-Za-z0-9_./-]{1,128}$", "letters, digits, '_', '.', '/' and '-'")
VERSION = Text(r"^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}$", "three numbers, such as 1.2.0")
SLICE_VALUE = Text(r"^[^\s\x00-\x1f\x7f]{1,256}$", "a slice name, or key=value for one value of a 'by' slice")
FILE = Text(r"^[^\x00-\x1f\x7f]{1,512}$", "a file name relative to this contract")
FREE = Text()
SHARE = Number(0, 1, is_share=True)
POSITIVE_SHARE = Number(0, 1, is_low_open=True, is_share=True)
OPEN_SHARE = Number(0, 1, is_low_open=True, is_high_open=True, is_share=True)
POSITIVE = Number(0, is_low_open=True)

STATES = Choice(
    (State.VIOLATED, State.UNDECIDED, State.NO_DATA), {"conforming": "a rule answers trouble; leave it out"}
)
EXPECTED = Choice(tuple(State))
STAGES = Listing(Choice(tuple(Stage), {"production": "production is called full"}), at_least=1, is_set=True)
