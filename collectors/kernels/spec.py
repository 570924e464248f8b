"""From ``hf:DIR,dtype=bfloat16`` to a checked record; every mistake is one line with a hint."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType

from paritas.errors import UsageError
from paritas.records import Role, Sampling

__all__ = ["KernelSpec", "parse_spec"]

KINDS_HINT = "hf:DIR, vllm:URL or llamacpp:FILE, each with ,NAME=VALUE options"
DTYPES = ("float32", "bfloat16", "float16")
QUANTIZATIONS = ("fp8_e4m3", "int8", "int4")
LAW = ("temperature", "top_p", "top_k", "min_p")
TWICE_HINT = "give each option once"


@dataclass(frozen=True, slots=True)
class _Range:
    """The numbers an option takes, and how they are told to a person."""

    says: str
    low: float
    high: float
    low_is_out: bool = False
    whole: bool = False

    def holds(self, value: float) -> bool:
        inside = self.low < value <= self.high if self.low_is_out else self.low <= value <= self.high
        return inside and (not self.whole or value.is_integer())


# As of the options --temperature, --top-p, --top-k and --min-p.
RANGES: Mapping[str, _Range] = MappingProxyType(
    {
        "temperature": _Range("a number above 0, at most 100", 0.0, 100.0, low_is_out=True),
        "top_p": _Range("a number above 0, at most 1", 0.0, 1.0, low_is_out=True),
        "top_k": _Range("a whole number from 0", 0.0, float(1 << 31), whole=True),
        "min_p": _Range("a number from 0 to 1", 0.0, 1.0),
        "threads": _Range("a whole number from 1", 1.0, 4096.0, whole=True),
    }
)

# What each kind of kernel takes; a tuple is the closed list of values, None any text.
Choices = Mapping[str, tuple[str, ...] | None]
_HF: Choices = {"dtype": DTYPES, "attention": None, "quantization": QUANTIZATIONS, "device": None}
OPTIONS: Mapping[tuple[Role, str], Choices] = MappingProxyType(
    {
        (Role.TRAIN, "hf"): {**_HF, **dict.fromkeys(LAW)},
        (Role.INFERENCE, "hf"): {**_HF, "kv_cache": ("fp8_e4m3",)},
        (Role.INFERENCE, "vllm"): {"model": None, "logprobs_mode": ("raw_logprobs", "processed_logprobs")},
        (Role.INFERENCE, "llamacpp"): {"threads": None},
    }
)


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """Which kernel to open.

    Attributes
    ----------
    role : Role
        TRAIN or INFERENCE.
    kind : str
        ``hf``, ``vllm`` or ``llamacpp``.
    target : str
        Folder, address or file.
    options : mapping of str to str
        As written, and checked.
    flag : str
        The option of the command line that it came from.
    """

    role: Role
    kind: str
    target: str
    options: Mapping[str, str] = field(default_factory=dict)
    flag: str = ""

    def __post_init__(self) -> None:
        """Name the option by the role where none is told."""
        object.__setattr__(self, "flag", self.flag or f"--{self.role.value}")

    def number(self, name: str) -> float | None:
        """Return an option as a number; None if it was not given."""
        text = self.options.get(name)
        return None if text is None else float(text)

    def law(self) -> Sampling:
        """Return the parts of a law that were given with the kernel."""
        temperature, top_p, top_k, min_p = (self.number(name) for name in LAW)
        return Sampling(temperature, top_p, None if top_k is None else int(top_k), min_p)


def parse_spec(text: str, role: Role, *, flag: str = "") -> KernelSpec:
    """Read a kernel's text.

    Parameters
    ----------
    flag : str
        What errors call it; ``--train`` or ``--inference``, by its role, where empty.

    Raises
    ------
    UsageError
        Unknown kind, option or value; a number that is none or out of range.

    Examples
    --------
    >>> spec = parse_spec("hf:models/policy,dtype=bfloat16", Role.TRAIN)
    >>> spec.kind, spec.target, dict(spec.options)
    ('hf', 'models/policy', {'dtype': 'bfloat16'})
    """
    flag = flag or f"--{role.value}"
    head, *rest = text.split(",")
    kind, colon, target = head.partition(":")
    takes = OPTIONS.get((role, kind))
    if takes is None or not colon:
        raise _unknown_kind(text, kind, flag)
    if not target:
        raise UsageError(f"{flag} {text}: names no kernel after {kind}:", hint=KINDS_HINT)
    options = dict(_option(part, kind, flag, takes) for part in rest)
    if len(options) < len(rest):
        raise UsageError(f"{flag} {text}: an option is given twice", hint=TWICE_HINT)
    return KernelSpec(role, kind, target, options, flag)


def _unknown_kind(text: str, kind: str, flag: str) -> UsageError:
    if (Role.INFERENCE, kind) in OPTIONS and ":" in text:
        hint = "hf:DIR: only a kernel in this process scores tokens as a trainer does"
        option = "--inference" if flag == f"--{Role.TRAIN.value}" else f"--role {Role.INFERENCE.value}"
        return UsageError(f"{flag} {text}: {kind} is for {option}", hint=hint)
    return UsageError(f"{flag} {text}: no such kind of kernel", hint=KINDS_HINT)


def _option(part: str, kind: str, flag: str, takes: Choices) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if not equals or not value:
        hint = "options are NAME=VALUE, separated by commas; a path may hold no comma"
        raise UsageError(f"{flag}: option {part!r} has no value", hint=hint)
    if name not in takes:
        raise UsageError(f"{flag}: {kind} takes no option {name!r}", hint=_near(name, takes))
    allowed = takes[name]
    if allowed is not None and value not in allowed:
        hint = f"known are {', '.join(allowed)}"
        raise UsageError(f"{flag}: unknown {name} {value!r}", hint=hint)
    if name in RANGES:
        _check_number(name, value, flag)
    return name, value


def _check_number(name: str, text: str, flag: str) -> None:
    allowed = RANGES[name]
    hint = f"{name} is {allowed.says}"
    try:
        value = float(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {name}={text} is no number", hint=hint) from error
    if not allowed.holds(value):
        raise UsageError(f"{flag}: {name}={text} is out of range", hint=hint)


def _near(name: str, takes: Choices) -> str:
    close = get_close_matches(name, takes, 1)
    known = f"it takes {', '.join(takes)}"
    return f"did you mean {close[0]!r}? {known}" if close else known
