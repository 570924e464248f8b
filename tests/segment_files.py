"""Directories of segments for tests, written and read by the real writer and reader."""

from paritas.agent.eventlog import SegmentLimits, SegmentReader, SegmentWriter, SyncMode, WriterSettings
from paritas.clock import ManualClock

LOG_ID = "ab" * 16
ROOMY = SegmentLimits(segment_bytes=2**20, total_bytes=2**30)


def open_writer(directory, limits=ROOMY, **options):
    settings = WriterSettings(LOG_ID, limits, SyncMode.NONE)
    return SegmentWriter(directory, settings, clock=options.pop("clock", None) or ManualClock(), **options)


def payload(number):
    return b"record-%06d" % number


def fill(directory, count, limits=ROOMY):
    """Append `count` records and return their payloads."""
    with open_writer(directory, limits) as writer:
        for number in range(count):
            assert writer.append(payload(number)) == number
    return [payload(number) for number in range(count)]


def read_from(directory, seq=0, page=7):
    """Read everything there is; return numbers, payloads and skipped, after checking the account."""
    seqs, payloads, skipped = [], [], {}
    with SegmentReader(directory) as reader:
        while True:
            got = reader.read(seq, limit=page)
            assert len(got.frames) + sum(got.skipped.values()) == got.next_seq - seq
            seqs += [frame.seq for _, frame in got.frames]
            payloads += [frame.payload for _, frame in got.frames]
            skipped = {r: skipped.get(r, 0) + got.skipped.get(r, 0) for r in {*skipped, *got.skipped}}
            if got.next_seq == seq:
                return seqs, payloads, skipped
            seq = got.next_seq


def segment_files(directory):
    return sorted(directory.glob("*.seg"))
