"""Why something was not encoded or decoded: closed lists, fit for a metric label."""

from enum import StrEnum

__all__ = ["DecodeProblem", "EncodeProblem"]


class EncodeProblem(StrEnum):
    """Why a trace was refused before it was written."""

    MISALIGNED = "misaligned"  # an optional column has another length than the tokens
    BAD_STATUS = "bad_status"  # a token status outside TokenStatus
    TOO_LARGE = "too_large"  # the attributes or one token exceed the record limit by themselves
    UNENCODABLE = "unencodable"  # a value that OTLP cannot hold, such as a lone surrogate


class DecodeProblem(StrEnum):
    """Why a value, or one of our spans in it, gave no trace."""

    NOT_OTLP = "not_otlp"  # the value is not an ExportTraceServiceRequest
    NO_TOKENS = "no_tokens"  # our span, but `paritas.tokens` was removed or is not bytes
    BAD_BLOCK = "bad_block"  # `paritas.tokens` does not parse
    UNKNOWN_SCHEMA = "unknown_schema"  # written by a newer collector
    BAD_LENGTH = "bad_length"  # a column is not as long as the block says
    BAD_STATUS = "bad_status"  # a token status outside TokenStatus
    MISSING_ATTRIBUTE = "missing_attribute"  # run, sequence or role is not there
    BAD_ATTRIBUTE = "bad_attribute"  # an attribute has the wrong type or an unknown value, or the start lies beyond the year 2116
    TRACE_ID_MISMATCH = "trace_id_mismatch"  # the trace id is not the one of run and sequence
