"""Plain values (null, number, text, flag, list, map) to and from `proto.v1.Value`.

Own messages instead of ``google.protobuf.Struct``: integers stay integers, and NaN and
infinity have a form that JSON printers of the message accept.
"""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real

from paritas.controller.refusals import invalid
from paritas.proto.v1 import escalation_pb2 as pb

__all__ = ["map_of", "map_to", "value_of", "value_to"]

_INT64 = range(-(2**63), 2**63)


def value_to(value: object, *, place: str) -> pb.Value:
    """Return the message that carries `value`; `place` names it in a refusal.

    Examples
    --------
    >>> value_of(value_to({"to": "reference", "share": 0.5, "replicas": [1, 2]}, place="arguments"))
    {'replicas': [1, 2], 'share': 0.5, 'to': 'reference'}
    """
    match value:
        case None:
            return pb.Value()
        case bool():
            return pb.Value(flag=value)
        case str():
            return pb.Value(text=_checked_text(value, place=place))
        case Integral():
            return _integer_to(int(value), place=place)
        case Real():
            return pb.Value(number=float(value))
        case Mapping():
            return pb.Value(map=pb.Arguments(items=map_to(value, place=place)))
        case Sequence() if not isinstance(value, bytes | bytearray):
            items = [value_to(item, place=f"{place}[{i}]") for i, item in enumerate(value)]
            return pb.Value(list=pb.Values(items=items))
        case _:
            raise invalid(f"{place}: cannot carry a value of type {type(value).__name__!r}")


def map_to(items: Mapping[str, object], *, place: str) -> dict[str, pb.Value]:
    """Return the messages of a map's values, by key."""
    for key in items:
        if not isinstance(key, str):
            raise invalid(f"{place}: keys must be text, got {type(key).__name__!r}")
        _checked_text(key, place=place)
    return {key: value_to(value, place=f"{place}.{key}") for key, value in items.items()}


def value_of(message: pb.Value) -> object:
    """Return the plain value; maps come sorted by key, sequences as lists."""
    kind = message.WhichOneof("kind")
    match kind:
        case None:
            return None
        case "list":
            return [value_of(item) for item in message.list.items]
        case "map":
            return map_of(message.map.items)
        case _:
            return getattr(message, kind)


def map_of(items: Mapping[str, pb.Value]) -> dict[str, object]:
    """Return the plain values of a map, sorted by key."""
    return {key: value_of(items[key]) for key in sorted(items)}


def _integer_to(value: int, *, place: str) -> pb.Value:
    if value not in _INT64:
        raise invalid(f"{place}: {value} does not fit 64 bits")
    return pb.Value(integer=value)


def _checked_text(text: str, *, place: str) -> str:
    """Refuse lone surrogates, which no UTF-8 field can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"{place}: text with a lone surrogate cannot be sent") from error
    return text
