"""Snapshots: the detector's whole state as bytes.

The service saves them in one atomic write with the log positions they cover, so that a restart
neither loses nor doubles an observation.  The state is a pickle of our own objects, read back
through an allow-list: a snapshot names no class outside this package, numpy arrays and plain
containers.
"""

import hashlib
import io
import json
import pickle
from enum import Enum, EnumMeta
from typing import Any

from paritas.detectors.pipeline import Detector
from paritas.errors import PermanentError

__all__ = ["FORMAT", "dump", "load"]

# 2: gaps; 3: where and when the drift is, what peers print; 4: the refit gate; 5: windows, agents; 6: rosters;
# 7: groups that are waited for, samples that are weighed: what was counted before is not added to
FORMAT = 7
NUMPY = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.multiarray", "_reconstruct"),  # numpy 1.26 writes the old name
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.numeric", "_frombuffer"),
}
PLAIN = {
    ("collections", "OrderedDict"),
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "bytearray"),
}
ROOMS = ("paritas.detectors.", "paritas.contracts.model", "paritas.contracts.statistic", "paritas.records")


class _Unpickler(pickle.Unpickler):
    """Builds nothing but what a snapshot of ours holds."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the class if it is on the list.

        Raises
        ------
        pickle.UnpicklingError
            If it is not: the file is not a snapshot of ours.
        """
        if (module, name) == ("builtins", "getattr"):
            return _member  # how Python before 3.11.4 writes an enum member
        if (module, name) in NUMPY | PLAIN:
            return super().find_class(module, name)
        if module.startswith(ROOMS) and "." not in name:
            found = super().find_class(module, name)
            # A module, a function or `__builtins__` of ours would be a way to everything else.
            if isinstance(found, type) and found.__module__ == module:
                return found
        msg = f"{module}.{name} has no place in a snapshot"
        raise pickle.UnpicklingError(msg)


def _member(kind: object, name: object) -> Enum:
    """The member of an enum of ours; what `getattr` may be used for in a snapshot, and all of it.

    Raises
    ------
    pickle.UnpicklingError
        If it is anything else: `getattr` would lead everywhere.
    """
    if isinstance(kind, EnumMeta) and isinstance(name, str) and name in kind.__members__:
        member: Enum = kind.__members__[name]
        return member
    msg = "builtins.getattr has no place in a snapshot"
    raise pickle.UnpicklingError(msg)


def dump(detector: Detector) -> bytes:
    """Return the snapshot: one line of JSON, then the state it is a digest of."""
    state = pickle.dumps(detector, protocol=5)
    head = {
        "format": FORMAT,
        "contract": detector.contract.digest,
        "blake2b": hashlib.blake2b(state, digest_size=16).hexdigest(),
    }
    return json.dumps(head, sort_keys=True).encode() + b"\n" + state


def load(text: bytes, *, contract_digest: str) -> Detector:
    """Return the detector a snapshot holds.

    Raises
    ------
    PermanentError
        If the bytes are not a whole snapshot of this format and contract.
    """
    line, _, state = text.partition(b"\n")
    try:
        head = json.loads(line)
        told = (head["format"], head["contract"], head["blake2b"])
    except (ValueError, KeyError, TypeError) as error:
        raise PermanentError("the snapshot is damaged", hint=HINT) from error
    if told != (FORMAT, contract_digest, hashlib.blake2b(state, digest_size=16).hexdigest()):
        raise PermanentError("the snapshot is of another format or contract, or damaged", hint=HINT)
    return _state(state)


HINT = "delete it to judge the event log again from its start"


def _state(state: bytes) -> Detector:
    try:
        detector = _Unpickler(io.BytesIO(state)).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, TypeError, ValueError) as error:
        raise PermanentError(f"the snapshot cannot be read: {error}", hint=HINT) from error
    if not isinstance(detector, Detector):
        raise PermanentError("the snapshot holds no detector", hint=HINT)
    return detector
