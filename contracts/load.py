"""Contract files → contracts: the one way in.

>>> text = '''
... apiVersion: paritas.dev/v1
... kind: KernelContract
... metadata: {name: example, version: 1.0.0}
... spec:
...   clauses:
...     numerical:
...       - {id: token-tv, statistic: tv, at_most: 0.02}
... '''
>>> load_text(text, "example.yaml").clause("token-tv").at_most
0.02
"""

from dataclasses import replace
from importlib.resources import files
from itertools import takewhile
from pathlib import Path

from paritas.contracts.assemble import EMPTY, assemble
from paritas.contracts.compose import compose, decode
from paritas.contracts.derive import derive_limits
from paritas.contracts.dump import digest_of
from paritas.contracts.found import Fields, Found
from paritas.contracts.model import Contract
from paritas.contracts.problems import Problems, did_you_mean
from paritas.contracts.reading import read
from paritas.contracts.references import check_references
from paritas.contracts.refit import check_refit
from paritas.contracts.table import DOCUMENT
from paritas.errors import UsageError

__all__ = [
    "load_contract",
    "load_named",
    "load_preset",
    "load_text",
    "preset_names",
    "preset_summary",
    "preset_text",
]

SUFFIXES = (".yaml", ".yml", ".json")


def load_contract(path: Path | str) -> Contract:
    """Read the contract in a file.

    Raises
    ------
    UsageError
        If the file cannot be read.
    ContractError
        If it is not a valid contract; carries every problem found.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", hint="paritas contract init -o FILE writes one") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path}: is a directory", hint="name the contract file inside it") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {_reason(error)}") from error
    return load_text(content, str(path))


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def load_named(name_or_path: str) -> Contract:
    """Read a contract file, or a preset of the package by its name.

    Anything that exists, holds a path separator or ends in .yaml, .yml or .json is a file.

    Raises
    ------
    UsageError, ContractError
        As `load_contract`; UsageError for an unknown preset, with the closest name.
    """
    path = Path(name_or_path)
    if name_or_path in preset_names() and not path.is_file():
        return load_preset(name_or_path)
    if len(path.parts) > 1 or path.suffix in SUFFIXES or path.exists():
        return load_contract(path)
    raise UsageError(f"{name_or_path}: neither a file nor a preset", hint=_preset_hint(name_or_path))


def _preset_hint(name: str) -> str:
    hint, known = did_you_mean(name, preset_names()), "paritas contract presets lists them"
    return f"{hint} {known}" if hint.startswith("did") else known


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets in the package, sorted."""
    found = (entry.name for entry in files(__package__).joinpath("presets").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


def preset_summary(name: str) -> str:
    """Return the first sentence of what a preset says of itself; KeyError if there is none of that name.

    Examples
    --------
    >>> preset_summary("lora")
    'A LoRA adapter: merged or fused differently in the two kernels, on a dense bfloat16 base.'
    """
    lines = takewhile(lambda line: line.startswith("#"), preset_text(name).splitlines())
    said = " ".join(line.removeprefix("#").strip() for line in lines)
    return said.split(". ")[0].removesuffix(".") + "."


def preset_text(name: str) -> str:
    """Return the YAML text of a preset; KeyError if the package has none of that name."""
    if name not in preset_names():
        raise KeyError(name)
    return files(__package__).joinpath("presets", f"{name}.yaml").read_text("utf-8")


def load_preset(name: str) -> Contract:
    """Return a preset of the package as a contract; KeyError if there is none of that name."""
    return load_text(preset_text(name), f"preset {name}")


def load_text(text: str | bytes, file: str) -> Contract:
    """Read a contract from text; `file` is the name that errors show.

    Raises
    ------
    ContractError
        If it is not a valid contract; carries every problem found.
    """
    problems = Problems()
    found = _checked(text, file, problems)
    document: Fields = found.value
    contract, names = assemble(document, _base(document, problems), problems)
    check_references(document, contract, names, problems)
    problems.raise_if_any()
    contract = derive_limits(replace(contract, file=file), problems)
    check_refit(document.record("spec"), contract, problems)
    problems.raise_if_any()
    return replace(contract, digest=digest_of(contract))


def _checked(text: str | bytes, file: str, problems: Problems) -> Found:
    """Return the document after the structural check; raise if it is not even a mapping."""
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    found = read(DOCUMENT, compose(decode(content, file), file, problems), "", problems)
    if found is None:
        raise problems.error()
    return found


def _base(document: Fields, problems: Problems) -> Contract:
    spec = document.record("spec")
    if "preset" not in spec:
        return EMPTY
    at = spec.at("preset")
    if at.value in preset_names():
        return load_preset(at.value)
    problems.add(at.place, at.path, f"unknown preset {at.value!r}", _preset_hint(at.value))
    return EMPTY
