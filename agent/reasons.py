"""Why a record was given up, and why the agent is not ready: the closed lists behind the labels."""

from enum import StrEnum

__all__ = ["DropReason", "NotReady"]


class DropReason(StrEnum):
    """Why the agent gave up a record that it had accepted; the label of the dropped counter."""

    OVERFLOW = "overflow"  # the spool was full: the oldest segment went
    EXPIRED = "expired"  # older than max_age
    TOO_LARGE = "too_large"  # one span larger than a record may be
    CORRUPT = "corrupt"  # damaged or missing on disk
    ENCODE_ERROR = "encode_error"  # whole on disk, but no record
    REJECTED = "rejected"  # the destination will never take it; kept among the dead letters
    SHUTDOWN = "shutdown"  # in memory only, and the process ended
    RING_OVERFLOW = "ring_overflow"  # in memory only, and the memory was full


class NotReady(StrEnum):
    """Why the agent is not ready: alive is not enough, it must make progress."""

    STARTING = "starting"  # the destination has not answered yet
    NOT_SHIPPING = "not_shipping"  # records wait and none was acknowledged for stall_s
    TARGET_REFUSES = "target_refuses"  # the destination says that a person must act
    MEMORY_ONLY = "memory_only"  # the disk refused: nothing accepted now survives a crash
    SYNC_FAILING = "sync_failing"  # what was appended may not survive a power loss
    THREAD_DIED = "thread_died"  # the shipping thread does not turn round
    DRAINING = "draining"  # SIGTERM came
