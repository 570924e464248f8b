"""Who did it: what a caller says of itself, beside the name that its token or certificate has."""

from google.protobuf.message import Message

__all__ = ["sign"]

FIELDS = ("author", "actor")
MESSAGES = ("override",)  # whose author is one level down


def sign(request: Message, name: str) -> None:
    """Put the granted name behind the author or actor that a request names, in the request itself.

    A token may be shared by a team, so both are kept; a text that is empty stays so, and is refused as such.

    Examples
    --------
    >>> from paritas.proto.v1 import escalation_pb2 as pb
    >>> request = pb.AcknowledgeRequest(author="ana")
    >>> sign(request, "sre"); sign(request, "sre"); request.author
    'ana (sre)'
    """
    known = request.DESCRIPTOR.fields_by_name
    for field in FIELDS:
        if field in known:
            setattr(request, field, _signed(getattr(request, field), name))
    for field in MESSAGES:
        if field in known and request.HasField(field):
            sign(getattr(request, field), name)


def _signed(text: str, name: str) -> str:
    is_said = not text.strip() or text == name or text.endswith(f" ({name})")
    return text if is_said else f"{text} ({name})"
