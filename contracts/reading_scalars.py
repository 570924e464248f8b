"""Scalar shapes × nodes → values: text, numbers, names and durations."""

import re

from paritas.contracts.durations import DURATION_PATTERN, parse_duration
from paritas.contracts.found import Found
from paritas.contracts.nodes import Node, ScalarNode, describe
from paritas.contracts.problems import Problems, did_you_mean, shorten
from paritas.contracts.shapes import Choice, Duration, Flag, Number, Text, Whole

__all__ = [
    "duration_hint",
    "read_choice",
    "read_duration",
    "read_flag",
    "read_number",
    "read_text",
    "read_whole",
    "refuse",
]

DURATION_HINT = "write a number and a unit: 800ms, 30s, 10m, 2h, 7d"


def refuse(node: Node, path: str, problems: Problems, message: str, hint: str = "") -> Found | None:
    """Note a problem at a node; the value is refused."""
    problems.add(node.place, path, message, hint)
    return None


def read_text(shape: Text, node: Node, path: str, problems: Problems) -> Found | None:
    """Check text against its pattern."""
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        return refuse(node, path, problems, f"expected text, got {describe(node)}", _text_hint(shape, node))
    if len(node.value) > shape.at_most_chars or not re.fullmatch(shape.pattern, node.value):
        return refuse(node, path, problems, f"{shorten(node.value)} is not allowed here", shape.hint)
    return Found(node.value, node.place, path)


def _text_hint(shape: Text, node: Node) -> str:
    if not isinstance(node, ScalarNode) or node.value is None:
        return ""
    return f'quote it: "{node.text}"' if re.fullmatch(shape.pattern, node.text) else shape.hint


def read_number(shape: Number, node: Node, path: str, problems: Problems) -> Found | None:
    """Check a number against its range."""
    value = node.value if isinstance(node, ScalarNode) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return refuse(node, path, problems, f"expected a number, got {describe(node)}", number_hint(node))
    if fault := _out_of_range(shape, value):
        hint = (
            f"a share: write {value / 100:g} for {value:g} %" if shape.is_share and 1 < value <= 100 else ""
        )
        return refuse(node, path, problems, f"must be {fault}, got {value:g}", hint)
    return Found(float(value), node.place, path)


def number_hint(node: Node) -> str:
    """Guess what a person meant by text where a number belongs."""
    text = node.value if isinstance(node, ScalarNode) and isinstance(node.value, str) else ""
    if percent := re.fullmatch(r"([0-9]{1,9}(\.[0-9]{1,9})?)\s?%", text):
        return f"a share: write {float(percent[1]) / 100:g} for {percent[1]} %"
    if re.fullmatch(r"[-+0-9.eE]{1,30}", text):
        return "remove the quotes"
    if size := re.fullmatch(r"([0-9]{1,9})\s?([KMGT])(iB|i|B)", text):
        power = " KMGT".index(size[2])
        return f"in bytes: write {int(size[1]) * (1000 if size[3] == 'B' else 1024) ** power}"
    return ""


def duration_hint(node: Node) -> str:
    """Say how a duration is written to who has put other letters, or a space, behind a number."""
    text = node.value if isinstance(node, ScalarNode) and isinstance(node.value, str) else ""
    return DURATION_HINT if re.fullmatch(r"-?[0-9.]{1,15}\s?[a-zµ]{1,12}", text) else ""


def _out_of_range(shape: Number, value: float) -> str:
    """Say which end of the range `value` passes; empty if none."""
    if value < shape.low or (shape.is_low_open and value == shape.low):
        return f"{'above' if shape.is_low_open else 'at least'} {shape.low:g}"
    if shape.high is not None and (value > shape.high or (shape.is_high_open and value == shape.high)):
        return f"{'below' if shape.is_high_open else 'at most'} {shape.high:g}"
    return ""


def read_whole(shape: Whole, node: Node, path: str, problems: Problems) -> Found | None:
    """Check a whole number; 64.0 is one."""
    value = node.value if isinstance(node, ScalarNode) else None
    if not isinstance(value, int | float) or isinstance(value, bool) or value != int(value):
        return refuse(
            node, path, problems, f"expected a whole number, got {describe(node)}", number_hint(node)
        )
    if not shape.low <= value <= shape.high:
        message = (
            f"must be between {shape.low} and {shape.high}, got {describe(node).removeprefix('number ')}"
        )
        return refuse(node, path, problems, message)
    return Found(int(value), node.place, path)


def read_flag(_shape: Flag, node: Node, path: str, problems: Problems) -> Found | None:
    """Check true or false."""
    if not isinstance(node, ScalarNode) or not isinstance(node.value, bool):
        is_old = isinstance(node, ScalarNode) and node.text.lower() in {"yes", "no", "on", "off"}
        hint = "YAML 1.2 knows true and false only" if is_old else ""
        return refuse(node, path, problems, f"expected true or false, got {describe(node)}", hint)
    return Found(node.value, node.place, path)


def read_choice(shape: Choice, node: Node, path: str, problems: Problems) -> Found | None:
    """Check a name of a closed list."""
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        return refuse(node, path, problems, f"expected a name, got {describe(node)}", _known(shape))
    if node.value not in shape.names:
        if hint := shape.elsewhere.get(node.value, ""):
            return refuse(node, path, problems, f"{node.value!r} cannot stand here", hint)
        hint = did_you_mean(node.value, shape.names)
        return refuse(node, path, problems, f"unknown name {shorten(node.value)}", hint)
    return Found(node.value, node.place, path)


def _known(shape: Choice) -> str:
    return f"known: {', '.join(shape.names)}"


def read_duration(_shape: Duration, node: Node, path: str, problems: Problems) -> Found | None:
    """Check a duration; the value is in seconds."""
    if not isinstance(node, ScalarNode) or isinstance(node.value, bool) or node.value is None:
        return refuse(node, path, problems, f"expected a duration, got {describe(node)}", DURATION_HINT)
    if not isinstance(node.value, str):
        hint = f"durations carry a unit: write {node.text}s"
        return refuse(node, path, problems, f"expected a duration, got number {node.text}", hint)
    if not re.fullmatch(DURATION_PATTERN, node.value):
        return refuse(node, path, problems, f"{shorten(node.value)} is not a duration", DURATION_HINT)
    return Found(parse_duration(node.value), node.place, path)
