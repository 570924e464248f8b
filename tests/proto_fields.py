"""Field numbers of the wire messages as plain values, and the file that remembers them.

Run as a program it adds what is new to the remembered files; it never changes what they hold.
"""

import importlib
import json
from pathlib import Path

GOLDEN = Path(__file__).parent / "proto" / "golden"
PROTO = Path(__file__).parent.parent / "proto" / "v1"


def fields_of(name):
    """Return {message: {field number: "label type name"}} of one .proto file."""
    module = importlib.import_module(f"paritas.proto.v1.{name}_pb2")
    return {
        message.name: _rows(message)
        for message in _messages(module.DESCRIPTOR.message_types_by_name.values())
    }


def _messages(messages):
    for message in messages:
        yield message
        yield from _messages(message.nested_types)


def _rows(message):
    from google.protobuf.descriptor_pb2 import DescriptorProto

    proto = DescriptorProto()
    message.CopyToProto(proto)
    return {str(field.number): f"{field.label} {field.type} {field.name}" for field in proto.field}


def golden_path(name):
    return GOLDEN / f"{name}.json"


def remember(name):
    """Add new messages and fields to the golden file."""
    path = golden_path(name)
    kept = json.loads(path.read_text()) if path.exists() else {}
    now = fields_of(name)
    merged = {m: {**now.get(m, {}), **kept.get(m, {})} for m in sorted({*kept, *now})}
    path.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    for source in sorted(PROTO.glob("*.proto")):
        remember(source.stem)
