"""Field numbers of the wire messages as plain values, and the file that remembers them.

Run as a program it adds what is new to the remembered files; it never changes what they hold.
"""

import importlib
import json
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto

GOLDEN = Path(__file__).parent / "proto" / "golden"
PROTO = Path(__file__).parent.parent / "proto" / "v1"


def fields_of(name):
    """Return {message: {field number: "label type name"}} of one .proto file, nested messages dotted."""
    return {
        path: {str(f.number): f"{f.label} {f.type} {f.name}" for f in m.field} for path, m in _messages(name)
    }


def reserved_of(name):
    """Return {message: reserved field numbers} of one .proto file."""
    return {path: {n for r in m.reserved_range for n in range(r.start, r.end)} for path, m in _messages(name)}


def _messages(name):
    file = FileDescriptorProto()
    importlib.import_module(f"paritas.proto.v1.{name}_pb2").DESCRIPTOR.CopyToProto(file)
    yield from _walk("", file.message_type)


def _walk(prefix, messages):
    for message in messages:
        yield prefix + message.name, message
        yield from _walk(f"{prefix}{message.name}.", message.nested_type)


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
