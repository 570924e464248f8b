"""Per-token columns as one `TokenBlock`: numpy in, bytes out, and back without a loop."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from paritas.errors import RecordError
from paritas.proto.v1.token_block_pb2 import TokenBlock
from paritas.records import TokenStatus, TokenTrace, TopK
from paritas.wire import names
from paritas.wire.reasons import DecodeProblem, EncodeProblem

__all__ = ["Columns", "bytes_per_token", "check_columns", "decode_block", "encode_block"]

F32LE, U64LE, U32LE = np.dtype("<f4"), np.dtype("<u8"), np.dtype("<u4")
Scalar = TypeVar("Scalar", bound=np.generic)
FIXED_COLUMNS_BYTES = 4 + 8 + 1  # logprob, token, status
ITL_BYTES = RANK_BYTES = 4
TOPK_ENTRY_BYTES = 8 + 4  # token, logprob


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The columns of one segment, named and shaped as in `TokenTrace`; the arrays are read-only views."""

    logprob: NDArray[np.float32]
    token: NDArray[np.uint64]
    status: NDArray[np.uint8]
    start: int
    final: bool
    itl_s: NDArray[np.float32] | None
    top: TopK | None
    rank: NDArray[np.uint32] | None


def bytes_per_token(trace: TokenTrace) -> int:
    """Return how many bytes one token of this trace takes in a block."""
    itl = ITL_BYTES if trace.itl_s is not None else 0
    rank = RANK_BYTES if trace.rank is not None else 0
    topk = TOPK_ENTRY_BYTES * trace.top.token.shape[1] if trace.top is not None else 0
    return FIXED_COLUMNS_BYTES + itl + rank + topk


def check_columns(trace: TokenTrace) -> None:
    """Check what the record itself does not: optional columns align, statuses are known.

    Raises
    ------
    RecordError
        Reason ``misaligned`` or ``bad_status``.
    """
    n, top = len(trace), trace.top
    for name, column in (("itl_s", trace.itl_s), ("rank", trace.rank)):
        if column is not None and column.shape != (n,):
            raise _misaligned(trace, f"{name} has shape {column.shape}")
    if top is not None and (
        top.token.ndim != 2 or len(top.token) != n or top.logprob.shape != top.token.shape
    ):
        raise _misaligned(trace, f"top has shapes {top.token.shape} and {top.logprob.shape}")
    if n and int(trace.status.max()) >= len(TokenStatus):
        raise RecordError(
            f"sequence {trace.sequence_id!r}: token status {int(trace.status.max())} is not known",
            reason=EncodeProblem.BAD_STATUS,
            hint=f"use paritas.records.TokenStatus, 0 to {len(TokenStatus) - 1}",
        )


def _misaligned(trace: TokenTrace, what: str) -> RecordError:
    return RecordError(
        f"sequence {trace.sequence_id!r}: {what}, expected {len(trace)} rows",
        reason=EncodeProblem.MISALIGNED,
        hint="every per-token column of a trace has one row a token",
    )


def encode_block(trace: TokenTrace) -> bytes:
    """Return the serialized block of the whole trace.

    Examples
    --------
    >>> from paritas.records import KernelIdentity, Role
    >>> trace = TokenTrace("run", "s", KernelIdentity(Role.TRAIN), np.array([-0.5], np.float32),
    ...                    np.array([7], np.uint64), np.array([0], np.uint8))
    >>> decode_block(encode_block(trace)).logprob
    array([-0.5], dtype=float32)
    """
    block = TokenBlock(
        schema=names.SCHEMA,
        n=len(trace),
        start=trace.start,
        final=trace.final,
        logprob_f32le=_pack(trace.logprob, F32LE),
        token_u64le=_pack(trace.token, U64LE),
        status_u8=_pack(trace.status, np.dtype(np.uint8)),
    )
    if trace.itl_s is not None:
        block.itl_f32le = _pack(trace.itl_s, F32LE)
    if trace.rank is not None:
        block.rank_u32le = _pack(trace.rank, U32LE)
    if trace.top is not None:
        block.topk_k = trace.top.token.shape[1]
        block.topk_token_u64le = _pack(trace.top.token, U64LE)
        block.topk_logprob_f32le = _pack(trace.top.logprob, F32LE)
    return block.SerializeToString()


def _pack(column: NDArray[Scalar], dtype: np.dtype[Scalar]) -> bytes:
    return column.astype(dtype, copy=False).tobytes()


def decode_block(serialized: bytes) -> Columns:
    """Return the columns of a serialized block.

    Raises
    ------
    RecordError
        Reason ``bad_block``, ``unknown_schema``, ``bad_length`` or ``bad_status`` (`DecodeProblem`).
    """
    try:
        block = TokenBlock.FromString(serialized)
    except DecodeError as error:
        raise RecordError("paritas.tokens is not a TokenBlock", reason=DecodeProblem.BAD_BLOCK) from error
    _check_block(block)
    status = np.frombuffer(block.status_u8, np.uint8)
    if block.n and int(status.max()) >= len(TokenStatus):
        raise RecordError("paritas.tokens holds an unknown status", reason=DecodeProblem.BAD_STATUS)
    return Columns(
        logprob=_unpack(block.logprob_f32le, F32LE),
        token=_unpack(block.token_u64le, U64LE),
        status=status,
        start=block.start,
        final=block.final,
        itl_s=_unpack(block.itl_f32le, F32LE) if block.HasField("itl_f32le") else None,
        top=_unpack_top(block),
        rank=_unpack(block.rank_u32le, U32LE) if block.HasField("rank_u32le") else None,
    )


def _check_block(block: TokenBlock) -> None:
    """Refuse a block of another schema or with a column that is not as long as `n` says."""
    if block.schema != names.SCHEMA:
        raise RecordError(
            f"paritas.tokens has schema {block.schema}, this reader knows {names.SCHEMA}",
            reason=DecodeProblem.UNKNOWN_SCHEMA,
            hint="upgrade the detectors before the collectors",
        )
    n, entries = block.n, block.n * block.topk_k
    itl = 4 * n if block.HasField("itl_f32le") else 0
    rank = 4 * n if block.HasField("rank_u32le") else 0
    lengths = (
        (len(block.logprob_f32le), 4 * n),
        (len(block.token_u64le), 8 * n),
        (len(block.status_u8), n),
        (len(block.itl_f32le), itl),
        (len(block.rank_u32le), rank),
        (len(block.topk_token_u64le), 8 * entries),
        (len(block.topk_logprob_f32le), 4 * entries),
    )
    if any(have != want for have, want in lengths):
        raise RecordError(
            f"paritas.tokens: a column does not hold {n} tokens", reason=DecodeProblem.BAD_LENGTH
        )


def _unpack(column: bytes, dtype: np.dtype[Scalar]) -> NDArray[Scalar]:
    return np.frombuffer(column, dtype).astype(dtype.newbyteorder("="), copy=False)


def _unpack_top(block: TokenBlock) -> TopK | None:
    if not block.HasField("topk_k"):
        return None
    shape = (block.n, block.topk_k)
    return TopK(
        token=_unpack(block.topk_token_u64le, U64LE).reshape(shape),
        logprob=_unpack(block.topk_logprob_f32le, F32LE).reshape(shape),
    )
