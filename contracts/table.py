"""Every field of the DSL, once: `reading` checks files by it and `schema` publishes it."""

from paritas.contracts.shapes import Choice, Field, Listing, Record
from paritas.contracts.table_clauses import CLAUSES
from paritas.contracts.table_policy import ESCALATION, PROMOTION, REFIT, TEST
from paritas.contracts.table_scalars import FREE, LABEL, NAME, VERSION
from paritas.contracts.table_scope import BUDGET, COMPARE, FALSE_ALARMS, KERNELS, SLICE

__all__ = ["API_VERSION", "DOCUMENT", "KIND"]

API_VERSION = "paritas.dev/v1"
KIND = "KernelContract"

SPEC = Record(
    "spec",
    (
        Field("policy", LABEL, "policy it binds; any if left out"),
        Field("preset", NAME, "contract of the package to start from"),
        Field(
            "kernels",
            KERNELS,
            "what each kernel must be",
        ),
        Field("compare", COMPARE, "what may be paired"),
        Field("slices", Listing(SLICE, at_most=100), "parts of the traffic"),
        Field("false_alarms", FALSE_ALARMS, "false-alarm budget"),
        Field("budget", BUDGET, "declared tolerances; lower limits are derived"),
        Field("clauses", CLAUSES, "the limits"),
        Field("escalation", Listing(ESCALATION, at_most=100), "what happens on a verdict"),
        Field("on_controller_loss", Choice(("hold", "fallback")), "routes when the controller is lost"),
        Field("refit", REFIT, "test of each weights version on each replica before it counts"),
        Field("promotion", PROMOTION, "gates before production"),
        Field("tests", Listing(TEST), "tests the contract carries"),
    ),
)
METADATA = Record(
    "metadata",
    (
        Field("name", NAME, "name of the contract", is_required=True),
        Field("version", VERSION, "semantic version", is_required=True),
        Field("owner", FREE, "who answers for it"),
        Field("applied_preset", NAME, "preset a resolved contract was made from; has no effect"),
    ),
)
DOCUMENT = Record(
    "contract",
    (
        Field("apiVersion", Choice((API_VERSION,)), "version of this format", is_required=True),
        Field("kind", Choice((KIND,)), "kind of document", is_required=True),
        Field("metadata", METADATA, "name and version of the contract", is_required=True),
        Field("spec", SPEC, "the contract", is_required=True),
    ),
)
