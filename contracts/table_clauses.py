"""The fields of a clause: one record a family, since each has its own statistics."""

from paritas.contracts.catalogue import CATALOGUE
from paritas.contracts.model import Family
from paritas.contracts.shapes import (
    Choice,
    Duration,
    Either,
    Field,
    Flag,
    Listing,
    Number,
    Record,
    Text,
    Whole,
)
from paritas.contracts.table_scalars import (
    FREE,
    NAME,
    OPEN_SHARE,
    POSITIVE,
    POSITIVE_SHARE,
    SLICE_VALUE,
    STAGES,
)
from paritas.contracts.windows import WINDOW_HINT, WINDOW_PATTERN

__all__ = ["CLAUSES"]

FLOOR = Record(
    "limit relative to a floor",
    (
        Field("floor", NAME, "name of a measured A/A floor", is_required=True),
        Field("times", POSITIVE, "factor above the floor", is_required=True),
        Field(
            "ceiling",
            Either("a number or a duration", text=Duration(), number=Number(0)),
            "absolute limit that binds in any case",
            is_required=True,
        ),
    ),
)
LIMIT = Either(
    "a number, a duration, or {floor: NAME, times: 1.5, ceiling: 0.04}",
    text=Duration(),
    number=Number(0),
    mapping=FLOOR,
)
LIMITS = (
    Field("at_most", LIMIT, "upper limit in the statistic's unit"),
    Field("at_least", LIMIT, "lower limit in the statistic's unit"),
    Field("quantile", OPEN_SHARE, "the limit binds this quantile"),
)
OPTIONS = (
    Field("above", Number(1, is_low_open=True), "ratio beyond which a token counts as tail"),
    Field("cap", Number(1), "truncation of the ratio"),
    Field("clip", POSITIVE_SHARE, "clip range of the ratio"),
    Field("clip_high", POSITIVE, "upper end of an asymmetric clip range; that of clip if left out"),
    Field("beta", POSITIVE, "factor of DPO's implicit reward"),
    Field("temperature", POSITIVE, "temperature of the recalibration of a confidence"),
    Field("smoothing", OPEN_SHARE, "label smoothing of a confidence"),
    Field(
        "reward_range",
        Listing(Number(-1e18, 1e18), 2, 2),
        "lowest and highest reward; that of the budget, else 0 and 1",
    ),
)
WINDOWS = (
    Field("within", Duration(), "deadline of an observability statistic"),
    Field(
        "window",
        Text(WINDOW_PATTERN, WINDOW_HINT),
        "unit of a runtime clause: seconds of start times, or steps; that of the catalogue if left out",
    ),
    Field("baseline", Whole(10, 1_000_000), "windows from which a shape learns what is usual"),
)
SCOPE = (
    Field(
        "agents",
        Listing(SLICE_VALUE, at_least=1, is_set=True),
        "agents that must report, seen before or not",
    ),
    Field(
        "slices",
        Listing(NAME, at_least=1, is_set=True),
        "where it binds; every declared slice if left out",
    ),
    Field("stages", STAGES, "when it binds; always if left out"),
)
ORIGIN = (
    Field("source", FREE, "where the limit comes from"),
    Field("derived", Flag(), "the limit was derived from the budget (written by the resolved form)"),
)


def _statistics(family: Family) -> Choice:
    own = tuple(name for name, entry in CATALOGUE.items() if entry.family is family)
    hints = {
        name: f"it is {entry.family}: move the clause under clauses.{entry.family}"
        for name, entry in CATALOGUE.items()
        if entry.family is not family
    }
    raw_ece = "raw ECE moves without bound under small drift; use calibration_gap (statistical)"
    return Choice(own, {**hints, "ece": raw_ece, "expected_calibration_error": raw_ece})


def _clause(family: Family) -> Record:
    own = (
        Field("id", NAME, "name of the clause, once in a contract", is_required=True),
        Field("statistic", _statistics(family), "what is limited", is_required=True),
    )
    return Record("clause", (*own, *LIMITS, *OPTIONS, *WINDOWS, *SCOPE, *ORIGIN))


CLAUSES = Record("clauses", tuple(Field(f, Listing(_clause(f)), f"{f} clauses") for f in Family))
