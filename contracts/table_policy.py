"""The fields of escalation rules, promotion gates and carried tests."""

from paritas.contracts.model import Family, Stage
from paritas.contracts.shapes import (
    Choice,
    Duration,
    Field,
    Listing,
    OneOrMany,
    Record,
    Tagged,
    Text,
    Whole,
)
from paritas.contracts.table_scalars import (
    EXPECTED,
    FILE,
    FREE,
    LABEL,
    NAME,
    OPEN_SHARE,
    POSITIVE,
    POSITIVE_SHARE,
    SLICE_VALUE,
    STATES,
)
from paritas.records import Role, Severity

__all__ = ["ACTIONS", "ESCALATION", "PROMOTION", "REFIT", "TEST"]

ACTIONS = (
    Record("notify", (Field("channel", LABEL, "who is told"),)),
    Record("page", (Field("team", LABEL, "who is woken"),)),
    Record(
        "reroute",
        (
            Field(
                "to",
                Choice((Role.REFERENCE, Role.INFERENCE)),
                "kernel that takes the traffic",
                is_required=True,
            ),
            Field("share", POSITIVE_SHARE, "share of the traffic; 1 if left out"),
        ),
    ),
    Record("drain", (Field("slice", NAME, "'by' slice whose offending value is drained", is_required=True),)),
    Record("hold_refit", ()),
    Record("flush_prefix_cache", ()),
    Record("set_cap", (Field("cap", POSITIVE, "truncation of the ratio", is_required=True),)),
    Record("block_promotion", ()),
)
WHEN = Record(
    "when",
    (
        Field("family", OneOrMany(Choice(tuple(Family))), "clause families"),
        Field("clause", OneOrMany(NAME), "clause ids"),
        Field("slice", OneOrMany(SLICE_VALUE), "slices"),
        Field("state", OneOrMany(STATES), "states; violated if left out"),
    ),
)
LEVEL = Record(
    "level",
    (
        Field("severity", Choice(tuple(Severity)), "how urgent", is_required=True),
        Field("after", Duration(), "time after firing"),
        Field("actions", Listing(Tagged(ACTIONS), at_most=16), "what the level asks for"),
    ),
)
ESCALATION = Record(
    "escalation rule",
    (
        Field("when", WHEN, "which verdicts it answers", is_required=True),
        Field("for", Duration(), "how long the state must last before it fires"),
        Field("keep_firing_for", Duration(), "how long it fires on after the state ended"),
        Field("levels", Listing(LEVEL, at_least=1, at_most=8), "levels in order of time", is_required=True),
    ),
)

REFIT = Record(
    "refit gate",
    (
        Field(
            "tokens",
            Whole(1, 1_000_000_000),
            "first tokens that are tested and do not count",
            is_required=True,
        ),
        Field("alpha", OPEN_SHARE, "probability that any healthy version is ever rejected; 0.01 if left out"),
    ),
)

_ALPHA = Field("alpha", OPEN_SHARE, "error probability of the gate's PASS")
_DEADLINE = Field("deadline", Duration(), "undecided for so long pauses the promotion")
_AT_LEAST = Field(
    "at_least",
    Record("at_least", (Field("sequences", Whole(1), "sequences", is_required=True),)),
    "units before any decision",
)
GATES = {
    Stage.OFFLINE_CI: (Field("suite", FILE, "file of prompts"), _ALPHA, _AT_LEAST, _DEADLINE),
    Stage.SHADOW: (Field("share", POSITIVE_SHARE, "share of traffic copied"), _ALPHA, _AT_LEAST, _DEADLINE),
    Stage.CANARY: (
        Field("steps", Listing(POSITIVE_SHARE, at_least=1, at_most=32), "growing shares of traffic"),
        Field("bake", Duration(), "shortest stay on a step"),
        _ALPHA,
        _AT_LEAST,
        _DEADLINE,
    ),
    Stage.FULL: (Field("demote_on", OneOrMany(STATES), "states that send it back"),),
}
PROMOTION = Record("promotion", tuple(Field(s, Record(f"{s} gate", GATES[s]), f"gate {s}") for s in Stage))

GIVEN = Record(
    "given",
    (
        Field("trace", FILE, "one recording that holds both kernels"),
        Field("serve", FILE, "recording of the inference kernel"),
        Field("train", FILE, "recording of the training kernel"),
    ),
)
EXPECT = Record(
    "expectation",
    (
        Field("clause", NAME, "clause id", is_required=True),
        Field("slice", SLICE_VALUE, "slice, such as all or replica=r2", is_required=True),
        Field("state", EXPECTED, "state it must reach", is_required=True),
        Field("at_most", Text(r"^[0-9]{1,9} sequences?$", "write 400 sequences"), "within so many"),
        Field("cause", NAME, "cause the diagnosis must name in that slice"),
    ),
)
TEST = Record(
    "test",
    (
        Field("name", FREE, "what the test shows", is_required=True),
        Field("given", GIVEN, "recorded input, relative to this file", is_required=True),
        Field("expect", Listing(EXPECT, at_least=1), "expected verdicts", is_required=True),
    ),
)
