"""The schema of a contract object's status, which the operator writes and people read."""

from typing import Any

__all__ = ["COLUMNS", "STATUS"]

Schema = dict[str, Any]


def _text(says: str, **more: Any) -> Schema:
    return {"description": says, "type": "string", **more}


def _count(says: str) -> Schema:
    return {"description": says, "type": "integer", "format": "int64", "minimum": 0}


def _time(says: str) -> Schema:
    return _text(says, format="date-time")


def _number(says: str) -> Schema:
    return {"description": says, "type": "number"}


def _object(says: str, properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    told = {"description": says, "type": "object", "properties": properties}
    return told | ({"required": list(required)} if required else {})


# The shape that kubectl wait and every GitOps tool read.
CONDITION = _object(
    "one thing that is true, false or unknown",
    {
        "type": _text("Accepted, Enforced or Violated", maxLength=316),
        "status": _text("True, False or Unknown", enum=["True", "False", "Unknown"]),
        "reason": _text("one word why", minLength=1, maxLength=1024, pattern="^[A-Za-z][A-Za-z0-9]*$"),
        "message": _text("what is wrong or right, and what to do", maxLength=32768),
        "lastTransitionTime": _time("when status changed last"),
        "observedGeneration": _count("generation of the object that this is about"),
    },
    ("type", "status", "lastTransitionTime", "reason", "message"),
)
WORST = _object(
    "the open incident that is worst: by severity, then by how far the estimate is beyond its limit",
    {
        "clause": _text("its clause"),
        "slice": _text("its slice"),
        "state": _text("what the clause says"),
        "severity": _text("how urgent it is"),
        "statistic": _text("what is limited"),
        "estimate": _number("mean over units, in the statistic's unit; missing without data"),
        "limit": _number("the contract's limit in the same unit"),
    },
    ("clause", "slice", "state", "severity"),
)
VERDICTS = _object(
    "what the open incidents say; missing while the controller cannot be asked",
    {
        "openIncidents": _count("incidents that are not over"),
        "violated": _count("of those, whose clause is violated"),
        "undecided": _count("of those, whose clause is undecided"),
        "noData": _count("of those, whose clause has no data"),
        "conforming": _count("of those, whose clause conforms again and which are recovering"),
        "since": _time("when the controller heard of the oldest one"),
        "worst": WORST,
    },
    ("openIncidents", "violated", "undecided", "noData", "conforming"),
)
STATUS = _object(
    "what the operator knows of the contract",
    {
        "observedGeneration": _count("generation that the conditions are about"),
        "acceptedGeneration": _count(
            "generation whose text detectors are given; an older one while this is bad"
        ),
        "digest": _text("digest of the text that detectors are given", pattern="^[0-9a-f]{32}$"),
        "version": _text("its version"),
        "conditions": {
            "description": "Accepted, Enforced, Violated",
            "type": "array",
            "items": CONDITION,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "verdicts": VERDICTS,
    },
)


def _of(condition: str) -> str:
    return f'.status.conditions[?(@.type=="{condition}")].status'


def _column(name: str, path: str, says: str, **more: Any) -> Schema:
    return {"name": name, "type": "string", "jsonPath": path, "description": says, **more}


COLUMNS = [
    _column("Policy", ".spec.policy", "policy it binds; any if empty"),
    _column("Accepted", _of("Accepted"), "whether this generation is a valid contract"),
    _column("Enforced", _of("Enforced"), "whether a detector judges by it"),
    _column("Violated", _of("Violated"), "whether an open incident says so"),
    _column("Digest", ".status.digest", "what detectors are given", priority=1),
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
