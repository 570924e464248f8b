"""Every field of ``routes.yaml``, once; read with the contracts' reader."""

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
    Text,
    Whole,
)
from paritas.controller.routing.model import FailMode

__all__ = ["FILE"]

POLICY = Text(r"^[A-Za-z0-9_./-]{1,128}$", "letters, digits, '_', '.', '/' and '-'")
NAME = Text(r"^[A-Za-z0-9_.-]{1,128}$", "letters, digits, '_', '.' and '-'")
TARGET = Text(r"^[^\s\x00-\x1f\x7f]{1,512}$", "a URL, a cluster or a pod, without blanks")
HEADER_VALUE = Text(r"^[\x20-\x7e]{1,256}$", "a header's value, printable ASCII")
SETTING = Either(
    "text or a number", text=Text(r"^[^\x00-\x1f\x7f]{0,4096}$", "text on one line"), number=Number(0)
)
SHARE = Number(0, 1, is_share=True)

REPLICA = Record(
    "replica",
    (
        Field("name", NAME, "as the contract's slices name it: r2 of replica=r2", is_required=True),
        Field("kernel", NAME, "inference, reference, or a candidate's", is_required=True),
        Field("target", TARGET, "how its router names it: URL, cluster, pod"),
    ),
)
LIMITS = Record(
    "limits",
    (
        Field(
            "minimum_healthy", Whole(1, 100_000), "replicas of each kernel that always stay in (default 1)"
        ),
        Field(
            "share_moved_at_most", SHARE, "share of a slice that may leave the inference kernel (default 1)"
        ),
        Field("drained_at_most", SHARE, "share of a kernel's replicas that may be out (default 0.5)"),
        Field("ejection", Duration(), "time out, times the number of ejections (default 30s)"),
        Field("ejection_at_most", Duration(), "longest time out (default 30m)"),
        Field("dwell", Duration(), "a route that moved does not move back sooner (default 30s)"),
        Field(
            "lease", Duration(), "a route that is not renewed so long falls to its fail mode (default 60s)"
        ),
    ),
)
ROUTE = Record(
    "fleet",
    (
        Field("policy", POLICY, "whose requests, as its contract says", is_required=True),
        Field("replicas", Listing(REPLICA, at_least=1), "who serves", is_required=True),
        Field(
            "slices",
            FreeKeys(FreeKeys(HEADER_VALUE)),
            "headers by which the router knows the requests of a slice",
        ),
        Field("limits", LIMITS, "what no incident may do"),
        Field("fail_mode", Choice(tuple(FailMode)), "routes when the controller is lost (default hold)"),
        Field("dry_run", Flag(), "compute and tell, apply nothing (default true)"),
        Field("reference_policy", POLICY, "policy whose incidents are about the reference kernel"),
        Field("driver", FreeKeys(FreeKeys(SETTING)), "router that is driven, with its settings"),
    ),
)
FILE = Record(
    "routes", (Field("routes", Listing(ROUTE, at_least=1, at_most=1000), "fleets", is_required=True),)
)
