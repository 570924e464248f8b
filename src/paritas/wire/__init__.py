"""The wire format: traces as OTLP spans whose per-token columns are packed bytes.

`encode` turns traces into records any event log holds and any OpenTelemetry Collector reads;
`decode` turns such values back.  Names, types and units are in `attributes.yaml`.
"""

from paritas.wire.agent_spans import AgentHealth, Gap
from paritas.wire.decode import Decoded, decode
from paritas.wire.encode import encode, segments_of, span_id_of
from paritas.wire.readings import encode_reading
from paritas.wire.reasons import DecodeProblem, EncodeProblem
from paritas.wire.records import RECORD_LIMIT_BYTES, Headers, Origin, WireRecord, origin_of, stamp
from paritas.wire.roster import Expected, Roster, encode_roster

__all__ = [
    "RECORD_LIMIT_BYTES",
    "AgentHealth",
    "DecodeProblem",
    "Decoded",
    "EncodeProblem",
    "Expected",
    "Gap",
    "Headers",
    "Origin",
    "Roster",
    "WireRecord",
    "decode",
    "encode",
    "encode_reading",
    "encode_roster",
    "origin_of",
    "segments_of",
    "span_id_of",
    "stamp",
]
