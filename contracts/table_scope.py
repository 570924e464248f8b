"""The fields that say what is compared: kernels, pairing, slices, false alarms, budget."""

from dataclasses import fields as dataclass_fields

from paritas.contracts.model import Operator
from paritas.contracts.shapes import (
    Choice,
    Duration,
    Either,
    Field,
    Flag,
    FreeKeys,
    Listing,
    Number,
    Record,
    Shape,
    Whole,
)
from paritas.contracts.table_scalars import (
    FREE,
    LABEL,
    NAME,
    POSITIVE,
    POSITIVE_SHARE,
    SHARE,
)
from paritas.records import KernelIdentity, Role

__all__ = ["BUDGET", "COMPARE", "ESTIMATORS", "FALSE_ALARMS", "KERNELS", "SLICE"]

ESTIMATORS = ("none", "tis", "mis", "clip", "ppo_min")


def _kernel_shape(annotation: object) -> Shape:
    """Follow the annotations of `KernelIdentity`, so that the two lists cannot differ."""
    if annotation == int | None:
        return Whole(1, 100_000)
    return Flag() if annotation == bool | None else FREE


KERNEL = Record(
    "kernel",
    (
        *(
            Field(f.name, _kernel_shape(f.type), f"what the kernel must report as {f.name}")
            for f in dataclass_fields(KernelIdentity)
            if f.name not in {"role", "extra"}
        ),
        Field("extra", FreeKeys(FREE), "identity fields this list does not know"),
    ),
)

COMPARE = Record(
    "compare",
    (
        Field(
            "weights",
            Either(
                "equal, or {within: {versions: 1}}",
                text=Choice(("equal",)),
                mapping=Record(
                    "weights",
                    (
                        Field(
                            "within",
                            Record(
                                "within",
                                (Field("versions", Whole(0, 1000), "versions apart", is_required=True),),
                            ),
                            "how far apart paired weights may be",
                            is_required=True,
                        ),
                    ),
                ),
            ),
            "which weights versions may be paired",
        ),
        Field("unit", Choice(("sequence", "group")), "unit of inference: a sequence, or a prompt's group"),
        Field("pair_within", Duration(), "how long the second view may come after the first"),
        Field(
            "sampling",
            Record(
                "sampling",
                (
                    Field(
                        "at_least",
                        POSITIVE_SHARE,
                        "least probability with which a sequence is recorded; each tells its own in the label "
                        "sampling_probability",
                        is_required=True,
                    ),
                ),
            ),
            "only some sequences are recorded, and which may depend on what is watched; all are if left out",
        ),
        Field(
            "against",
            Choice(("inference", "reference")),
            "kernel that the training kernel is compared with: inference, or that of a reference model",
        ),
    ),
)

REQUIREMENT = Record(
    "requirement",
    (
        Field("field", LABEL, "label or token field", is_required=True),
        Field("op", Choice(tuple(Operator)), "operator", is_required=True),
        Field("value", Number(-1e18, 1e18), "number to compare with (Gt, Gte, Lt, Lte)"),
        Field("values", Listing(FREE, at_least=1, is_set=True), "texts to look for (In, NotIn)"),
    ),
)
MATCH = Record(
    "match",
    (
        Field("labels", Listing(REQUIREMENT), "requirements on the trace's labels"),
        Field("tokens", Listing(REQUIREMENT), "requirements on position, phase, turn or logprob of a token"),
    ),
)
SLICE = Record(
    "slice",
    (
        Field("name", NAME, "name clauses refer to", is_required=True),
        Field("by", Listing(LABEL, at_least=1, at_most=4, is_set=True), "labels: one slice per value"),
        Field("match", MATCH, "which traces and tokens belong to it"),
        Field("at_most", Whole(1, 10_000), "values with a slice of their own; later ones share name=other"),
    ),
)

FALSE_ALARMS = Record(
    "false_alarms",
    (
        Field("at_most", POSITIVE, "expected false alarms over all clauses and slices", is_required=True),
        Field("per", Duration(), "in this time", is_required=True),
    ),
)

ESTIMATOR = Record(
    "estimator",
    (
        Field("kind", Choice(ESTIMATORS), "policy-gradient estimator", is_required=True),
        Field("cap", Number(1), "truncation of the ratio (tis, ppo_min), upper end of the band (mis)"),
        Field("low", SHARE, "lower end of the band (mis)"),
        Field("clip", POSITIVE_SHARE, "clip range (clip, ppo_min)"),
    ),
)
BUDGET = Record(
    "budget",
    (
        Field("reward_drift", POSITIVE, "tolerated change of the mean reward, in units of the reward"),
        Field("reward_range", Listing(Number(-1e18, 1e18), 2, 2), "lowest and highest reward"),
        Field("sequence_tv", POSITIVE_SHARE, "tolerated total variation between whole responses"),
        Field("gradient_bias", Number(0, 2, is_low_open=True), "tolerated bias in units of A_max G"),
        Field("token_tv", POSITIVE_SHARE, "tolerated total variation of a token, mean over tokens"),
        Field("max_tokens", Whole(1), "longest response"),
        Field("mean_tokens", Number(1), "mean length of a response"),
        Field("temperature", POSITIVE, "sampling temperature"),
        Field("estimator", ESTIMATOR, "estimator whose bias is budgeted"),
        Field("score_norm", POSITIVE, "declared bound G of the norm of the score, grad log p"),
    ),
)


KERNELS = Record("kernels", tuple(Field(r, KERNEL, f"identity of the {r} kernel") for r in Role))
