"""What a floor file says: which kernel was compared with itself, and what that showed."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from paritas.contracts.catalogue import CATALOGUE
from paritas.contracts.model import Clause
from paritas.errors import PermanentError
from paritas.records import Role

__all__ = ["PAYLOAD_TYPE", "VERSION", "FloorValue", "MeasuredFloor", "options_of"]

PAYLOAD_TYPE = "application/vnd.paritas.floor+json"
VERSION = 1
OPTIONS = ("above", "cap", "clip", "clip_high", "beta", "temperature", "smoothing")


def options_of(clause: Clause, estimator_kind: str = "") -> dict[str, float | str]:
    """What a clause's statistic depends on besides its limit; two with equal options measure one thing.

    Examples
    --------
    >>> from paritas.contracts.model import Family
    >>> options_of(Clause("r", Family.STATISTICAL, "ratio_tail", above=2.0))
    {'above': 2.0}
    """
    told: dict[str, float | str] = {
        name: float(value) for name in OPTIONS if (value := getattr(clause, name)) is not None
    }
    return {**told, "estimator": estimator_kind} if estimator_kind else told


@dataclass(frozen=True, slots=True)
class FloorValue:
    """One statistic of a kernel against itself.

    Attributes
    ----------
    options : mapping
        As of `options_of`.
    estimate, upper : float
        Mean over units, and its upper limit at the floor's `alpha`, in the statistic's unit.
    units, tokens : int
        Sequences (or prompt groups) and tokens behind it.
    """

    statistic: str
    options: Mapping[str, float | str]
    estimate: float
    upper: float
    units: int
    tokens: int


@dataclass(frozen=True, slots=True)
class MeasuredFloor:
    """One A/A measurement.

    Attributes
    ----------
    name : str
        What contracts call it, such as ``train_vs_train``.
    role : Role
        Which kernel of a contract was measured.
    kernel : mapping
        Identity fields both runs reported alike; `digest` is the identity's (`KernelIdentity.digest`).
    varied : mapping of str to (one, other)
        Fields in which the two runs differ, such as ``extra.micro_batch``.
    recordings : (str, str)
        BLAKE2b-128 of the two files.
    model : str
        Policy whose weights both held; empty when not told.
    measured_at : str
        Time of the measurement, UTC, ISO 8601.
    seed : int
        Of the recordings, as told.
    alpha : float
        All upper limits together hold with probability 1 - alpha.
    """

    name: str
    role: Role
    kernel: Mapping[str, object]
    digest: str
    varied: Mapping[str, tuple[str, str]]
    recordings: tuple[str, str]
    model: str
    measured_at: str
    seed: int
    alpha: float
    values: tuple[FloorValue, ...] = field(default=())

    def value(self, statistic: str, options: Mapping[str, float | str]) -> FloorValue | None:
        """Return what was measured of a statistic with these options, or None."""
        found = (v for v in self.values if v.statistic == statistic and dict(v.options) == dict(options))
        return next(found, None)

    def payload(self) -> bytes:
        """Return canonical JSON: what is signed."""
        told = {"version": VERSION, **asdict(self)}
        return json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_payload(cls, payload: bytes) -> "MeasuredFloor":
        """Return the floor a payload tells.

        Raises
        ------
        PermanentError
            It is not a floor of this version, or a number in it cannot be.
        """
        try:
            told = dict(json.loads(payload))
            version = told.pop("version")
            values = tuple(FloorValue(**_known(FloorValue, entry)) for entry in told.pop("values"))
            floor = cls(**_known(cls, told | {"values": values}))
            sound = floor._checked() if version == VERSION else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PermanentError("holds no floor") from error
        if sound is None:
            raise PermanentError(f"holds a floor of version {version!r}, this program reads {VERSION}")
        return sound

    def _checked(self) -> "MeasuredFloor":
        """Turn JSON's lists and texts into ours; refuse numbers that no measurement gives."""
        if self.role not in tuple(Role) or not all(map(_is_sound, self.values)):
            raise PermanentError("holds a floor with a value that cannot be")
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        varied = {name: (str(one), str(other)) for name, (one, other) in self.varied.items()}
        one, other = self.recordings
        return MeasuredFloor(
            **{**known, "role": Role(self.role), "varied": varied, "recordings": (one, other)}
        )


def _known(record: type, told: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record, all of them and no others."""
    names = {f.name for f in fields(record)}
    if set(told) != names:
        raise KeyError(*sorted(names ^ set(told)))
    return dict(told)


def _is_sound(value: FloorValue) -> bool:
    numbers: Iterable[object] = (value.estimate, value.upper, value.units, value.tokens)
    is_number = all(
        isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in numbers
    )
    return is_number and value.statistic in CATALOGUE and value.upper > 0.0 and value.units > 0
